#include "trainer/stop_signals.h"

#include <unistd.h>

#include <atomic>

#include "core/error.h"

namespace lockstep {

namespace {

// A signal handler can reach static storage only: this is the process's one mailbox for wishes to stop.
std::atomic<int> strongest_wish{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may not take locks");

StopRequest wish_of(int signal) {
    switch (signal) {
        case SIGINT:
            return StopRequest::interrupt;
        case SIGTERM:
            return StopRequest::terminate;
        default:
            return StopRequest::requeue;
    }
}

extern "C" void note_signal(int signal) {
    const int wish = static_cast<int>(wish_of(signal));
    int present = strongest_wish.load();
    if (signal == SIGINT && present == wish) _exit(static_cast<int>(ExitCode::kInterrupted));
    while (present < wish && !strongest_wish.compare_exchange_weak(present, wish)) {
    }
}

void install(int signal, struct sigaction* old) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    check(sigaction(signal, &action, old) == 0, "a signal handler can be installed");
}

}  // namespace

StopSignals::StopSignals() {
    strongest_wish.store(0);
    install(SIGINT, &old_interrupt_);
    install(SIGTERM, &old_terminate_);
    install(SIGUSR1, &old_requeue_);
}

StopSignals::~StopSignals() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
    sigaction(SIGUSR1, &old_requeue_, nullptr);
}

StopRequest StopSignals::request() const noexcept { return static_cast<StopRequest>(strongest_wish.load()); }

}  // namespace lockstep
