// Discrete events over the same programs that the engine carries out. What costs what (LogGP):
//
//   - a processor (one per rank) spends o on every message it sends and o on every message it receives, and gamma per byte it adds;
//   - a message takes L; the wire of the sender and that of the receiver each carry one byte in beta, one message after another.
//   The
//     wire between nodes belongs to the node, its ranks share it; inside a node each rank has its own way through memory;
//   - a message is forwarded while it comes in, so without traffic it takes o + L + bytes beta + o;
//   - rounds follow each other as schedule.h says, lanes run side by side, a message that comes before its round waits.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/schedule/link_model.h"
#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

struct NetworkModel {
    LinkModel local;      // between ranks of a node
    LinkModel remote;     // between nodes
    int local_count = 1;  // ranks per node: rank r is on node r / local_count
};

struct SimulatedRun {
    double time_us = 0.0;  // until the last rank is done
    int64_t messages = 0;
    int64_t remote_bytes = 0;  // between nodes, all together
    bool by_events = true;     // false: too many messages for events, the time is predicted_us()
};

// programs[r] is rank r's; they have passed the checker. A pure function.
SimulatedRun simulate(std::span<const Program> programs, int64_t element_bytes, const NetworkModel& network);

// An allreduce of `bytes` (in elements of 4 bytes, rounded up) over all ranks, all in one `plan` (flat) or with the nodes' own
// stages around it (hierarchical). Above kMostMessages messages, which is a ring of more than about 1000 ranks, by formula.
inline constexpr int64_t kMostMessages = 5'000'000;
SimulatedRun simulate_flat(const Plan& plan, int rank_count, int64_t bytes, const NetworkModel& network);
SimulatedRun simulate_hierarchical(const Plan& between_nodes, int node_count, int64_t bytes, const NetworkModel& network);

}  // namespace lockstep::schedule
