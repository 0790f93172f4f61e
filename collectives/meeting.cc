#include "collectives/meeting.h"

#include <unistd.h>

#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/host.h"

namespace lockstep {

namespace {

std::string own_process() { return fmt::format("pid {} on {}", getpid(), host_name()); }

constexpr char kErrorMark = '!';

// Ends everybody's first meeting with the same error.
[[noreturn]] void refuse_meeting(Store& store, const std::string& text) {
    store.compare_set("communicator/1/complete", std::nullopt, kErrorMark + text);
    throw CommError(text);
}

// One process per rank, and all with the same idea of the world.
void claim_rank(const World& world, Store& store) {
    const std::string size = store.compare_set("world/size", std::nullopt, std::to_string(world.size));
    if (size != std::to_string(world.size)) {
        refuse_meeting(store,
                       fmt::format("rank {} was started in a world of {} ranks, others of this job in a world of {}; start all "
                                   "ranks with the same world size",
                                   world.rank, world.size, size));
    }
    const std::string mine = own_process();
    const std::string owner = store.compare_set(fmt::format("world/rank/{}", world.rank), std::nullopt, mine);
    if (owner != mine) {
        refuse_meeting(store,
                       fmt::format("rank {} is there twice: {} and {}; give each process its own rank", world.rank, owner, mine));
    }
}

std::string missing_ranks(const World& world, Store& store, const std::string& prefix) {
    std::vector<int> missing;
    for (int rank = 0; rank < world.size; ++rank) {
        if (!store.get(fmt::format("{}/here/{}", prefix, rank))) missing.push_back(rank);
    }
    return fmt::format("{} {}", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
}

}  // namespace

std::string meet_all_ranks(const World& world, Store& store, int64_t timeout_ms) {
    claim_rank(world, store);
    // Every rank makes its communicators in the same order, so equal counts belong together.
    const int64_t number = store.add(fmt::format("communicator/made-by/{}", world.rank), 1);
    const std::string prefix = fmt::format("communicator/{}", number);
    store.set(fmt::format("{}/here/{}", prefix, world.rank), "yes");
    if (store.add(prefix + "/count", 1) == world.size) store.set(prefix + "/complete", "yes");
    std::string verdict;
    try {
        verdict = store.wait(prefix + "/complete", timeout_ms);
    } catch (const CommError&) {
        throw CommError(
            fmt::format("{} of {} did not appear within {:.1f} s, rank {} waited; check their output and that they can reach "
                        "{}:{}",
                        missing_ranks(world, store, prefix), world.size, 1e-3 * static_cast<double>(timeout_ms), world.rank,
                        world.store_host, world.store_port));
    }
    if (verdict.starts_with(kErrorMark)) throw CommError(verdict.substr(1));
    return prefix;
}

}  // namespace lockstep
