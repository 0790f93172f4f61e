#include "trainer/leader_task.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <span>
#include <string>

#include "core/error.h"
#include "trainer/common_failure.h"

namespace lockstep {

namespace {

constexpr int kRunning = -1;

// 0 when the task has succeeded, else its exit code; kRunning while it runs.
int status_of(std::future<void>& task, std::chrono::milliseconds patience, std::string& message) {
    if (task.wait_for(patience) != std::future_status::ready) return kRunning;
    try {
        task.get();
        return 0;
    } catch (const Error& error) {
        message = error.what();
        return static_cast<int>(error.exit_code());
    } catch (const std::exception& error) {
        message = error.what();
        return static_cast<int>(ExitCode::kInternal);
    }
}

}  // namespace

void run_on_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                   const std::function<void()>& task) {
    const bool leads = communicator.world().is_leader();
    const std::chrono::milliseconds patience(std::clamp<int64_t>(timeout_ms / 8, 1, 500));
    std::future<void> running;
    if (leads) running = std::async(std::launch::async, task);
    std::string message;
    int status = kRunning;
    while (status == kRunning) {
        if (leads) status = status_of(running, patience, message);
        communicator.broadcast(std::as_writable_bytes(std::span(&status, 1)), 0, {.what = what, .step = step});
    }
    if (status == 0) return;
    throw CommonFailure(static_cast<ExitCode>(status), gather_texts(communicator, message, what).front());
}

}  // namespace lockstep
