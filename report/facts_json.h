// RunFacts as JSON text: the head of a records file and run.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "report/records.h"

namespace lockstep {

std::string facts_to_json(const RunFacts& facts);                         // keys in a fixed order
std::optional<RunFacts> facts_from_json(std::string_view text) noexcept;  // nullopt: not what facts_to_json writes

}  // namespace lockstep
