// "sync_efficiency<0.9": a condition on the headline of report.json under which a script wants to fail.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Returns why the gate closes, or nullopt when it stays open. A value that is n/a closes it: a gate that cannot be judged must not
// pass. Throws ConfigError for an expression that is not NAME<NUMBER (or >, <=, >=) or names no number of the headline.
std::optional<std::string> closed_gate(std::string_view report_json, const std::string& expression);

}  // namespace lockstep
