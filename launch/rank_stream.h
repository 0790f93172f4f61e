// Where the output of the ranks goes: to the launcher's own, line by line and with the rank's name, and to log files.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

#include "launch/child_process.h"
#include "launch/line_splitter.h"
#include "launch/screen.h"

namespace lockstep {

struct RankStreamOptions {
    std::string prefix;         // of each line on the screen
    Screen* screen = nullptr;   // null: not shown
    std::filesystem::path log;  // empty: none
};

// One output stream of one rank. The last lines are kept, and the last number that stood behind the word "step".
class RankStream {
public:
    RankStream(Pipe pipe, const RankStreamOptions& options);  // DeviceError when the log cannot be written

    const Pipe& pipe() const { return pipe_; }
    const std::deque<std::string>& last_lines() const { return last_lines_; }
    int64_t last_step() const { return last_step_; }  // -1: none was named

    // Nothing is read while the screen is behind: the rank then waits when its pipe is full, as it would at the screen itself.
    bool is_readable() const { return pipe_.is_open() && (screen_ == nullptr || !screen_->is_behind()); }
    void forward_available();
    void close();

private:
    void emit(std::string line);

    const std::string prefix_;
    Pipe pipe_;
    Screen* screen_;
    LineSplitter splitter_;
    std::ofstream log_;
    std::deque<std::string> last_lines_;
    int64_t last_step_ = -1;
};

// The number behind the last "step " of a line; -1: none. Pure.
int64_t step_named_in(std::string_view line);

}  // namespace lockstep
