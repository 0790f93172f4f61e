// Saves checkpoints while training goes on. Between two steps the leader copies the replica into memory that was taken before step
// 0; a thread of its own then writes, syncs and renames (trainer/checkpoint.h) while the steps go on. The next save waits until the
// former is on disk, so there is never more than one copy, and checkpoints appear in their order.
//
// A checkpoint that the disk refuses costs nothing but itself: the older ones stay, a warning says so once, and the run goes on.
// Only where nothing follows (the end of the run, a stop on request) is it an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "trainer/checkpoint.h"
#include "trainer/replica.h"
#include "trainer/sharded_update.h"

namespace lockstep {

struct CheckpointSaverOptions {
    bool async = true;  // false: save() returns when the files are there; the same bytes
    int64_t timeout_ms = 10'000;
    std::string config_yaml;  // the resolved configuration
};

// Every rank has one, and all call the same functions in the same order.
class CheckpointSaver {
public:
    // Everything named here outlives the saver. `sharding` may be null.
    CheckpointSaver(const CheckpointFolder& folder, const Replica& replica, Communicator& communicator, ShardedUpdate* sharding,
                    CheckpointSaverOptions options);
    ~CheckpointSaver();  // lets a save that is under way come to its end

    // Collective, between two steps. `manifest` comes without `files`. `is_last`: nothing is saved after it, so that finish() will
    // tell of a failure. Throws CommonFailure with the code of a diverged run when a value is NaN or Inf; then nothing is written.
    void save(const Manifest& manifest, bool is_last);

    // Collective. Waits until the last save is on disk; throws CommonFailure (environment) when that one could not be written.
    void finish();

    size_t snapshot_bytes() const;  // memory of the leader for the copy; 0 elsewhere

private:
    class Writer;

    void await_writer(int64_t step);
    void take_snapshot(int64_t step);

    const Replica& replica_;
    Communicator& communicator_;
    ShardedUpdate* const sharding_;
    const CheckpointSaverOptions options_;
    int64_t last_step_ = -1;              // of the newest save
    std::unique_ptr<Snapshot> snapshot_;  // the leader's
    std::unique_ptr<Writer> writer_;      // likewise
};

}  // namespace lockstep
