// A small replica with batch norm, as checkpoints of it are made and read in tests.
#pragma once

#include "configs/experiment.h"

namespace lockstep::testing_support {

inline Experiment tiny_bn() {
    Experiment experiment;
    experiment.model.arch = "tiny_bn";
    experiment.model.image_size = 12;
    experiment.batch.per_replica = 2;
    experiment.train.backend = "reference";
    return experiment;
}

}  // namespace lockstep::testing_support
