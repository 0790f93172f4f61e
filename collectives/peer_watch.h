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
    // pids[rank]; `own_rank` is not watched. CommError when a process is gone already or cannot be watched.
    PeerWatch(std::span<const int> pids, int own_rank);

    void refresh();  // never blocks, allocates nothing
    bool has_ended(int rank) const { return (poll_set_[static_cast<size_t>(rank)].revents & POLLIN) != 0; }  // as of `refresh`
    int pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

private:
    std::vector<int> pids_;
    std::vector<FileHandle> handles_;
    std::vector<pollfd> poll_set_;  // by rank; descriptor -1 for the own one
};

}  // namespace lockstep
