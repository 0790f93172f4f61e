// Faults that only the program itself can make, for `lockstep chaos`: the environment variable LOCKSTEP_DRILL says
// "nan:RANK:STEP" (that rank's first parameter becomes NaN before the step), "flip:RANK:STEP" (a bit of it turns) or
// "clock:SECONDS" (the wall clock of every process that has the variable is that far ahead; behind where negative).
#pragma once

#include <memory>

#include "core/world.h"
#include "trainer/train_loop.h"

namespace lockstep::cli {

// Each looks for the drills that are its own. Both throw ConfigError for a text that is none of the three.
void skew_clock_from_environment();
// Null where nothing is asked of this rank.
std::unique_ptr<StepObserver> drill_from_environment(const World& world);

}  // namespace lockstep::cli
