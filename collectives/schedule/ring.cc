// The ring: every member talks to its two neighbours only. Slice s starts its way at member s + 1, is added to by each member it
// passes, and is complete at member s after p - 1 steps; then the complete slices go round once more. The chain is the ring cut
// open at the root.
#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

namespace {

constexpr int32_t kSumOfBoth[] = {0, kInPlace};  // what has come so far, then the own part

struct Neighbours {
    int previous = 0;
    int next = 0;
};

Neighbours neighbours_of(const Group& group) {
    const int size = group.size();
    return {.previous = group.ranks[static_cast<size_t>((group.self + size - 1) % size)],
            .next = group.ranks[static_cast<size_t>((group.self + 1) % size)]};
}

}  // namespace

void add_ring_reduce_scatter(ProgramBuilder& builder, const Group& group, const std::vector<Range>& slices) {
    const int size = group.size();
    const Neighbours peers = neighbours_of(group);
    for (int step = 0; step < size - 1; ++step) {
        const Range leaving = slices[static_cast<size_t>((group.self - step - 1 + size) % size)];
        const Range coming = slices[static_cast<size_t>((group.self - step - 2 + 2 * size) % size)];
        builder.round();
        builder.send(peers.next, leaving);
        builder.receive(peers.previous, coming, 0);
        builder.sum(coming, kSumOfBoth);
    }
}

void add_ring_allgather(ProgramBuilder& builder, const Group& group, const std::vector<Range>& slices) {
    const int size = group.size();
    const Neighbours peers = neighbours_of(group);
    for (int step = 0; step < size - 1; ++step) {
        builder.round();
        builder.send(peers.next, slices[static_cast<size_t>((group.self - step + size) % size)]);
        builder.receive(peers.previous, slices[static_cast<size_t>((group.self - step - 1 + size) % size)]);
    }
}

void add_chain_broadcast(ProgramBuilder& builder, const Group& group, Range range) {
    const Neighbours peers = neighbours_of(group);
    if (group.self > 0) {
        builder.round();
        builder.receive(peers.previous, range);
    }
    if (group.self < group.size() - 1) {
        builder.round();
        builder.send(peers.next, range);
    }
}

void add_chain_reduce(ProgramBuilder& builder, const Group& group, Range range) {
    const Neighbours peers = neighbours_of(group);
    if (group.self < group.size() - 1) {
        builder.round();
        builder.receive(peers.next, range, 0);
        builder.sum(range, kSumOfBoth);
    }
    if (group.self > 0) {
        builder.round();
        builder.send(peers.previous, range);
    }
}

}  // namespace lockstep::schedule
