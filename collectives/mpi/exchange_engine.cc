#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/mpi/mpi_engine.h"
#include "collectives/operation.h"
#include "collectives/reduce_kernels.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kHeaderTag = 1;
constexpr uint64_t kContributionTag = 2;
constexpr uint64_t kResultTag = 3;
constexpr size_t kChunkCount = size_t{256} << 10;  // floats of a slice that travel at a time
constexpr size_t kInlineBytes = 3072;              // small data travel with the header: one message each way
constexpr int64_t kPatience_ns = 50'000'000;       // between two looks at the clock

// Opens every operation. Nothing else is sent before all headers agree, so a message never meets a receive of another size.
struct Header {
    OperationSignature signature;
    std::byte data[kInlineBytes] = {};
};

struct Range {  // floats
    size_t first = 0;
    size_t last = 0;
    size_t count() const { return last - first; }
    size_t bytes() const { return count() * sizeof(float); }
};

// Part `chunk` of a slice; empty beyond its end.
Range part_of(const Range& slice, size_t chunk) {
    return {std::min(slice.last, slice.first + chunk * kChunkCount), std::min(slice.last, slice.first + (chunk + 1) * kChunkCount)};
}

class ExchangeEngine final : public Engine {
public:
    ExchangeEngine(const World& world, std::unique_ptr<Transport> transport, const CommunicatorOptions& options)
        : world_(world),
          delay_ns_per_kib_(options.test_delay_ns_per_kib),
          headers_in_(static_cast<size_t>(world.size)),
          contributions_(static_cast<size_t>(world.size) * kChunkCount),
          inputs_(static_cast<size_t>(world.size)),
          slices_(static_cast<size_t>(world.size)),
          transport_(std::move(transport)) {
        transfers_.reserve(4 * static_cast<size_t>(world.size));
    }

    std::string_view name() const override { return transport_->name(); }
    MemoryPool& gradient_pool() override { return pool_; }
    void note_progress() noexcept override { transport_->note_progress(); }

    void abort(std::string_view reason) noexcept override {
        try {
            transport_->abort(fmt::format("rank {} gave up: {}", world_.rank, reason));
        } catch (...) {
            transport_->abort(reason);
        }
    }

    void run(const Operation& operation, WorkTimes& times) override {
        const int64_t start_ns = now_ns();
        try {
            exchange_headers(operation, times);
            if (operation.byte_count > 0) transfer(operation);
        } catch (const MismatchError& error) {
            transport_->abort(error.text);
            throw CommError(error.text);
        } catch (const CommError& error) {
            transport_->abort(error.what());
            throw CommError(failure_text(error.what(), world_.rank, operation.label, now_ns() - start_ns));
        }
    }

private:
    struct MismatchError {
        std::string text;
    };

    static bool sums(const Operation& operation) {
        return operation.kind == OperationKind::allreduce || operation.kind == OperationKind::reduce_scatter;
    }
    static bool is_small(const Operation& operation) { return operation.byte_count <= kInlineBytes; }

    template <typename Action>
    void for_each_peer(Action action) const {
        for (int peer = 0; peer < world_.size; ++peer) {
            if (peer != world_.rank) action(peer);
        }
    }
    float* contribution(int rank) { return contributions_.data() + static_cast<size_t>(rank) * kChunkCount; }
    const Range& own_slice() const { return slices_[static_cast<size_t>(world_.rank)]; }

    // Transfers of one step, which finish() waits for.
    void send(int peer, uint64_t tag, const void* data, size_t bytes) {
        if (bytes == 0) return;
        auto* const source = static_cast<std::byte*>(const_cast<void*>(data));  // a transfer serves both directions
        transport_->post_send(transfers_.emplace_back(Transfer{.peer = peer, .tag = tag, .data = source, .bytes = bytes}));
    }
    void receive(int peer, uint64_t tag, void* data, size_t bytes) {
        if (bytes == 0) return;
        transport_->post_receive(
            transfers_.emplace_back(Transfer{.peer = peer, .tag = tag, .data = static_cast<std::byte*>(data), .bytes = bytes}));
    }
    void finish() {
        while (!std::ranges::all_of(transfers_, &Transfer::complete)) transport_->progress(kPatience_ns);
        transfers_.clear();
    }

    const void* own_data(const Operation& operation) const {
        if (sums(operation)) return operation.floats;
        return operation.kind == OperationKind::broadcast ? operation.target : operation.source;
    }

    void exchange_headers(const Operation& operation, WorkTimes& times) {
        header_out_.signature = OperationSignature::of(operation, -1);
        if (is_small(operation) && operation.byte_count > 0)
            std::memcpy(header_out_.data, own_data(operation), operation.byte_count);
        // Whole headers: ranks that disagree must be able to read each other's.
        for_each_peer([&](int peer) { receive(peer, kHeaderTag, &headers_in_[static_cast<size_t>(peer)], sizeof(Header)); });
        for_each_peer([&](int peer) { send(peer, kHeaderTag, &header_out_, sizeof(Header)); });
        finish();
        times.arrived_ns = now_ns();
        for_each_peer([&](int peer) {
            const OperationSignature& theirs = headers_in_[static_cast<size_t>(peer)].signature;
            if (theirs.plan_hash == header_out_.signature.plan_hash) return;
            throw MismatchError{mismatch_text(world_.rank, header_out_.signature, peer, theirs)};
        });
        const int64_t end_ns = now_ns() + static_cast<int64_t>(operation.byte_count) * delay_ns_per_kib_ / 1024;
        for (int64_t left_ns = end_ns - now_ns(); left_ns > 0; left_ns = end_ns - now_ns()) transport_->progress(left_ns);
    }

    void transfer(const Operation& operation) {
        switch (operation.kind) {
            case OperationKind::allreduce:
            case OperationKind::reduce_scatter:
                return is_small(operation) ? sum_small(operation) : sum_large(operation);
            case OperationKind::allgather:
                return allgather(operation);
            case OperationKind::broadcast:
                return broadcast(operation);
            case OperationKind::barrier:
                return;
        }
    }

    void sum_small(const Operation& operation) {
        for (int rank = 0; rank < world_.size; ++rank) {
            const auto index = static_cast<size_t>(rank);
            inputs_[index] = rank == world_.rank ? operation.floats : reinterpret_cast<const float*>(headers_in_[index].data);
        }
        reduce_kernels::sum(operation.floats, inputs_.data(), world_.size, operation.byte_count / sizeof(float));
    }

    void sum_large(const Operation& operation) {
        const auto count = static_cast<int64_t>(operation.byte_count / sizeof(float));
        for (int rank = 0; rank < world_.size; ++rank) {
            const auto [first, last] = Communicator::slice(count, rank, world_.size);
            slices_[static_cast<size_t>(rank)] = {static_cast<size_t>(first), static_cast<size_t>(last)};
        }
        const size_t chunk_count = (slices_[0].count() + kChunkCount - 1) / kChunkCount;  // slice 0 is never the smaller one
        for (size_t chunk = 0; chunk < chunk_count; ++chunk) {
            sum_own_part(operation.floats, chunk);
            if (operation.kind == OperationKind::allreduce) exchange_results(operation.floats, chunk);
        }
    }

    void sum_own_part(float* data, size_t chunk) {
        const Range own_part = part_of(own_slice(), chunk);
        for_each_peer([&](int peer) { receive(peer, kContributionTag, contribution(peer), own_part.bytes()); });
        for_each_peer([&](int peer) {
            const Range part = part_of(slices_[static_cast<size_t>(peer)], chunk);
            send(peer, kContributionTag, data + part.first, part.bytes());
        });
        finish();
        for (int rank = 0; rank < world_.size; ++rank) {
            inputs_[static_cast<size_t>(rank)] = rank == world_.rank ? data + own_part.first : contribution(rank);
        }
        reduce_kernels::sum(data + own_part.first, inputs_.data(), world_.size, own_part.count());
    }

    void exchange_results(float* data, size_t chunk) {
        const Range own_part = part_of(own_slice(), chunk);
        for_each_peer([&](int peer) {
            const Range part = part_of(slices_[static_cast<size_t>(peer)], chunk);
            receive(peer, kResultTag, data + part.first, part.bytes());
        });
        for_each_peer([&](int peer) { send(peer, kResultTag, data + own_part.first, own_part.bytes()); });
        finish();
    }

    std::byte* gathered(const Operation& operation, int rank) const {
        return operation.target + static_cast<size_t>(rank) * operation.byte_count;
    }

    void allgather(const Operation& operation) {
        std::memcpy(gathered(operation, world_.rank), operation.source, operation.byte_count);
        for_each_peer([&](int peer) {
            if (is_small(operation)) {
                std::memcpy(gathered(operation, peer), headers_in_[static_cast<size_t>(peer)].data, operation.byte_count);
            } else {
                receive(peer, kResultTag, gathered(operation, peer), operation.byte_count);
                send(peer, kResultTag, operation.source, operation.byte_count);
            }
        });
        finish();
    }

    void broadcast(const Operation& operation) {
        const bool is_root = operation.root == world_.rank;
        if (is_small(operation)) {
            const Header& root_header = headers_in_[static_cast<size_t>(operation.root)];
            if (!is_root) std::memcpy(operation.target, root_header.data, operation.byte_count);
            return;
        }
        if (is_root) {
            for_each_peer([&](int peer) { send(peer, kResultTag, operation.target, operation.byte_count); });
        } else {
            receive(operation.root, kResultTag, operation.target, operation.byte_count);
        }
        finish();
    }

    const World world_;
    const int64_t delay_ns_per_kib_;
    HeapPool pool_;
    Header header_out_;
    std::vector<Header> headers_in_;        // by rank
    std::vector<float> contributions_;      // one chunk by rank
    std::vector<const float*> inputs_;      // by rank; scratch
    std::vector<Range> slices_;             // by rank; of the running operation
    std::vector<Transfer> transfers_;       // of the running step; never grows, so that they stay where they are
    std::unique_ptr<Transport> transport_;  // behind the memory it may still hold
};

}  // namespace

std::unique_ptr<Engine> make_exchange_engine(const World& world, std::unique_ptr<Transport> transport,
                                             const CommunicatorOptions& options) {
    return std::make_unique<ExchangeEngine>(world, std::move(transport), options);
}

}  // namespace lockstep
