#include "collectives/communicator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "collectives/gloo/gloo_engine.h"
#include "collectives/meeting.h"
#include "collectives/mpi/mpi_connection.h"
#include "collectives/queued_communicator.h"
#include "collectives/shared_memory/native_communicator.h"
#include "collectives/shared_memory/node_memory.h"
#include "collectives/tcp/tcp_transport.h"
#include "collectives/transport_communicator.h"
#include "collectives/world_of_one.h"
#include "core/error.h"
#include "net/secrets.h"

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

// What the backend cannot honour is an error now, not a quiet change of plan.
void refuse_transport_settings(const CommunicatorOptions& options, std::string_view backend) {
    if (options.plan.algorithm != "auto") {
        throw ConfigError(
            fmt::format("comm.algorithm={} chooses among schedules over TCP, {} has none; choose comm.backend=tcp or leave "
                        "it at auto",
                        options.plan.algorithm, backend));
    }
    if (options.wire != DataType::f32) {
        throw ConfigError(
            fmt::format("comm.wire={} is for values that travel over TCP, {} carries fp32; choose comm.backend=tcp or "
                        "comm.wire=fp32",
                        options.wire == DataType::bf16 ? "bf16" : "fp16", backend));
    }
}

std::string choose_backend(const World& world, const CommunicatorOptions& options) {
    const bool one_node = world.node_count == 1 && world.local_size == world.size;
    std::string backend = options.backend;
    if (backend == "auto") backend = "native";
    if (backend != "native" && backend != "tcp" && backend != "mpi" && backend != "gloo") {
        throw ConfigError(fmt::format("comm.backend `{}` is unknown; choose auto, native, tcp, mpi or gloo", options.backend));
    }
    if (backend == "native" && !options.shared_memory) backend = "tcp";
    check_plan_options(options.plan, world.size);
    if (world.size == 1) return backend;
    if (backend == "native" && one_node)
        refuse_transport_settings(options, "the node's shared memory, where all ranks of this job are,");
    if (backend == "gloo") refuse_transport_settings(options, "gloo");
    if ((backend == "tcp" || backend == "mpi") && options.plan.algorithm == "hierarchical") {
        throw ConfigError(
            "comm.algorithm=hierarchical needs the node's shared memory; choose comm.backend=native with comm.shared_memory=true, "
            "or "
            "another algorithm");
    }
    return backend;
}

std::unique_ptr<Communicator> make_transport_communicator(const World& world, Store& store, const std::string& prefix,
                                                          const CommunicatorOptions& options, const std::string& backend) {
    TransportCommunicator::Parts parts{.name = backend, .one_thread = backend == "mpi"};
    parts.make_transport = [&]() -> std::unique_ptr<Transport> {
        if (backend == "mpi") return make_mpi_transport(world, options);
        return make_tcp_transport(world, store, prefix,
                                  {.timeout_ms = options.timeout_ms,
                                   .connect_timeout_ms = options.connect_timeout_ms,
                                   .interface = options.interface,
                                   .congestion_control = options.congestion_control,
                                   .secret = job_secret_from_environment()});
    };
    if (backend == "native") {
        parts.make_node_memory = [&](int rail_count) {
            return std::make_unique<NodeMemory>(world, store, prefix,
                                                NodeMemory::Options{.rail_count = rail_count,
                                                                    .segment_bytes = options.segment_bytes,
                                                                    .common_bytes = options.common_bytes,
                                                                    .connect_timeout_ms = options.connect_timeout_ms});
        };
    }
    return std::make_unique<TransportCommunicator>(world, options, std::move(parts));
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const World& world, Store& store, const CommunicatorOptions& options) {
    check(world.size >= 1 && world.rank >= 0 && world.rank < world.size, "the rank lies in its world");
    const std::string backend = choose_backend(world, options);
    if (world.size == 1) return make_world_of_one(world);
    const std::string prefix = meet_all_ranks(world, store, options.connect_timeout_ms);
    const bool one_node = world.node_count == 1 && world.local_size == world.size;
    if (backend == "native" && one_node) return make_native_communicator(world, store, prefix, options);
    if (backend == "gloo") return std::make_unique<QueuedCommunicator>(world, make_gloo_engine(world, store, prefix, options));
    return make_transport_communicator(world, store, prefix, options, backend);
}

bool calls_for_stacks(std::string_view failure) {
    return failure.find("no progress for") != std::string_view::npos || failure.find("ranks disagree") != std::string_view::npos;
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
