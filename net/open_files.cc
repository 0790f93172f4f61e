#include "net/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

// The limit under which `more` numbers are free now: a descriptor's number, not the count of them, must lie below the limit.
size_t limit_for(size_t more) {
    int number = 0;
    for (size_t found = 0; found < more; ++number) found += fcntl(number, F_GETFD) == -1 ? 1 : 0;
    return static_cast<size_t>(number);
}

}  // namespace

void reserve_open_files(size_t more, std::string_view what) {
    rlimit limit{};
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit of open files is known");
    const size_t needed = limit_for(more);
    if (needed <= limit.rlim_cur) return;
    if (needed <= limit.rlim_max) {
        limit.rlim_cur = needed;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
    }
    throw DeviceError(
        fmt::format("{} needs {} open files ({} beside those that are open), this process may have {} (hard limit {}); "
                    "raise it with `ulimit -n {}`",
                    what, needed, more, limit.rlim_cur, limit.rlim_max, needed));
}

}  // namespace lockstep
