// JSON as text, of nlohmann's json or ordered_json.
#pragma once

#include <string>

namespace lockstep {

// In one line, or with `indent` spaces per level. Never throws for what a foreign name holds: bytes that are no UTF-8 are written
// as U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
