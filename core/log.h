// The only writer of human text. One call is one whole line, in which what is not printable stands as \x0A (core/text.h); lines of
// different ranks never interleave inside.
//
// `info` and `warn` are for facts that are the same on all ranks: only rank 0 prints them. `info_here` and `warn_here` are for one
// rank's own facts and carry its number. No colours and no carriage returns unless stderr is a terminal. Safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace lockstep::log {

struct Options {
    int rank = 0;
    int world_size = 1;
    bool quiet = false;  // drop `info`
    std::string file;    // also append every line, of any rank and level, to this file; empty: none
};
void init(const Options& options);

void write_info(std::string_view text);
void write_info_here(std::string_view text);
void write_warn(std::string_view text);
void write_warn_here(std::string_view text);
void write_error(std::string_view text);  // always printed; with the rank when there are several

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
    write_info(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info_here(fmt::format_string<Args...> format, Args&&... args) {
    write_info_here(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
    write_warn(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn_here(fmt::format_string<Args...> format, Args&&... args) {
    write_warn_here(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
    write_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep::log
