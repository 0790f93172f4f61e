// The Communicator of a world of one rank: every collective is already done. No thread.
#pragma once

#include <memory>

#include "collectives/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> make_world_of_one(const World& world);

}  // namespace lockstep
