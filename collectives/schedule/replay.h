// The order in which the rounds of all ranks can happen. Checker and interpreter walk over it; the simulator uses the matching.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

constexpr uint32_t kNoPartner = std::numeric_limits<uint32_t>::max();

// Which send meets which receive. Moves are numbered through: move i of rank r is first_move[r] + i.
struct Matching {
    std::vector<uint32_t> first_move;  // by rank, and the number of all moves behind the last
    std::vector<uint32_t> partner;     // by move; kNoPartner: the other side has no such move

    uint32_t number(int rank, uint32_t move) const { return first_move[static_cast<size_t>(rank)] + move; }
};

// programs[r] is rank r's.
Matching match(std::span<const Program> programs);

// A round begins (its sends ship what the buffer holds) or is complete (all its moves are done).
struct RoundEvent {
    int32_t rank = 0;
    uint32_t lane = 0;
    uint32_t round = 0;  // index in Program::rounds
    bool completes = false;
};

// The hardest network: nothing is buffered, a send is complete only when its receive is posted, and a round begins only when the
// one before it in its lane is complete. What can begin next is drawn by `seed`. Every order gives the same set of events (a
// round's readiness is never taken away by another event), so one order decides whether a schedule can deadlock; a real network,
// which buffers, only completes more. A deadlock shows as rounds that begin and do not complete, or do not begin.
std::vector<RoundEvent> rendezvous_order(std::span<const Program> programs, const Matching& matching, uint64_t seed = 0);

}  // namespace lockstep::schedule
