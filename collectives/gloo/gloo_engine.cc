#include "collectives/gloo/gloo_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/gloo/gloo_device.h"
#include "collectives/gloo/gloo_links.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/operation.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kHeaderSlot = 2;
constexpr uint64_t kContributionSlot = 3;
constexpr uint64_t kResultSlot = 4;
constexpr size_t kChunkBytes = size_t{256} << 10;  // of a slice that travel at a time
constexpr size_t kInlineBytes = 4096;              // small data travels with the header: one message each way

// Opens every operation. Nothing else is sent before all headers agree, so a message never meets a receive of another size.
struct Header {
    OperationSignature signature;
    std::byte data[kInlineBytes] = {};
};

struct Range {  // bytes
    size_t first = 0;
    size_t last = 0;
    size_t bytes() const { return last - first; }
};

// Part `chunk` of a slice; empty beyond its end.
Range part_of(const Range& slice, size_t chunk) {
    return {std::min(slice.last, slice.first + chunk * kChunkBytes), std::min(slice.last, slice.first + (chunk + 1) * kChunkBytes)};
}

// allreduce: everybody sends each peer that peer's slice, sums its own slice along the tree of ranks, and sends the sum to
// everybody. Moves 2 (p-1)/p of the data, as a ring does, in two steps instead of 2 (p-1). Chunk by chunk, one ahead.
class GlooEngine final : public Engine {
public:
    GlooEngine(const World& world, Store& store, const std::string& prefix, const CommunicatorOptions& options)
        : world_(world),
          delay_ns_per_kib_(options.test_delay_ns_per_kib),
          headers_in_(static_cast<size_t>(world.size)),
          contributions_(2 * static_cast<size_t>(world.size) * kChunkBytes),
          inputs_(static_cast<size_t>(world.size)),
          slices_(static_cast<size_t>(world.size)),
          header_posted_(static_cast<size_t>(world.size), false),
          links_(world, connect_mesh(world, store, prefix, options), options.timeout_ms) {
        header_out_buffer_ = links_.make_buffer(&header_out_, sizeof(Header));
        for (int rank = 0; rank < world_.size; ++rank) {
            header_in_buffers_.push_back(links_.make_buffer(&headers_in_[static_cast<size_t>(rank)], sizeof(Header)));
            for (const size_t half : {0, 1}) {
                contribution_buffers_[half].push_back(links_.make_buffer(contribution(rank, half), kChunkBytes));
            }
        }
        post_header_receives();
    }

    std::string_view name() const override { return "gloo"; }
    MemoryPool& gradient_pool() override { return pool_; }
    void abort(std::string_view reason) noexcept override { links_.abort(reason); }

    void run(const Operation& operation, WorkTimes& times) override {
        links_.begin(operation.label);
        exchange_headers(operation, times);
        if (operation.byte_count > 0) transfer(operation);
        for_each_peer([&](int peer) { links_.wait_sent(*header_out_buffer_, peer); });
        post_header_receives();
    }

private:
    static bool is_small(const Operation& operation) { return operation.byte_count <= kInlineBytes; }

    template <typename Action>
    void for_each_peer(Action action) const {
        for (int peer = 0; peer < world_.size; ++peer) {
            if (peer != world_.rank) action(peer);
        }
    }
    std::byte* contribution(int rank, size_t half) {
        return contributions_.data() + (half * static_cast<size_t>(world_.size) + static_cast<size_t>(rank)) * kChunkBytes;
    }
    const Range& own_slice() const { return slices_[static_cast<size_t>(world_.rank)]; }

    // Ahead of the next operation, so that its headers need no handshake. A peer that has left after the last operation is met, and
    // named, only when there is a next one.
    void post_header_receives() {
        for_each_peer([&](int peer) {
            const auto index = static_cast<size_t>(peer);
            header_posted_[index] = links_.try_receive(*header_in_buffers_[index], peer, kHeaderSlot, 0, sizeof(Header));
        });
    }
    void receive_header(int peer) {
        const auto index = static_cast<size_t>(peer);
        GlooBuffer& buffer = *header_in_buffers_[index];
        if (!header_posted_[index]) links_.receive(buffer, peer, kHeaderSlot, 0, sizeof(Header));
        header_posted_[index] = false;
        links_.wait_received(buffer, peer);
    }

    const void* own_data(const Operation& operation) const {
        return operation.kind == OperationKind::allgather ? operation.source : operation.target;
    }

    void exchange_headers(const Operation& operation, WorkTimes& times) {
        header_out_.signature = OperationSignature::of(operation, -1);
        size_t bytes = offsetof(Header, data);
        const bool has_data = operation.kind != OperationKind::broadcast || operation.root == world_.rank;
        if (is_small(operation) && has_data && operation.byte_count > 0) {
            std::memcpy(header_out_.data, own_data(operation), operation.byte_count);
            bytes += operation.byte_count;
        }
        for_each_peer([&](int peer) { links_.send(*header_out_buffer_, peer, kHeaderSlot, 0, bytes); });
        for_each_peer([&](int peer) { receive_header(peer); });
        times.arrived_ns = now_ns();
        for_each_peer([&](int peer) {
            const OperationSignature& theirs = headers_in_[static_cast<size_t>(peer)].signature;
            if (theirs.plan_hash == header_out_.signature.plan_hash) return;
            links_.fail(mismatch_text(world_.rank, header_out_.signature, peer, theirs));
        });
        if (delay_ns_per_kib_ > 0) links_.sleep_ns(static_cast<int64_t>(operation.byte_count) * delay_ns_per_kib_ / 1024);
    }

    void transfer(const Operation& operation) {
        switch (operation.kind) {
            case OperationKind::allreduce:
            case OperationKind::reduce_scatter:
                return is_small(operation) ? sum_small(operation) : sum_large(operation);
            case OperationKind::allgather:
                return is_small(operation) ? allgather_small(operation) : allgather_large(operation);
            case OperationKind::broadcast:
                return broadcast(operation);
            case OperationKind::barrier:
            case OperationKind::allgather_slices:  // only inside a node
                return;
        }
    }

    void sum_small(const Operation& operation) {
        for (int rank = 0; rank < world_.size; ++rank) {
            const auto index = static_cast<size_t>(rank);
            inputs_[index] = rank == world_.rank ? operation.target : headers_in_[index].data;
        }
        sum_inputs(operation, operation.target, operation.byte_count);
    }

    void sum_inputs(const Operation& operation, std::byte* output, size_t bytes) {
        void* const outputs[] = {output};
        reduce_kernels::sum(operation.type, outputs, inputs_, bytes / bytes_per_element(operation.type));
    }

    // Buffers over one slice of the caller's data, by rank: what goes to that peer and what comes back from it.
    struct SliceBuffers {
        std::vector<std::unique_ptr<GlooBuffer>> of_peer;  // over the peer's slice
        std::vector<std::unique_ptr<GlooBuffer>> of_own;   // over the own slice, one for each peer it is sent to
    };

    void sum_large(const Operation& operation) {
        const auto count = static_cast<int64_t>(operation.element_count());
        const size_t element_bytes = bytes_per_element(operation.type);
        SliceBuffers buffers;
        for (int rank = 0; rank < world_.size; ++rank) {
            const auto [first, last] = Communicator::slice(count, rank, world_.size);
            slices_[static_cast<size_t>(rank)] = {static_cast<size_t>(first) * element_bytes,
                                                  static_cast<size_t>(last) * element_bytes};
        }
        for (const Range& slice : slices_) {
            buffers.of_peer.push_back(links_.make_buffer(operation.target + slice.first, slice.bytes()));
            buffers.of_own.push_back(links_.make_buffer(operation.target + own_slice().first, own_slice().bytes()));
        }
        const bool all_need_sums = operation.kind == OperationKind::allreduce;
        const size_t chunk_count = (slices_[0].bytes() + kChunkBytes - 1) / kChunkBytes;  // slice 0 is never the smaller one
        post_contributions(buffers, 0);
        for (size_t chunk = 0; chunk < chunk_count; ++chunk) {
            if (chunk + 1 < chunk_count) post_contributions(buffers, chunk + 1);
            sum_own_part(operation, chunk);
            if (all_need_sums) exchange_results(buffers, chunk);
        }
        for (size_t chunk = 0; chunk < chunk_count; ++chunk) finish_chunk(buffers, chunk, all_need_sums);
    }

    void post_contributions(SliceBuffers& buffers, size_t chunk) {
        const size_t own_bytes = part_of(own_slice(), chunk).bytes();
        for_each_peer([&](int peer) {
            const auto index = static_cast<size_t>(peer);
            if (own_bytes > 0) links_.receive(*contribution_buffers_[chunk % 2][index], peer, kContributionSlot, 0, own_bytes);
            const Range part = part_of(slices_[index], chunk);
            if (part.bytes() == 0) return;
            links_.send(*buffers.of_peer[index], peer, kContributionSlot, part.first - slices_[index].first, part.bytes());
        });
    }

    void sum_own_part(const Operation& operation, size_t chunk) {
        const Range part = part_of(own_slice(), chunk);
        if (part.bytes() == 0) return;
        for_each_peer([&](int peer) { links_.wait_received(*contribution_buffers_[chunk % 2][static_cast<size_t>(peer)], peer); });
        for (int rank = 0; rank < world_.size; ++rank) {
            inputs_[static_cast<size_t>(rank)] =
                rank == world_.rank ? operation.target + part.first : contribution(rank, chunk % 2);
        }
        sum_inputs(operation, operation.target + part.first, part.bytes());
    }

    // The result for a peer's slice may overwrite what was sent to it: it can only come after the peer has received that.
    void exchange_results(SliceBuffers& buffers, size_t chunk) {
        const Range own_part = part_of(own_slice(), chunk);
        for_each_peer([&](int peer) {
            const auto index = static_cast<size_t>(peer);
            const Range part = part_of(slices_[index], chunk);
            if (part.bytes() > 0) {
                links_.receive(*buffers.of_peer[index], peer, kResultSlot, part.first - slices_[index].first, part.bytes());
            }
            if (own_part.bytes() > 0) {
                links_.send(*buffers.of_own[index], peer, kResultSlot, own_part.first - own_slice().first, own_part.bytes());
            }
        });
    }

    // One wait for each post of the chunk that has not been waited for yet.
    void finish_chunk(SliceBuffers& buffers, size_t chunk, bool results_too) {
        const bool own_part_sent = results_too && part_of(own_slice(), chunk).bytes() > 0;
        for_each_peer([&](int peer) {
            const auto index = static_cast<size_t>(peer);
            if (part_of(slices_[index], chunk).bytes() > 0) {
                links_.wait_sent(*buffers.of_peer[index], peer);
                if (results_too) links_.wait_received(*buffers.of_peer[index], peer);
            }
            if (own_part_sent) links_.wait_sent(*buffers.of_own[index], peer);
        });
    }

    std::byte* gathered(const Operation& operation, int rank) const {
        return operation.target + static_cast<size_t>(rank) * operation.byte_count;
    }

    void allgather_small(const Operation& operation) {
        for_each_peer([&](int peer) {
            std::memcpy(gathered(operation, peer), headers_in_[static_cast<size_t>(peer)].data, operation.byte_count);
        });
        std::memcpy(gathered(operation, world_.rank), operation.source, operation.byte_count);
    }

    void allgather_large(const Operation& operation) {
        std::memcpy(gathered(operation, world_.rank), operation.source, operation.byte_count);
        std::vector<std::unique_ptr<GlooBuffer>> out;
        std::vector<std::unique_ptr<GlooBuffer>> in;
        for (int rank = 0; rank < world_.size; ++rank) {
            out.push_back(links_.make_buffer(gathered(operation, world_.rank), operation.byte_count));
            in.push_back(links_.make_buffer(gathered(operation, rank), operation.byte_count));
        }
        for (size_t start = 0; start < operation.byte_count; start += kChunkBytes) {
            const size_t bytes = std::min(kChunkBytes, operation.byte_count - start);
            for_each_peer([&](int peer) { links_.receive(*in[static_cast<size_t>(peer)], peer, kResultSlot, start, bytes); });
            for_each_peer([&](int peer) { links_.send(*out[static_cast<size_t>(peer)], peer, kResultSlot, start, bytes); });
            for_each_peer([&](int peer) { links_.wait_received(*in[static_cast<size_t>(peer)], peer); });
            for_each_peer([&](int peer) { links_.wait_sent(*out[static_cast<size_t>(peer)], peer); });
        }
    }

    void broadcast(const Operation& operation) {
        const bool is_root = operation.root == world_.rank;
        if (is_small(operation)) {
            const Header& root_header = headers_in_[static_cast<size_t>(operation.root)];
            if (!is_root) std::memcpy(operation.target, root_header.data, operation.byte_count);
            return;
        }
        const auto buffer = links_.make_buffer(operation.target, operation.byte_count);
        for (size_t start = 0; start < operation.byte_count; start += kChunkBytes) {
            const size_t bytes = std::min(kChunkBytes, operation.byte_count - start);
            if (is_root) {
                for_each_peer([&](int peer) { links_.send(*buffer, peer, kResultSlot, start, bytes); });
                for_each_peer([&](int peer) { links_.wait_sent(*buffer, peer); });
            } else {
                links_.receive(*buffer, operation.root, kResultSlot, start, bytes);
                links_.wait_received(*buffer, operation.root);
            }
        }
    }

    const World world_;
    const int64_t delay_ns_per_kib_;
    HeapPool pool_;
    Header header_out_;
    std::vector<Header> headers_in_;        // by rank
    std::vector<std::byte> contributions_;  // two halves, in each one chunk by rank
    std::vector<const void*> inputs_;       // by rank; scratch
    std::vector<Range> slices_;             // by rank; of the running operation
    std::vector<char> header_posted_;       // by rank
    GlooLinks links_;                       // before the buffers that use it, after the memory they point to
    std::unique_ptr<GlooBuffer> header_out_buffer_;
    std::vector<std::unique_ptr<GlooBuffer>> header_in_buffers_;
    std::vector<std::unique_ptr<GlooBuffer>> contribution_buffers_[2];
};

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const World& world, Store& store, const std::string& prefix,
                                         const CommunicatorOptions& options) {
    return std::make_unique<GlooEngine>(world, store, prefix, options);
}

}  // namespace lockstep
