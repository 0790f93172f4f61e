// Several sources one after another, as one.
#pragma once

#include <memory>
#include <vector>

#include "data_loader/source.h"

namespace lockstep {

// The first source's class names and the largest number of classes stand for all: open the others with the first one's names.
std::unique_ptr<Source> join_sources(std::vector<std::unique_ptr<Source>> sources);

}  // namespace lockstep
