// The text of an image list: lines of "path label".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ImageListEntry {
    std::string name;
    int32_t label = 0;
    int64_t line = 0;  // from 1
};

// DataError with list, line number, the text and the allowed range for a label that is missing, no integer, or outside
// [first_label, first_label + allowed), which become [0, allowed); for a list without a line; for text that is not text.
std::vector<ImageListEntry> parse_image_list(std::string_view text, const std::filesystem::path& path, int64_t allowed,
                                             int first_label = 0);

}  // namespace lockstep
