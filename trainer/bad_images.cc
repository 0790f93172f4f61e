#include "trainer/bad_images.h"

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/files.h"

namespace lockstep {

namespace {

void add_lines(const std::string& text, BadImages& images) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) images.insert(line);
}

}  // namespace

BadImages gather_bad_images(Communicator& communicator, const BadImages& mine) {
    BadImages all;
    for (const std::string& of_rank : gather_texts(communicator, fmt::format("{}", fmt::join(mine, "\n")), "bad images")) {
        add_lines(of_rank, all);
    }
    return all;
}

BadImages list_bad_images(const std::filesystem::path& list, BadImages found, bool goes_on) {
    std::error_code none;
    if (goes_on && std::filesystem::exists(list, none)) add_lines(read_file(list), found);
    if (found.empty()) {
        std::filesystem::remove(list, none);
    } else {
        write_file_atomically(list, fmt::format("{}\n", fmt::join(found, "\n")));
    }
    return found;
}

}  // namespace lockstep
