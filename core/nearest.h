// Which known name did the user mean? Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Letters inserted, deleted, replaced, or swapped with their neighbour (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b);
// The known name closest to `name`: a hyphen counts as an underscore, at most two edits, one for each three of its
// letters. Else one that begins with `name`, or the other way round ("optimiser" and "optim"). Empty when none is close.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);
// Do the two share a word ("weight-decay" and "decay_rate")? Words of one or two letters do not count.
bool share_a_word(std::string_view a, std::string_view b);

}  // namespace lockstep
