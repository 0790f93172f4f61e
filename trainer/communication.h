// From the experiment to the communicator's options: the one place that translates.
#pragma once

#include <cstddef>

#include "collectives/communicator.h"
#include "configs/experiment.h"

namespace lockstep {

// `segment_bytes`: gradient memory per rank; `common_bytes`: memory per node that its ranks have in common.
CommunicatorOptions communicator_options(const Experiment& experiment, size_t segment_bytes, size_t common_bytes = 0);

}  // namespace lockstep
