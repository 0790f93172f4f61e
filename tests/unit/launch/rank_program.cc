// A process that stands for a rank. Its first argument says how it behaves; `RANK:behaviour` applies to one rank only, the others
// take the behaviour that has no number. Not a training: what the launcher must get right is how processes end.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/rendezvous.h"
#include "launch/world_from_environment.h"
#include "net/secrets.h"
#include "net/store.h"

namespace {

volatile std::sig_atomic_t received_signal = 0;

void sleep_for_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int meet_and_leave(const lockstep::World& world) {
    const lockstep::Rendezvous rendezvous = lockstep::meet(world, 5'000);
    fmt::print("met {} of {}\n", world.rank, world.size);
    std::fflush(stdout);
    rendezvous.store->add("left", 1);
    while (rendezvous.server && rendezvous.store->get("left").value_or("") != fmt::format("{}", world.size)) sleep_for_s(0.01);
    return 0;
}

// The launcher's; its other ranks need not be there.
std::unique_ptr<lockstep::Store> store_of(const lockstep::World& world) {
    return lockstep::connect_store({.host = world.store_host,
                                    .port = world.store_port,
                                    .job_id = world.job_id,
                                    .secret = lockstep::job_secret_from_environment()});
}

[[noreturn]] void wait_for_a_signal(int code) {
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
        std::signal(signal, [](int number) { received_signal = number; });
    }
    fmt::print("waiting\n");
    std::fflush(stdout);
    while (received_signal == 0) sleep_for_s(0.005);
    std::exit(code);
}

int attempt() { return std::atoi(std::getenv("LOCKSTEP_RESTART_COUNT")); }

// Says that it works, and leaves after a checkpoint when it is asked to.
int work_until(const lockstep::World& world, const std::function<bool()>& done) {
    std::signal(SIGUSR1, [](int number) { received_signal = number; });
    fmt::print("{} of {} at work\n", world.rank, world.size);
    std::fflush(stdout);
    while (!done()) {
        if (received_signal != 0) return 138;
        sleep_for_s(0.01);
    }
    return 0;
}

int behave(const std::string& behaviour, const lockstep::World& world) {
    const size_t separator = behaviour.find('=');
    const std::string verb = behaviour.substr(0, separator);
    const std::string value = separator == std::string::npos ? "" : behaviour.substr(separator + 1);
    if (verb == "exit") return std::atoi(value.c_str());
    if (verb == "say_and_exit") {
        fmt::print(stderr, "[rank {}] error: {}: record 7 is cut\n", world.rank, value);
        return 3;
    }
    if (verb == "write_error") {  // as a Python program does, which says nothing else
        std::ofstream(std::getenv("TORCHELASTIC_ERROR_FILE")) << fmt::format(
            R"({{"message": {{"message": "ValueError: {} of {}", "extraInfo": {{"py_callstack": "Traceback", "timestamp": "1"}}}}}})",
            value, world.rank);
        return 1;
    }
    if (verb == "follow") {  // what a peer of a dying rank does: it notices, and ends with 140
        sleep_for_s(std::atof(value.c_str()));
        return 140;
    }
    if (verb == "late_exit") {
        sleep_for_s(0.3);
        return std::atoi(value.c_str());
    }
    if (verb == "raise") {
        std::signal(std::atoi(value.c_str()), SIG_DFL);
        std::raise(std::atoi(value.c_str()));
    }
    if (verb == "sleep") sleep_for_s(std::atof(value.c_str()));
    if (verb == "die_once_at_work") {
        store_of(world)->wait(lockstep::kAtWorkKey, 10'000);
        std::raise(SIGKILL);
    }
    if (verb == "stubborn_at_work") lockstep::announce_work(*store_of(world));
    if (verb.starts_with("stubborn")) {
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
        fmt::print("waiting\n");
        std::fflush(stdout);
        sleep_for_s(60);
    }
    if (verb == "wait_then") wait_for_a_signal(std::atoi(value.c_str()));
    if (verb == "leave_child") {  // a loader process that outlives its rank
        if (fork() == 0) sleep_for_s(60);
        fmt::print("child of group {}\n", getpgrp());
        return 0;
    }
    if (verb == "lines") {
        for (int line = 0; line < std::atoi(value.c_str()); ++line) {
            fmt::print("{}\n", std::string(200, static_cast<char>('a' + world.rank)));
            std::fflush(stdout);
        }
    }
    if (verb == "progress") std::fputs("10%\r20%\r30%\nno end", stdout);
    if (verb == "until_world") return work_until(world, [&] { return world.size >= std::atoi(value.c_str()); });
    if (verb == "until_attempt") return work_until(world, [&] { return attempt() >= std::atoi(value.c_str()); });
    if (verb == "until_file") return work_until(world, [&] { return access(value.c_str(), F_OK) == 0; });
    if (verb == "count_files_until") {  // what the launcher holds open
        const auto files = std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", getppid()));
        fmt::print("attempt {} files {}\n", attempt(), std::distance(begin(files), end(files)));
        std::fflush(stdout);
        return attempt() < std::atoi(value.c_str()) ? 140 : 0;
    }
    if (verb == "fail_until") {
        fmt::print("attempt {}\n", attempt());
        std::fflush(stdout);
        if (attempt() < std::atoi(value.c_str())) std::raise(SIGKILL);
        return meet_and_leave(world);
    }
    if (verb == "meet_or_follow") {  // until then its peer dies
        if (attempt() >= std::atoi(value.c_str())) return meet_and_leave(world);
        sleep_for_s(0.1);
        return 140;
    }
    if (verb == "world") fmt::print("{} {} {} {} {}\n", world.rank, world.size, world.local_rank, world.local_size, world.launcher);
    if (verb == "meet") return meet_and_leave(world);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const lockstep::World world = lockstep::world_from_environment(lockstep::process_environment());
        const std::string mine = fmt::format("{}:", world.rank);
        std::string behaviour;
        for (int index = 1; index < argc; ++index) {
            const std::string argument = argv[index];
            if (argument.starts_with(mine)) return behave(argument.substr(mine.size()), world);
            if (argument.find(':') == std::string::npos) behaviour = argument;
        }
        return behave(behaviour, world);
    } catch (const lockstep::Error& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
