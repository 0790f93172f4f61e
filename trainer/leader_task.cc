#include "trainer/leader_task.h"

#include <algorithm>
#include <future>
#include <span>

#include "trainer/common_failure.h"

namespace lockstep {

Outcome outcome_of(const std::function<void()>& task) {
    try {
        task();
        return {};
    } catch (const Error& error) {
        return {error.exit_code(), error.what()};
    } catch (const std::exception& error) {
        return {ExitCode::kInternal, error.what()};
    }
}

void await_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                  const std::function<bool(std::chrono::milliseconds patience)>& done) {
    const bool leads = communicator.world().is_leader();
    const std::chrono::milliseconds patience(std::clamp<int64_t>(timeout_ms / 8, 1, 500));
    uint8_t ended = 0;
    while (ended == 0) {
        if (leads) ended = done(patience) ? 1 : 0;
        communicator.broadcast(std::as_writable_bytes(std::span(&ended, 1)), 0, {.what = what, .step = step});
    }
}

void share_outcome(Communicator& communicator, const Outcome& leaders, std::string_view what, int64_t step) {
    auto code = static_cast<int>(leaders.code);
    communicator.broadcast(std::as_writable_bytes(std::span(&code, 1)), 0, {.what = what, .step = step});
    if (code == 0) return;
    throw CommonFailure(static_cast<ExitCode>(code), gather_texts(communicator, leaders.message, what).front());
}

void run_on_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                   const std::function<void()>& task) {
    std::future<Outcome> running;
    if (communicator.world().is_leader()) running = std::async(std::launch::async, [&] { return outcome_of(task); });
    await_leader(communicator, timeout_ms, what, step,
                 [&](std::chrono::milliseconds patience) { return running.wait_for(patience) == std::future_status::ready; });
    share_outcome(communicator, running.valid() ? running.get() : Outcome{}, what, step);
}

}  // namespace lockstep
