#include "bench/contestant.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "bench/start_line.h"
#include "core/clock.h"
#include "core/error.h"
#include "net/socket.h"

namespace lockstep::bench {

namespace {

// Lines to and from the driver. Reading blocks without end: the driver's end closes it when the driver ends, however it ends.
class Control {
public:
    explicit Control(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
        if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            throw DeviceError(fmt::format("the driver at {} does not answer: {}", path, std::strerror(errno)));
        }
    }

    void write_line(std::string text) {
        text += '\n';
        for (size_t sent = 0; sent < text.size();) {
            const ssize_t bytes = send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
            if (bytes < 0) throw DeviceError(fmt::format("the driver has gone: {}", std::strerror(errno)));
            sent += static_cast<size_t>(bytes);
        }
    }

    std::optional<std::string> read_line() {
        size_t end = 0;
        while ((end = received_.find('\n')) == std::string::npos) {
            char piece[4096];
            const ssize_t bytes = read(socket_.get(), piece, sizeof piece);
            if (bytes < 0 && errno == EINTR) continue;
            if (bytes <= 0) return std::nullopt;
            received_.append(piece, static_cast<size_t>(bytes));
        }
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
    }

private:
    FileHandle socket_;
    std::string received_;
};

// The value of element `index` before it is multiplied by rank + 1: ten bits that differ between neighbours, calls and turns.
uint32_t pattern(uint32_t index, uint32_t salt) { return ((index + salt) * 2654435761U) >> 22U; }

void fill(std::span<float> tensor, uint32_t salt, int rank) {
    const auto count = static_cast<uint32_t>(tensor.size());
    const auto weight = static_cast<int32_t>(rank + 1);
    for (uint32_t index = 0; index < count; ++index) {
        tensor[index] = static_cast<float>(static_cast<int32_t>(pattern(index, salt)) * weight);
    }
}

float expected(uint32_t index, uint32_t salt, int rank_count) {
    return static_cast<float>(static_cast<int32_t>(pattern(index, salt)) * (rank_count * (rank_count + 1) / 2));
}

// Which element is not the exact sum; empty when all are.
std::string find_wrong(std::span<const float> tensor, uint32_t salt, int rank_count) {
    const auto count = static_cast<uint32_t>(tensor.size());
    uint32_t wrong_count = 0;
    for (uint32_t index = 0; index < count; ++index) wrong_count += tensor[index] != expected(index, salt, rank_count) ? 1U : 0U;
    if (wrong_count == 0) return {};
    uint32_t index = 0;
    while (tensor[index] == expected(index, salt, rank_count)) ++index;
    return fmt::format("{} of {} elements are wrong; element {} is {}, not {}", wrong_count, count, index, tensor[index],
                       expected(index, salt, rank_count));
}

double process_cpu_s() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Bytes that have left this network namespace through `interface`.
double sent_bytes(const std::string& interface) {
    std::ifstream file("/proc/self/net/dev");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if (colon == std::string::npos || line.find(interface) >= colon) continue;
        std::istringstream numbers(line.substr(colon + 1));
        double value = 0;
        for (int column = 0; column < 9; ++column) numbers >> value;  // the ninth: bytes sent
        return value;
    }
    return 0;
}

class Runner {
public:
    Runner(const ContestantPlan& plan, int rank, Allreducer& library)
        : plan_(plan), rank_(rank), library_(library), line_(plan.folder + "/start-line", plan.rank_count, plan.yields) {}

    TurnResult run(const Turn& turn) {
        place(turn);
        library_.prepare(tensors_);
        TurnResult result;
        const bool counts_link = !plan_.interface.empty() && rank_ % plan_.ranks_per_node == 0;
        double sent_before = 0;
        for (int call = 0; call <= turn.iterations; ++call) {
            const uint32_t salt = turn.seed + 7919U * static_cast<uint32_t>(call);
            for (const std::span<float> tensor : tensors_) fill(tensor, salt, rank_);
            if (call == 1 && counts_link) sent_before = sent_bytes(plan_.interface);
            const Cost cost = time_call();
            for (const std::span<float> tensor : tensors_) {
                if (result.wrong.empty()) result.wrong = find_wrong(tensor, salt, plan_.rank_count);
            }
            if (call == 0) continue;  // wakes threads and caches up
            result.us.push_back(cost.us);
            result.cpu_s += cost.cpu_s / turn.iterations;
        }
        line_.wait();  // nobody sends any more
        if (counts_link) result.link_bytes = (sent_bytes(plan_.interface) - sent_before) / turn.iterations;
        return result;
    }

private:
    struct Cost {
        double us = 0, cpu_s = 0;
    };

    // The first line lets all read their CPU clocks, which is slow; the second starts the call.
    Cost time_call() {
        line_.wait();
        const double cpu_before_s = process_cpu_s();
        line_.wait();
        const int64_t start_ns = now_ns();
        library_.allreduce();
        const int64_t end_ns = now_ns();
        return {.us = static_cast<double>(end_ns - start_ns) / 1e3, .cpu_s = process_cpu_s() - cpu_before_s};
    }

    void place(const Turn& turn) {
        std::vector<int64_t> offsets;
        place_tensors(turn.counts, offsets);
        tensors_.clear();
        const std::span<float> buffer = library_.buffer();
        for (size_t tensor = 0; tensor < offsets.size(); ++tensor) {
            tensors_.push_back(
                buffer.subspan(static_cast<size_t>(offsets[tensor] + turn.shift), static_cast<size_t>(turn.counts[tensor])));
        }
    }

    const ContestantPlan& plan_;
    const int rank_;
    Allreducer& library_;
    StartLine line_;
    std::vector<std::span<float>> tensors_;
};

}  // namespace

ContestantPlan read_plan(int argc, char** argv) {
    if (argc != 2 || argv[1][0] != '{') {
        throw ConfigError("this program is a part of `lockstep bench allreduce`, which starts it with a plan");
    }
    return ContestantPlan::from_json(argv[1]);
}

int rank_of(const ContestantPlan& plan) {
    if (plan.rank >= 0) return plan.rank;
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
        if (const char* rank = std::getenv(variable)) return std::atoi(rank);
    }
    throw ConfigError("the plan names no rank, and neither Open MPI nor MPICH has launched this process");
}

void bind_to_cores(const ContestantPlan& plan, int rank) {
    if (plan.cores_per_rank == 0) return;
    cpu_set_t allowed, mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int position = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &allowed)) continue;
        if (position++ / plan.cores_per_rank == rank) CPU_SET(core, &mine);
    }
    if (CPU_COUNT(&mine) == 0 || sched_setaffinity(0, sizeof mine, &mine) != 0) {
        throw DeviceError(fmt::format("rank {} cannot be bound to its {} cores", rank, plan.cores_per_rank));
    }
}

World world_of(const ContestantPlan& plan, int rank) {
    return {.rank = rank,
            .size = plan.rank_count,
            .local_rank = rank % plan.ranks_per_node,
            .local_size = std::min(plan.ranks_per_node, plan.rank_count),
            .node = rank / plan.ranks_per_node,
            .node_count = (plan.rank_count + plan.ranks_per_node - 1) / plan.ranks_per_node,
            .store_host = plan.store_host,
            .job_id = fmt::format("bench-{}", plan.number),
            .launcher = "bench"};
}

void take_turns(const ContestantPlan& plan, int rank, Allreducer& library) {
    Control control(plan.control);
    Runner runner(plan, rank, library);
    fill(library.buffer(), 0, 0);  // every page is there before the first call
    control.write_line(Hello{.number = plan.number, .rank = rank, .version = library.version()}.to_json());
    while (const std::optional<std::string> line = control.read_line()) {
        control.write_line(runner.run(Turn::from_json(*line)).to_json());
    }
}

int run_contestant(int argc, char** argv, int (*body)(const ContestantPlan& plan)) {
    try {
        return body(read_plan(argc, argv));
    } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.what());
        return static_cast<int>(error.exit_code());
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return static_cast<int>(ExitCode::kInternal);
    }
}

}  // namespace lockstep::bench
