// The images that a run could not read and has left out or replaced (data.on_bad_image: skip), as lines "path: reason".
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "collectives/communicator.h"

namespace lockstep {

using BadImages = std::set<std::string>;

// Collective: those of all ranks, each once.
BadImages gather_bad_images(Communicator& communicator, const BadImages& mine);

// Writes them to `list`, together with those that are listed there when the run is one that goes on. Returns all. An empty list is
// no file. Throws DeviceError when the disk refuses.
BadImages list_bad_images(const std::filesystem::path& list, BadImages found, bool goes_on);

}  // namespace lockstep
