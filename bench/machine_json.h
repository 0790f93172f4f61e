// How the machine's facts stand in every benchmark's JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/machine_facts.h"

namespace lockstep::bench {

nlohmann::ordered_json json_of(const MachineFacts& facts);

}  // namespace lockstep::bench
