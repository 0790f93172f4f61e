#include "collectives/mpi/mpi_runtime.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "collectives/mpi/mpi_loader.h"
#include "core/error.h"
#include "core/log.h"

namespace lockstep {

namespace {

// Never destroyed: its thread may be inside MPI for ever when a peer is stuck.
MpiRuntime& the_runtime() {
    static MpiRuntime& runtime = *std::make_unique<MpiRuntime>().release();
    return runtime;
}

}  // namespace

MpiRuntime& MpiRuntime::start(const std::string& flavour, int64_t timeout_ms) {
    MpiRuntime& runtime = the_runtime();
    runtime.begin(flavour, timeout_ms);
    return runtime;
}

void MpiRuntime::begin(const std::string& flavour, int64_t timeout_ms) {
    std::unique_lock lock(state_mutex_);
    if (state_ == State::idle) {
        module_ = &load_mpi_module(flavour);
        flavour_ = flavour;
        end_timeout_ms_ = timeout_ms;
        state_ = State::beginning;
        sigset_t all;
        sigset_t before;
        sigfillset(&all);  // signals are the program's business, also in the threads that MPI starts
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread([this] { serve(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    if (flavour != flavour_) {
        throw ConfigError(fmt::format("comm.mpi={}: this process runs {} already; one process can use one MPI", flavour, flavour_));
    }
    const auto decided = [&] { return state_ == State::running || state_ == State::refused; };
    if (!state_changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), decided)) {
        given_up_ = true;
        throw CommError(
            fmt::format("{} did not begin within {:.1f} s; check that every rank was started by the same mpirun and is alive",
                        flavour_, 1e-3 * static_cast<double>(timeout_ms)));
    }
    if (state_ == State::refused) throw CommError(refusal_);
}

void MpiRuntime::give_up() noexcept {
    const std::lock_guard lock(state_mutex_);
    given_up_ = true;
}

void MpiRuntime::serve() {
    const int error = module_->initialise(&rank_, &size_, &last_tag_);
    std::unique_lock lock(state_mutex_);
    if (error != 0) {
        std::array<char, 512> text{};
        module_->describe(error, text.data(), text.size());
        refusal_ = fmt::format("{} does not begin: {}; check that the program was started by its mpirun", flavour_, text.data());
        state_ = State::refused;
        state_changed_.notify_all();
        return;
    }
    // Here, not at first use: what MPI has registered for the end of the program must come after.
    std::atexit([] { the_runtime().end_at_exit(); });
    state_ = State::running;
    state_changed_.notify_all();
    state_changed_.wait(lock, [&] { return state_ == State::ending; });
    lock.unlock();
    module_->finalise();
    lock.lock();
    state_ = State::ended;
    state_changed_.notify_all();
}

void MpiRuntime::end_at_exit() noexcept {
    std::unique_lock lock(state_mutex_);
    if (given_up_ || state_ != State::running) return;
    state_ = State::ending;
    state_changed_.notify_all();
    const bool in_time =
        state_changed_.wait_for(lock, std::chrono::milliseconds(end_timeout_ms_), [&] { return state_ == State::ended; });
    lock.unlock();
    if (in_time) {
        thread_.join();
        return;
    }
    // Nobody is left to throw to, and an exit code cannot be changed from here in another way.
    log::write_error(fmt::format("this rank is done, but others did not end within {:.1f} s; look at their output",
                                 1e-3 * static_cast<double>(end_timeout_ms_)));
    std::fflush(nullptr);
    _exit(static_cast<int>(ExitCode::kPeerLost));
}

}  // namespace lockstep
