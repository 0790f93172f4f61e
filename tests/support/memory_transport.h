// Transports between threads that play ranks: bytes travel in chunks of random size with random delays, links hold little and stop
// when their reader does not keep up, exactly like a connection whose buffers are full. For tests of what runs over a Transport.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/transport.h"
#include "core/random.h"

namespace lockstep::testing_support {

struct MemoryNetworkOptions {
    uint64_t seed = 1;
    size_t max_chunk_bytes = 1 << 12;
    size_t link_bytes = 1 << 14;        // in flight from one rank to another
    size_t unexpected_bytes = 1 << 20;  // kept per peer for receives that are not posted; beyond it a rank stops reading
    int64_t max_delay_ns = 20'000;      // of a chunk, drawn at random
    int64_t latency_ns = 0;             // of every chunk, besides
    double ns_per_byte = 0.0;           // of each rank's outgoing wire
    size_t slow_bytes = 0;              // the first of each rank take slow_ns_per_byte: a window that has yet to grow
    double slow_ns_per_byte = 0.0;
    int64_t silence_ns = 10'000'000'000;  // a wait without a byte for this long is an error
};

class MemoryNetwork {
public:
    MemoryNetwork(int rank_count, const MemoryNetworkOptions& options);
    ~MemoryNetwork();

    // Of `rank`; dies before the network. One for each rank.
    std::unique_ptr<Transport> transport(int rank);
    void kill(int rank);                   // as if its process had died
    size_t most_unexpected_bytes() const;  // that any rank has kept for one peer so far

private:
    friend class MemoryTransport;

    struct Chunk {
        uint64_t message = 0;
        uint64_t tag = 0;
        size_t total_bytes = 0;
        std::vector<std::byte> bytes;
        int64_t ready_ns = 0;
    };
    struct Link {
        std::deque<Chunk> chunks;
        size_t bytes = 0;
    };

    Link& link(int from, int to) { return links_[static_cast<size_t>(from * rank_count_ + to)]; }
    void notify(int rank) { changed_[static_cast<size_t>(rank)].notify_all(); }

    const int rank_count_;
    const MemoryNetworkOptions options_;
    mutable std::mutex mutex_;
    std::vector<std::condition_variable> changed_;  // by rank
    // Guarded by mutex_:
    std::vector<Link> links_;
    std::vector<bool> dead_;
    std::vector<uint64_t> wakes_;
    std::vector<int64_t> wire_free_ns_;
    std::vector<size_t> wire_bytes_;
    std::string abort_reason_;
    bool aborted_ = false;
    uint64_t next_message_ = 1;
    size_t most_unexpected_bytes_ = 0;
};

}  // namespace lockstep::testing_support
