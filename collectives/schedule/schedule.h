// One collective as data. The engine carries it out over a Transport, the simulator counts its time and the checker proves it: all
// three read the same object.
//
// Every rank owns one buffer of `count` elements and some scratch slots of the same size. A rank's program is a set of lanes that
// run side by side (the chunks of a pipeline, the two trees of a double tree); they touch disjoint ranges of the buffer. A lane is
// a list of rounds, one behind the other. The moves of one round are concurrent:
//
//   1. every send ships its range of the buffer as it was before the round;
//   2. every receive lands in the buffer itself (slot kInPlace; then its range is disjoint from everything else in the round) or
//      in a scratch slot at the same range;
//   3. when `operands` is not empty, the buffer's `sum_range` becomes the sum of the operands (kInPlace: the buffer's own content,
//      s >= 0: scratch slot s), added along one binary tree over the order in which they stand: the left subtree takes the largest
//      power of two below their number. So the result has the same bits on every rank that sums equal operands in equal order.
//
// A message is matched by (sender, receiver, lane): in a lane, the n-th send of one rank to another meets the n-th receive there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedule {

struct Range {  // elements, [first, last)
    int64_t first = 0;
    int64_t last = 0;
    int64_t size() const { return last - first; }
};

constexpr int32_t kInPlace = -1;

enum class MoveKind : uint8_t { send, receive };

struct Move {
    MoveKind kind = MoveKind::send;
    int32_t peer = 0;
    int32_t slot = kInPlace;  // receives only
    Range range;              // never empty
};

// Views into the program's flat lists: a program of a million moves is three allocations.
struct Round {
    uint32_t first_move = 0;
    uint32_t move_count = 0;
    uint32_t first_operand = 0;
    uint32_t operand_count = 0;
    Range sum_range;
};

struct Lane {
    uint32_t first_round = 0;
    uint32_t round_count = 0;
};

// What one rank does.
struct Program {
    std::vector<Lane> lanes;
    std::vector<Round> rounds;
    std::vector<Move> moves;
    std::vector<int32_t> operands;
    int32_t slot_count = 0;

    std::span<const Round> rounds_of(const Lane& lane) const {
        return std::span(rounds).subspan(lane.first_round, lane.round_count);
    }
    std::span<const Move> moves_of(const Round& round) const {
        return std::span(moves).subspan(round.first_move, round.move_count);
    }
    std::span<const int32_t> operands_of(const Round& round) const {
        return std::span(operands).subspan(round.first_operand, round.operand_count);
    }
};

enum class Collective : uint8_t { allreduce, reduce_scatter, allgather, broadcast, reduce };

// The names of comm.algorithm. hierarchical is not among them: it is a local stage around one of these between nodes.
enum class Algorithm : uint8_t { exchange, halving_doubling, ring, tree, double_tree };

// Which pairs exist: exchange, halving_doubling and ring for allreduce, reduce_scatter and allgather; exchange, ring, tree and
// double_tree for broadcast and reduce (exchange(k) is then the k-nomial tree, ring the chain); all five for allreduce. In
// reduce_scatter and allgather exchange(k) and halving_doubling(k) are the same thing.
bool exists(Collective collective, Algorithm algorithm);

// What to build, without data: equal on all ranks, comparable, small.
struct Plan {
    Collective collective = Collective::allreduce;
    Algorithm algorithm = Algorithm::exchange;
    int32_t radix = 2;   // exchange and halving_doubling: k; a k >= the number of ranks is one shot
    int32_t chunks = 1;  // ring, tree and double_tree: pieces in the pipeline
    int32_t root = 0;    // broadcast and reduce
    bool operator==(const Plan&) const = default;
};

std::string_view to_string(Collective collective);
std::string_view to_string(Algorithm algorithm);
std::string describe(
    const Plan& plan);  // "halving_doubling(4)", "ring(8 chunks)"; other collectives come first: "allgather by ..."

// How many of `operand_count` >= 2 operands the left subtree of a sum takes: the largest power of two below.
int left_operands(int operand_count);

// Whether every sum of the plan is the one binary tree over the ranks in their order that a sum of all ranks' operands would be,
// ((0+1)+(2+3))+..., so that the result has the same bits for every plan of which this is true. True for all plans of two ranks and
// where nothing is added; never for a ring or double tree of more. Where ranks are folded in (shape.h) it may be false for a plan
// that meets the tree nevertheless.
bool follows_rank_tree(const Plan& plan, int rank_count);

// The program of `rank` among `rank_count`; a pure function. Any rank_count >= 1, any count >= 0. Ranges of reduce_scatter and
// allgather are Communicator::slice's. Every rank's program has the same number of lanes. Throws ConfigError for a plan that does
// not exist (see exists(); radix < 2, chunks < 1, root outside).
Program build(const Plan& plan, int rank, int rank_count, int64_t count);
std::vector<Program> build_all(const Plan& plan, int rank_count, int64_t count);  // by rank

// An allreduce over `node_count` nodes of `local_count` ranks each, rank = node * local_count + local rank: the ranks of a node
// reduce-scatter among themselves, ranks of equal local rank (a rail) carry out `between_nodes` on their slice, the ranks of a node
// gather the slices. Each node then sends 2 (N - 1) / N of the data instead of the 2 (p - 1) / p of each of its ranks. The engine
// does the two local stages in shared memory; this program is for the checker and the simulator, and for transports that have none.
Program build_hierarchical(const Plan& between_nodes, int rank, int node_count, int local_count, int64_t count);

}  // namespace lockstep::schedule
