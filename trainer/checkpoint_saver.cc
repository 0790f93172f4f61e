#include "trainer/checkpoint_saver.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "trainer/leader_task.h"

namespace lockstep {

// The thread that writes. One job at a time: the snapshot belongs to it from start() until it is idle again.
class CheckpointSaver::Writer {
public:
    Writer(const CheckpointFolder& folder, const Snapshot& snapshot, const std::string& config_yaml)
        : folder_(folder), snapshot_(snapshot), config_yaml_(config_yaml), thread_([this](std::stop_token stop) { run(stop); }) {}

    void start(const Manifest& manifest, bool is_last) {
        const std::lock_guard lock(mutex_);
        manifest_ = manifest;
        is_last_ = is_last;
        changed_.notify_all();
    }

    bool is_idle_within(std::chrono::milliseconds patience) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [this] { return !manifest_; });
    }

    Outcome last_outcome() {  // of the newest job, when idle
        const std::lock_guard lock(mutex_);
        return outcome_;
    }

private:
    void run(std::stop_token stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [this] { return manifest_.has_value(); })) {
            const Manifest manifest = *manifest_;
            const bool is_last = is_last_;
            lock.unlock();
            Outcome outcome = outcome_of([&] { write(manifest); });
            if (outcome.code != ExitCode::kDone && !is_last) tell(outcome, manifest.step);
            lock.lock();
            outcome_ = std::move(outcome);
            manifest_.reset();
            changed_.notify_all();
        }
    }

    void write(const Manifest& manifest) {
        const int64_t begin_ns = now_ns();
        const auto path = folder_.save(snapshot_, manifest, config_yaml_);
        log::info("checkpoint {} ({} in {:.2f} s)", path.string(), data_size(snapshot_.byte_count()),
                  1e-9 * static_cast<double>(now_ns() - begin_ns));
        if (failed_in_a_row_ > 0) log::info("checkpoints are written again; {} were left out", failed_in_a_row_);
        failed_in_a_row_ = 0;
    }

    // Once, not at every step of a disk that stays full.
    void tell(const Outcome& outcome, int64_t step) {
        if (failed_in_a_row_++ > 0) return;
        log::warn("the checkpoint after {} was not written, older ones stay and training goes on: {}", counted(step, "step"),
                  outcome.message);
    }

    const CheckpointFolder& folder_;
    const Snapshot& snapshot_;
    const std::string& config_yaml_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::optional<Manifest> manifest_;  // of the job under way
    bool is_last_ = false;
    Outcome outcome_;
    int64_t failed_in_a_row_ = 0;  // the thread's alone
    std::jthread thread_;          // last: it uses the rest
};

CheckpointSaver::CheckpointSaver(const CheckpointFolder& folder, const Replica& replica, Communicator& communicator,
                                 ShardedUpdate* sharding, CheckpointSaverOptions options)
    : replica_(replica), communicator_(communicator), sharding_(sharding), options_(std::move(options)) {
    if (!communicator.world().is_leader()) return;
    snapshot_ = std::make_unique<Snapshot>(replica.backend(), replica.arena());
    writer_ = std::make_unique<Writer>(folder, *snapshot_, options_.config_yaml);
}

CheckpointSaver::~CheckpointSaver() {
    if (!writer_) return;
    while (!writer_->is_idle_within(std::chrono::seconds(1))) {
    }
}

void CheckpointSaver::await_writer(int64_t step) {
    await_leader(communicator_, options_.timeout_ms, "checkpoint", step,
                 [&](std::chrono::milliseconds patience) { return writer_->is_idle_within(patience); });
}

void CheckpointSaver::take_snapshot(int64_t step) {
    if (sharding_ == nullptr) {
        if (snapshot_) snapshot_->take_all();
        return;
    }
    if (snapshot_) snapshot_->take_values();
    sharding_->gather_state(step, [&](int index, std::span<const float> whole) { snapshot_->take_state(index, whole); });
}

void CheckpointSaver::save(const Manifest& manifest, bool is_last) {
    const int64_t step = manifest.step - 1;
    await_writer(step);
    take_snapshot(step);
    Outcome outcome;
    if (writer_) {
        outcome = outcome_of([&] { snapshot_->require_finite(manifest.step); });
        if (outcome.code == ExitCode::kDone) writer_->start(manifest, is_last);
    }
    share_outcome(communicator_, outcome, "checkpoint", step);
    last_step_ = step;
    if (!options_.async) await_writer(step);
}

void CheckpointSaver::finish() {
    await_writer(last_step_);
    share_outcome(communicator_, writer_ ? writer_->last_outcome() : Outcome{}, "checkpoint", last_step_);
}

size_t CheckpointSaver::snapshot_bytes() const { return snapshot_ ? snapshot_->byte_count() : 0; }

}  // namespace lockstep
