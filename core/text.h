// Names and numbers as text for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// `bytes` with each control character and each byte that is not part of well-formed UTF-8 (RFC 3629) written as \xE9. What is
// printable already stays as it is, so a second pass changes nothing. Line separators and marks of direction count as control.
// For names from foreign file systems and archives, before they go into files and onto screens that hold text.
std::string printable(std::string_view bytes);

// "1 rank", "2 ranks".
std::string counted(int64_t count, std::string_view noun);

// "851 B", "6.8 kB", "102.23 MB": decimal, as disks and networks are sold.
std::string data_size(int64_t bytes);

}  // namespace lockstep
