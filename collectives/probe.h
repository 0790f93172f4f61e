// Measures the links of a job: L, o, beta and gamma over a Transport, in less than a second.
//
//   L + 2o   half the round trip of 8 bytes            median over repeats, worst pair of a few pairings
//   beta     what a megabyte takes longer, per byte    fastest of a few after the window has grown, worst pair (less than a
//            megabyte where the link is very slow)
//   o        what seven messages at once, to as many peers as there are, take longer than one, per further message
//   gamma    adding two vectors of a megabyte in memory
#pragma once

#include <cstdint>
#include <span>

#include "collectives/schedule/link_model.h"
#include "collectives/transport.h"

namespace lockstep {

struct ProbeOptions {
    int64_t budget_ms = 700;  // for the repeats; the least of each is always done
    uint64_t tag = 0;         // of all messages; nobody else uses it meanwhile
};

struct ProbeResult {
    LinkModel link;       // of the worst pair and rank; the same on all ranks
    int worst_rank = -1;  // pair of ranks with the longest round trip
    int worst_peer = -1;
    double best_message_us = 0.0;  // half a round trip of the best pair: far below the worst, the network is uneven
    double duration_ms = 0.0;      // of this rank
};

// Collective over `ranks` (numbers as the transport knows them, the same list everywhere); `self` is this rank's index in it.
// Called by the transport's owner while nothing else is under way. At least two ranks. CommError as Transport::progress.
ProbeResult probe(Transport& transport, std::span<const int> ranks, int self, const ProbeOptions& options);

}  // namespace lockstep
