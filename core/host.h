// Which machine this is.
#pragma once

#include <string>

namespace lockstep {

std::string host_name();  // what it calls itself

}  // namespace lockstep
