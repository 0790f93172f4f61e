#include "trainer/replica_check.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/hash.h"
#include "trainer/common_failure.h"

namespace lockstep {

namespace {

std::vector<uint64_t> of_all_ranks(Communicator& communicator, const std::vector<uint64_t>& mine, int64_t step) {
    std::vector<uint64_t> all(mine.size() * static_cast<size_t>(communicator.world().size));
    communicator.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                           {.what = "hash of the replica", .step = step});
    return all;
}

uint64_t hash_of(std::span<const float> values) { return hash_bytes(values.data(), values.size_bytes()); }

// In the order of forward; the control entry is no value.
std::string first_difference(Communicator& communicator, const ParameterArena& arena, size_t odd_rank, size_t usual_rank,
                             int64_t step) {
    std::vector<uint64_t> mine;
    for (size_t entry = 0; entry < arena.entries().size(); ++entry) mine.push_back(hash_of(arena.value(entry)));
    const std::vector<uint64_t> all = of_all_ranks(communicator, mine, step);
    for (size_t entry = mine.size(); entry-- > 0;) {
        if (all[odd_rank * mine.size() + entry] != all[usual_rank * mine.size() + entry]) return arena.entries()[entry].spec.name;
    }
    return "none, only padding";
}

}  // namespace

std::vector<int> odd_ones_out(const std::vector<uint64_t>& hash_of_rank) {
    const auto times = [&](uint64_t hash) { return std::ranges::count(hash_of_rank, hash); };
    uint64_t usual = hash_of_rank.front();
    for (const uint64_t hash : hash_of_rank) {
        if (times(hash) > times(usual)) usual = hash;
    }
    std::vector<int> odd;
    for (size_t rank = 0; rank < hash_of_rank.size(); ++rank) {
        if (hash_of_rank[rank] != usual) odd.push_back(static_cast<int>(rank));
    }
    return odd;
}

void require_equal_replicas(Communicator& communicator, const ParameterArena& arena, int64_t step) {
    const std::vector<uint64_t> hashes = of_all_ranks(communicator, {hash_of(arena.values())}, step);
    const std::vector<int> odd = odd_ones_out(hashes);
    if (odd.empty()) return;
    size_t usual = 0;
    while (std::ranges::find(odd, static_cast<int>(usual)) != odd.end()) ++usual;
    const std::string tensor = first_difference(communicator, arena, static_cast<size_t>(odd.front()), usual, step);
    throw CommonFailure(
        ExitCode::kEnvironment,
        fmt::format(
            "after step {} the replicas differ: rank {} has other weights than rank {}; first tensor: {}. Look at the memory of "
            "that machine, and continue from a checkpoint from before the last check that was well",
            step, fmt::join(odd, ", "), usual, tensor));
}

}  // namespace lockstep
