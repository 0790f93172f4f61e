// The launcher's own output: whole lines, and never a wait. A reader that stands still (a pager, a full pipe) must not keep the
// launcher from watching its ranks and obeying signals; what is not taken is kept, and the ranks' output is left in their pipes
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <poll.h>

namespace lockstep {

class Screen {
public:
    explicit Screen(int descriptor);

    // One whole line in one write wherever the system allows it. A screen that is gone is forgotten.
    void write_line(std::string line);
    // So much is kept that nothing more should be read until some of it is taken.
    bool is_behind() const { return waiting_.size() > kMostWaiting; }
    void append_to(std::vector<pollfd>& watched) const;  // when something is kept
    void flush();                                        // hands over what is taken now
    void flush_within(int64_t timeout_ms);               // at the end; what is not taken by then is lost

private:
    static constexpr size_t kMostWaiting = 64 << 10;

    const int descriptor_;
    const size_t most_at_once_;  // that a write takes without waiting when poll() says that it can be written
    std::string waiting_;        // lines, and first the rest of one
    bool gone_ = false;
};

}  // namespace lockstep
