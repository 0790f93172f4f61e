#include "launch/screen.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>

#include "core/clock.h"

namespace lockstep {

namespace {

// A pipe that poll() calls writable has room for so much, and may have no more.
size_t room_of(int descriptor) {
    struct stat facts {};
    const bool is_file = fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
    return is_file ? SIZE_MAX : PIPE_BUF;
}

bool can_be_written(int descriptor, int timeout_ms) {
    pollfd ready{descriptor, POLLOUT, 0};
    return poll(&ready, 1, timeout_ms) > 0;
}

}  // namespace

Screen::Screen(int descriptor) : descriptor_(descriptor), most_at_once_(room_of(descriptor)) {}

void Screen::write_line(std::string line) {
    if (gone_) return;
    waiting_ += line;
    waiting_ += '\n';
    flush();
}

void Screen::append_to(std::vector<pollfd>& watched) const {
    if (!waiting_.empty()) watched.push_back({descriptor_, POLLOUT, 0});
}

void Screen::flush() {
    size_t taken = 0;
    while (taken < waiting_.size() && can_be_written(descriptor_, 0)) {
        const size_t line_end = waiting_.find('\n', taken) + 1;  // each line has one
        const ssize_t written = write(descriptor_, waiting_.data() + taken, std::min(line_end - taken, most_at_once_));
        if (written >= 0) {
            taken += static_cast<size_t>(written);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            gone_ = true;
            waiting_.clear();
            return;
        }
    }
    waiting_.erase(0, taken);
}

void Screen::flush_within(int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    for (flush(); !waiting_.empty() && !deadline.expired(); flush()) {
        can_be_written(descriptor_, static_cast<int>(deadline.remaining_ms()) + 1);
    }
}

}  // namespace lockstep
