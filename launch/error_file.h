// The file in which a rank that fails says why, for whoever started it. Its form and its place are torchrun's: the variable
// TORCHELASTIC_ERROR_FILE names it, and it holds
//   {"message": {"message": TEXT, "extraInfo": {"timestamp": "SECONDS"}}}
// where others may add "py_callstack", and old ones have {"message": TEXT} alone.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

// Writes to the file that the environment names, if it names one. Never throws: the process is about to end with that very error.
void write_error_file(std::string_view message) noexcept;

// The message in a file that any program may have written: at most a few lines of printable text. Empty: there is no such file, or
// nothing in it that could be shown. Does not wait and does not follow a link.
std::string read_error_file(const std::filesystem::path& path);

}  // namespace lockstep
