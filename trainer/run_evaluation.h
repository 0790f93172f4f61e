// `lockstep eval` behind the command line: one checkpoint against the validation set.
#pragma once

#include <filesystem>

#include "configs/experiment.h"
#include "core/world.h"
#include "net/store.h"
#include "trainer/evaluation.h"

namespace lockstep {

struct EvaluationJob {
    const Experiment& experiment;  // the checkpoint's own, with overrides
    std::filesystem::path checkpoint;
    const World& world;
    Store& store;
};

// Collective; the same result on all ranks. Throws ConfigError when no validation set is configured.
EvaluationResult run_evaluation(const EvaluationJob& job);

}  // namespace lockstep
