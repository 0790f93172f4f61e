// `lockstep doctor`: what this process would run as, and on what.
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/files.h"
#include "core/host.h"
#include "launch/threads.h"
#include "launch/world_from_environment.h"
#include "nn/executor.h"

namespace lockstep::cli {

namespace {

std::string processor_name() {
    const std::string text = read_file("/proc/cpuinfo");
    const size_t key = text.find("model name");
    if (key == std::string::npos) return "unknown";
    const size_t begin = text.find(':', key) + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
}

std::string limit_text(int resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur);
}

// False when the environment is refused: the job could not start like this.
bool print_environment() {
    fmt::print("{}", explain_environment(process_environment()));
    try {
        const World world = world_from_environment(process_environment());
        const ThreadBudget budget = plan_threads(world, 0);
        fmt::print("threads: {} of {} cores allowed, {} compute thread{} for this rank ({})\n", budget.allowed_cores,
                   budget.node_cores, budget.compute_threads, budget.compute_threads == 1 ? "" : "s",
                   budget.shares_cores_with_peers ? "cores shared by the node's ranks" : "bound by the launcher");
        if (!budget.warning.empty()) fmt::print("warning: {}\n", budget.warning);
        return true;
    } catch (const ConfigError&) {
        return false;  // explain_environment has printed the reason
    }
}

void print_machine() {
    fmt::print("machine: {}, {}\n", host_name(), processor_name());
    fmt::print("limits: {} open files, {} bytes of locked memory, {} processes\n", limit_text(RLIMIT_NOFILE),
               limit_text(RLIMIT_MEMLOCK), limit_text(RLIMIT_NPROC));
}

void print_backends() {
    for (const char* name : {"onednn", "reference"}) {
        try {
            fmt::print("backend {}: {}\n", name, make_backend(name, {.threads = 1})->description());
        } catch (const Error& error) {
            fmt::print("backend {}: {}\n", name, error.what());
        }
    }
}

int doctor() {
    const bool fine = print_environment();
    print_machine();
    print_backends();
    return static_cast<int>(fine ? ExitCode::kDone : ExitCode::kConfig);
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
    CLI::App* command = app.add_subcommand(
        "doctor",
        "Print what was found here (launcher, cores, threads, limits, backends), the launcher alone (launch), or look over all "
        "machines of a job (cluster)");
    add_doctor_cluster(*command, chosen);
    CLI::App* launch = command->add_subcommand("launch", "Print every launcher's variables found here, the verdict and why");
    launch->callback(
        [&chosen] { chosen = [] { return static_cast<int>(print_environment() ? ExitCode::kDone : ExitCode::kConfig); }; });
    command->require_subcommand(0, 1);
    command->callback([command, &chosen] {
        if (command->get_subcommands().empty()) chosen = doctor;
    });
}

}  // namespace lockstep::cli
