// Proves a schedule without data: runs it on symbols. A buffer's element holds not a number but the sum that made it, as a tree
// over ranks, so one run shows for all inputs that
//
//   - every message has both its ends, of equal range, and every round of every rank comes to its end on a network that buffers
//     nothing (replay.h says why one order of events decides this for all);
//   - nothing is read that was not written, no receive lands on what the same round sends, sums or receives elsewhere, and lanes,
//     which run side by side, touch disjoint ranges;
//   - every output holds each rank's contribution exactly once, and all ranks hold the same tree, hence the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

enum class Fault : uint8_t {
    none,
    malformed,       // a peer, slot or range that does not exist
    hazard,          // within a round, a receive lands on a range that something else of the round uses
    lanes_overlap,   // two lanes of a rank use one range
    unmatched,       // a message without its other side
    wrong_message,   // the two sides of a message name different ranges
    deadlock,        // rounds wait for each other for ever
    undefined_data,  // something never written is sent or added
    counted_twice,   // a sum holds a rank's contribution more than once
    wrong_result,    // an output lacks a contribution, or holds another rank's data
    ranks_differ,    // all contributions are there, but added in different orders on different ranks
};
std::string_view to_string(Fault fault);

struct Verdict {
    Fault fault = Fault::none;
    std::string text;  // where and what; empty when nothing is wrong

    // Of a schedule without fault. `steps`: messages in the longest chain of messages that wait for each other, the schedule's
    // latency in units of alpha. The others are the largest over the ranks.
    int64_t steps = 0;
    int64_t messages_sent = 0;
    int64_t elements_sent = 0;
    int64_t elements_added = 0;      // additions
    bool follows_rank_tree = false;  // of all outputs
};

// programs[r] is rank r's; of `plan` only the collective and the root matter. Any programs, also broken ones. `seed` draws the
// order of events.
Verdict prove(const Plan& plan, std::span<const Program> programs, int64_t count, uint64_t seed = 0);

}  // namespace lockstep::schedule
