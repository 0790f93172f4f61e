#include "launch/line_splitter.h"

#include <utility>

namespace lockstep {

std::vector<std::string> LineSplitter::add(std::string_view bytes) {
    std::vector<std::string> lines;
    for (const char byte : bytes) {
        const bool ends = byte == '\n' || byte == '\r';
        if (byte == '\n' && std::exchange(after_return_, false)) continue;
        after_return_ = byte == '\r';
        if (!ends) line_ += byte;
        if (ends || line_.size() >= kMaxLineBytes) lines.push_back(std::exchange(line_, {}));
    }
    return lines;
}

std::string LineSplitter::rest() { return std::exchange(line_, {}); }

}  // namespace lockstep
