// Faults that only the program itself can make, for `lockstep chaos`: the environment variable LOCKSTEP_DRILL says
// "nan:RANK:STEP" (that rank's first parameter becomes NaN before the step) or "flip:RANK:STEP" (a bit of it turns).
#pragma once

#include <memory>

#include "core/world.h"
#include "trainer/train_loop.h"

namespace lockstep::cli {

// Null where nothing is asked of this rank. Throws ConfigError for a text that is none of the two.
std::unique_ptr<StepObserver> drill_from_environment(const World& world);

}  // namespace lockstep::cli
