// How the ranks of a node walk through an operation together: each announces phases in its own flag and waits for the others'
// flags. Every wait ends: by arrival, by the abort word, by a peer's death, or by `timeout_ms` without progress. Used by one
// thread, but for `abort` and `note_progress`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/node_segment.h"
#include "collectives/operation.h"
#include "collectives/peer_watch.h"
#include "core/world.h"

namespace lockstep {

class LocalGroup {
public:
    LocalGroup(NodeSegment& segment, const World& world, int64_t timeout_ms);
    ~LocalGroup();  // tells the peers that this rank has left in order

    // Shows the peers what this rank is about to do. The first announce() of the operation publishes it.
    void begin(const Operation& operation, int64_t place);
    void announce();
    // Returns when all ranks have announced as often as this one. CommError, told to all peers, when they do not.
    void wait_for_all();
    // After the first wait of an operation: all ranks run the same one, or CommError naming both sides.
    void check_agreement();
    // Sleeps, but not through an abort. For artificial delays.
    void sleep_ns(int64_t duration_ns);

    // From any thread: this rank computes and gets on, so the peers' time limits start anew.
    void note_progress() noexcept;
    void abort(std::string_view reason) noexcept;

private:
    class Patience;  // how one wait passes its time

    void check_health(int awaited_peer, int64_t waited_ns, int64_t silent_ns);
    void throw_if_aborted();
    void tell_all(std::string_view text) noexcept;
    [[noreturn]] void fail(const std::string& text);

    NodeSegment& segment_;
    const World world_;
    const int64_t timeout_ns_;
    PeerWatch watch_;
    const bool spare_cores_;  // more cores than ranks: a short spin steals nothing
    uint64_t phase_ = 0;
    OperationSignature signature_;
    CollectiveLabel label_;
};

}  // namespace lockstep
