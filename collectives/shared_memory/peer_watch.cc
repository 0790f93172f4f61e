#include "collectives/shared_memory/peer_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

PeerWatch::PeerWatch(std::span<const int> pids, int own_rank, int first_rank) : pids_(pids.begin(), pids.end()) {
    for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) {
        if (pid(rank) == pid(own_rank)) {
            poll_set_.push_back({-1, 0, 0});
            continue;
        }
        FileHandle handle(static_cast<int>(syscall(SYS_pidfd_open, pid(rank), 0)));
        if (!handle.is_open() && errno == ESRCH) {
            poll_set_.push_back({-1, 0, 0});
            gone_.push_back(rank);
            continue;
        }
        if (!handle.is_open()) {
            throw CommError(
                fmt::format("rank {} cannot watch rank {} (pid {}): {}; is it on this node and alive? else use "
                            "comm.backend=gloo",
                            first_rank + own_rank, first_rank + rank, pid(rank), std::strerror(errno)));
        }
        poll_set_.push_back({handle.get(), POLLIN, 0});
        handles_.push_back(std::move(handle));
    }
}

void PeerWatch::refresh() {
    // Interrupted by a signal: what was known stays, the next look comes soon.
    [[maybe_unused]] const int ended_count = poll(poll_set_.data(), poll_set_.size(), 0);
    for (const int rank : gone_) poll_set_[static_cast<size_t>(rank)].revents = POLLIN;
}

}  // namespace lockstep
