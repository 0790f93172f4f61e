// Cuts a stream of bytes into lines. A carriage return ends a line too, so progress bars become lines; other control characters
// stay. A line without an end is cut at kMaxLineBytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class LineSplitter {
public:
    static constexpr size_t kMaxLineBytes = 64 << 10;

    // The lines that `bytes` completes, without their ends.
    std::vector<std::string> add(std::string_view bytes);
    // What was left without an end, at the end of the stream; empty when nothing was.
    std::string rest();

private:
    std::string line_;
    bool after_return_ = false;  // the next '\n' belongs to the '\r' before it
};

}  // namespace lockstep
