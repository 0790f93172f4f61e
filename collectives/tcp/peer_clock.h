// When a peer counts as lost. Plain arithmetic on times of the transport's AwakeClock, so that tests need no clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::tcp {

struct PeerClock {
    int64_t waiting_since_ns = -1;  // a transfer with the peer has been posted since then; -1: none is
    int64_t fresh_ns = 0;           // when the peer, or a rank that it waits for, last got on, as far as is known here
    int64_t heard_ns = 0;           // when something last came from it
    bool peer_waits = false;        // as its last heartbeat said

    void on_bytes_moved(int64_t now) { fresh_ns = now; }
    // Heartbeats carry an age, not a time: the nodes' clocks differ.
    void on_heartbeat(int64_t now, int64_t age_ns, bool waits) {
        heard_ns = now;
        fresh_ns = std::max(fresh_ns, now - std::min(age_ns, now));
        peer_waits = waits;
    }

    int64_t silent_ns(int64_t now) const { return now - std::max(waiting_since_ns, fresh_ns); }

    // A rank that waits itself is given `grace_ns` more: it will name its own cause first. Ranks that wait in a circle report ages
    // that only grow, so they are found too.
    bool is_lost(int64_t now, int64_t timeout_ns, int64_t grace_ns) const {
        if (waiting_since_ns < 0) return false;
        const bool excused = peer_waits && now - heard_ns < timeout_ns;
        return silent_ns(now) > timeout_ns + (excused ? grace_ns : 0);
    }
};

}  // namespace lockstep::tcp
