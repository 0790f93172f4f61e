// Checks of an experiment that need more than its configuration, and no data.
#pragma once

#include "configs/experiment.h"

namespace lockstep::cli {

// The network's name and its size of image: builds the graph. Throws ConfigError.
void check_model(const Experiment& experiment);

}  // namespace lockstep::cli
