// Slurm's short forms of lists. Pure; ConfigError for a malformed text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// "gpu[001-003,7]-ib,login" -> gpu001-ib gpu002-ib gpu003-ib gpu7-ib login. Leading zeros are kept.
std::vector<std::string> expand_host_list(std::string_view text);
// "2(x3),1" -> 2 2 2 1: tasks per node.
std::vector<int> expand_counts(std::string_view text);

}  // namespace lockstep
