// Where a run begins: at step 0, or at a checkpoint that belongs to the same experiment.
#pragma once

#include <optional>

#include "configs/experiment.h"
#include "trainer/checkpoint.h"

namespace lockstep {

CheckpointFolderOptions checkpoint_folder_options(const Experiment& experiment);

// Rank 0 decides for all: `run.resume` auto takes the latest sound checkpoint of the run folder and prints a warning for each
// damaged one it passes over; never moves older checkpoints aside; a path names a checkpoint or a run folder, and those of later
// steps are moved aside, lest they pass for newer ones of this run. `again`: this is a later start of one job (after a failure, a
// change of nodes, a requeue), which goes on from what its first start has saved, whatever was wished for that. Cleans the
// leftovers of killed saves. nullopt: begin at step 0.
std::optional<std::filesystem::path> choose_checkpoint(const Experiment& experiment, bool again);

// Throws ConfigError naming the key, both values and what to do when the run would not be a continuation: every key on which
// results depend (trainer/recipe.h) and the training data must be the same. The number of ranks, backend, threads, communication
// and train.duration may differ.
void require_continuation(const Manifest& manifest, const ResultKeys& now, uint64_t train_fingerprint,
                          const std::filesystem::path& checkpoint);

}  // namespace lockstep
