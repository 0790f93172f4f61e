// Tells which peer processes of this node have ended, through pidfds: no polling of /proc, no mistake when a pid is used again, and
// a process that nobody has waited for yet counts as ended.
#pragma once

#include <poll.h>

#include <span>
#include <vector>

#include "net/socket.h"

namespace lockstep {

class PeerWatch {
public:
    // pids[rank] on this node; `first_rank` is the name of rank 0 in messages. The own process is not watched: neither `own_rank`
    // nor threads that act as ranks. A process that is gone already has ended. CommError when one cannot be watched.
    PeerWatch(std::span<const int> pids, int own_rank, int first_rank = 0);

    void refresh();  // never blocks, allocates nothing
    bool has_ended(int rank) const { return (poll_set_[static_cast<size_t>(rank)].revents & POLLIN) != 0; }  // as of `refresh`
    int pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

private:
    std::vector<int> pids_;
    std::vector<FileHandle> handles_;
    std::vector<int> gone_;         // ranks that had ended before they could be watched
    std::vector<pollfd> poll_set_;  // by rank; descriptor -1 where nothing is watched
};

}  // namespace lockstep
