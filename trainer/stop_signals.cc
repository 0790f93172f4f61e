#include "trainer/stop_signals.h"

#include <unistd.h>

#include <atomic>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr int64_t kSameWishNs = 500'000'000;

// When each signal came first; 0: not yet. A handler can reach static storage only: this is the process's one mailbox for wishes to
// stop.
std::atomic<int64_t> interrupted_ns{0}, terminated_ns{0}, requeued_ns{0};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a handler may not take locks");

std::atomic<int64_t>& first_time_of(int signal) {
    if (signal == SIGINT) return interrupted_ns;
    return signal == SIGTERM ? terminated_ns : requeued_ns;
}

extern "C" void note_signal(int signal) {
    int64_t before_ns = 0;
    if (first_time_of(signal).compare_exchange_strong(before_ns, now_ns()) || now_ns() - before_ns < kSameWishNs) return;
    _exit(static_cast<int>(signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated));
}

void install(int signal, struct sigaction* old) {
    first_time_of(signal).store(0);
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    check(sigaction(signal, &action, old) == 0, "a signal handler can be installed");
}

}  // namespace

StopSignals::StopSignals() {
    install(SIGINT, &old_interrupt_);
    install(SIGTERM, &old_terminate_);
    install(SIGUSR1, &old_requeue_);
}

StopSignals::~StopSignals() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
    sigaction(SIGUSR1, &old_requeue_, nullptr);
}

bool StopSignals::requested() const noexcept { return interrupted_ns != 0 || terminated_ns != 0 || requeued_ns != 0; }

}  // namespace lockstep
