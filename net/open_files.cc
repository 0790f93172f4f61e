#include "net/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

// New descriptors take the lowest free numbers, so what counts is the number of open ones.
size_t open_file_count() {
    std::error_code error;
    const std::filesystem::directory_iterator folder("/proc/self/fd", error);
    // With no descriptor left even the folder cannot be opened; then everything is in use.
    if (error) return error == std::errc::too_many_files_open ? RLIM_INFINITY : 16;
    const auto count = static_cast<size_t>(std::distance(begin(folder), end(folder)));
    return count - 1;  // without the folder itself
}

}  // namespace

void reserve_open_files(size_t more, std::string_view what) {
    rlimit limit{};
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit of open files is known");
    const size_t open = std::min<size_t>(open_file_count(), limit.rlim_cur);
    const size_t needed = open + more;
    if (needed <= limit.rlim_cur) return;
    if (needed <= limit.rlim_max) {
        limit.rlim_cur = needed;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
    }
    throw DeviceError(
        fmt::format("{} needs {} open files ({} are open, {} more), this process may have {} (hard limit {}); raise it "
                    "with `ulimit -n {}`",
                    what, needed, open, more, limit.rlim_cur, limit.rlim_max, needed));
}

}  // namespace lockstep
