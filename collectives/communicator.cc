#include "collectives/communicator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "collectives/gloo/gloo_engine.h"
#include "collectives/meeting.h"
#include "collectives/mpi/mpi_engine.h"
#include "collectives/native_engine.h"
#include "collectives/queued_communicator.h"
#include "collectives/world_of_one.h"
#include "core/error.h"

namespace lockstep {

bool Work::test() const { return owner_ == nullptr || owner_->test(ticket_); }

void Work::wait() const {
    if (owner_ != nullptr) owner_->wait(ticket_);
}

WorkTimes Work::times() const { return owner_ == nullptr ? WorkTimes{} : owner_->times(ticket_); }

std::pair<int64_t, int64_t> Communicator::slice(int64_t count, int rank, int size) {
    constexpr int64_t kUnit = 16;  // floats: one cache line
    const int64_t units = (count + kUnit - 1) / kUnit;
    const int64_t whole = units / size;  // units * rank could overflow
    const int64_t rest = units % size;
    const auto border = [&](int64_t of_rank) { return std::min(count, kUnit * (whole * of_rank + std::min(of_rank, rest))); };
    return {border(rank), border(rank + 1)};
}

namespace {

std::string choose_backend(const World& world, const std::string& wanted) {
    const bool one_node = world.node_count == 1 && world.local_size == world.size;
    if (wanted == "auto") return one_node ? "native" : "gloo";
    if (wanted != "native" && wanted != "gloo" && wanted != "mpi") {
        throw ConfigError(fmt::format("comm.backend `{}` is unknown; choose auto, native, gloo or mpi", wanted));
    }
    if (wanted == "native" && !one_node) {
        throw ConfigError(
            fmt::format("comm.backend=native needs all ranks on one node, this job has {} ranks on {} nodes ({} of them here); "
                        "choose auto or gloo",
                        world.size, world.node_count, world.local_size));
    }
    return wanted;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const World& world, Store& store, const CommunicatorOptions& options) {
    check(world.size >= 1 && world.rank >= 0 && world.rank < world.size, "the rank lies in its world");
    const std::string backend = choose_backend(world, options.backend);
    if (world.size == 1) return make_world_of_one(world);
    const std::string prefix = meet_all_ranks(world, store, options.connect_timeout_ms);
    std::unique_ptr<Engine> engine;
    if (backend == "native") {
        engine = std::make_unique<NativeEngine>(world, store, prefix, options);
    } else if (backend == "mpi") {
        engine = make_mpi_engine(world, options);
    } else {
        engine = make_gloo_engine(world, store, prefix, options);
    }
    return std::make_unique<QueuedCommunicator>(world, std::move(engine));
}

std::vector<std::string> gather_texts(Communicator& communicator, std::string_view mine, std::string_view what) {
    const CollectiveLabel label{.what = what};
    const auto rank_count = static_cast<size_t>(communicator.world().size);
    const uint64_t own_bytes = mine.size();
    std::vector<uint64_t> byte_counts(rank_count);
    communicator.allgather(std::as_bytes(std::span(&own_bytes, 1)), std::as_writable_bytes(std::span(byte_counts)), label);
    // Every rank sends as much as the longest text needs; the texts are short and this happens before step 0.
    const uint64_t padded_bytes = *std::max_element(byte_counts.begin(), byte_counts.end());
    std::string padded(mine);
    padded.resize(padded_bytes);
    std::string all(padded_bytes * rank_count, '\0');
    communicator.allgather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), label);
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < rank_count; ++rank) texts.push_back(all.substr(rank * padded_bytes, byte_counts[rank]));
    return texts;
}

}  // namespace lockstep
