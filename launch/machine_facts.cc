#include "launch/machine_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/host.h"
#include "core/json_text.h"
#include "launch/threads.h"
#include "net/local_address.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PathFact, path, found, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Room, total, free, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MachineFacts, rank, local_rank, node, launcher, host, boot_id, addresses, address_problem,
                                   program, instruction_set, allowed_cores, node_cores, compute_threads, thread_warning, open_files,
                                   open_files_limit, locked_memory, memory, memory_free, shared_memory, run_folder, data)

namespace {

std::string first_line(const std::string& path) {
    try {
        const std::string text = read_file(path);
        return text.substr(0, text.find('\n'));
    } catch (const DataError&) {
        return {};  // not every kernel has every file
    }
}

std::string instruction_set() {
    std::string found = "below AVX2";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found = "AVX2";
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) found = "AVX-512";
    if (__builtin_cpu_supports("avx512bf16")) found += " with bf16";
    return found;
}

uint64_t bytes_of_meminfo(const std::string& text, const std::string& key) {
    const size_t at = text.find(key + ":");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 1, nullptr, 10) << 10;
}

// Of the file system that `path` lies on, or will lie on once its folders are made.
Room room_of(const std::string& path) {
    Room room;
    fs::path existing = fs::absolute(path.empty() ? "." : path);
    std::error_code ignored;
    while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
    struct statvfs system {};
    if (statvfs(existing.c_str(), &system) != 0) {
        room.problem = fmt::format("{}: {}", existing.string(), std::strerror(errno));
        return room;
    }
    room.total = static_cast<uint64_t>(system.f_blocks) * system.f_frsize;
    room.free = static_cast<uint64_t>(system.f_bavail) * system.f_frsize;
    if (!fs::is_directory(existing, ignored)) room.problem = fmt::format("{} is no folder", existing.string());
    // access() says yes to root on a read-only file system's folders too, hence the flag.
    if (access(existing.c_str(), W_OK) != 0) room.problem = fmt::format("{}: {}", existing.string(), std::strerror(errno));
    if ((system.f_flag & ST_RDONLY) != 0) room.problem = fmt::format("{}: the file system is read-only", existing.string());
    return room;
}

PathFact path_fact(const std::string& path) {
    PathFact fact{.path = path};
    std::error_code error;
    const auto status = fs::status(path, error);
    if (!fs::exists(status)) {
        fact.problem = fs::status_known(status) ? "not there" : error.message();
    } else if (access(path.c_str(), R_OK) != 0) {
        fact.problem = std::strerror(errno);
    } else if (fs::is_directory(status)) {
        const auto entries = std::distance(fs::directory_iterator(path, error), fs::directory_iterator());
        fact.found = fmt::format("folder of {} entries", entries);
    } else {
        fact.found = fmt::format("file of {} bytes", fs::file_size(path, error));
    }
    if (error && fact.problem.empty()) fact.problem = error.message();
    return fact;
}

void add_cores(const World& world, const MachineQuestions& questions, MachineFacts& facts) {
    const ThreadBudget budget = plan_threads(world, static_cast<int>(questions.threads));
    facts.allowed_cores = budget.allowed_cores;
    facts.node_cores = budget.node_cores;
    facts.compute_threads = budget.compute_threads;
    facts.thread_warning = budget.warning;
}

void add_limits(MachineFacts& facts) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    facts.open_files = limit.rlim_cur;
    facts.open_files_limit = limit.rlim_max;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    facts.locked_memory = limit.rlim_cur;
    const std::string memory = read_file("/proc/meminfo");
    facts.memory = bytes_of_meminfo(memory, "MemTotal");
    facts.memory_free = bytes_of_meminfo(memory, "MemAvailable");
}

}  // namespace

MachineFacts machine_facts(const World& world, const MachineQuestions& questions) {
    MachineFacts facts{.rank = world.rank,
                       .local_rank = world.local_rank,
                       .node = world.node,
                       .launcher = world.launcher,
                       .host = host_name(),
                       .boot_id = first_line("/proc/sys/kernel/random/boot_id"),
                       .program = questions.program,
                       .instruction_set = instruction_set()};
    try {
        facts.addresses = local_addresses(world, questions.interface);
    } catch (const ConfigError& error) {
        facts.address_problem = error.what();
    }
    add_cores(world, questions, facts);
    add_limits(facts);
    facts.shared_memory = room_of("/dev/shm");
    facts.run_folder = room_of(questions.run_folder);
    for (const std::string& path : questions.data) facts.data.push_back(path_fact(path));
    return facts;
}

std::string to_json(const MachineFacts& facts) { return json_text(nlohmann::json(facts)); }

MachineFacts facts_from_json(const std::string& text) {
    try {
        return nlohmann::json::parse(text).get<MachineFacts>();
    } catch (const nlohmann::json::exception& error) {
        throw CommError(
            fmt::format("the preflight's facts of a rank cannot be read ({}); do all ranks run the same program?", error.what()));
    }
}

}  // namespace lockstep
