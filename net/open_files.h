// Room in this process's table of open files.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// Makes sure that `more` files can be opened beside those that are open now; raises the soft limit as far as it must and the hard
// limit lets it. DeviceError with the files needed and allowed; `what` says for what they are needed.
void reserve_open_files(size_t more, std::string_view what);

}  // namespace lockstep
