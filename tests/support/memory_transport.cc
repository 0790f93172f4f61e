#include "tests/support/memory_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep::testing_support {

class MemoryTransport final : public Transport {
public:
    MemoryTransport(MemoryNetwork& network, int rank)
        : network_(network), rank_(rank), random_(network.options_.seed, "memory-transport", static_cast<uint64_t>(rank)) {
        peers_.resize(static_cast<size_t>(network.rank_count_));
    }

    std::string_view name() const override { return "memory"; }

    void post_send(Transfer& transfer) override {
        const std::lock_guard lock(network_.mutex_);
        check(transfer.bytes > 0 && transfer.moved == 0 && transfer.peer != rank_, "a send has bytes and a peer");
        sends_.push_back({&transfer, network_.next_message_++});
    }

    void post_receive(Transfer& transfer) override {
        const std::lock_guard lock(network_.mutex_);
        check(transfer.bytes > 0 && transfer.moved == 0 && transfer.peer != rank_, "a receive has bytes and a peer");
        Peer& peer = peer_of(transfer.peer);
        ++posted_;
        auto& kept = peer.unexpected[transfer.tag];
        if (kept.empty()) {
            peer.posted[transfer.tag].push_back(&transfer);
            return;
        }
        Unexpected message = std::move(kept.front());
        kept.pop_front();
        check_length(transfer, message.total_bytes);
        std::memcpy(transfer.data, message.bytes.data(), message.bytes.size());
        peer.unexpected_bytes -= message.bytes.size();
        move_receive(transfer, message.bytes.size());
        if (!transfer.complete()) peer.arriving[message.id] = &transfer;
    }

    bool progress(int64_t patience_ns) override {
        std::unique_lock lock(network_.mutex_);
        const int64_t start_ns = now_ns();
        while (true) {
            throw_if_failed();
            const bool moved = send_some() | receive_some();
            if (moved) last_moved_ns_ = now_ns();
            const int64_t waited_ns = now_ns() - start_ns;
            const bool woken = std::exchange(seen_wakes_, network_.wakes_[static_cast<size_t>(rank_)]) !=
                               network_.wakes_[static_cast<size_t>(rank_)];
            if (moved || woken || waited_ns >= patience_ns) return moved;
            throw_if_silent();
            const int64_t step_ns = std::min(patience_ns - waited_ns, until_next_chunk_ns());
            network_.changed_[static_cast<size_t>(rank_)].wait_for(lock, std::chrono::nanoseconds(step_ns));
        }
    }

    void note_progress() noexcept override {}
    void wake() noexcept override {
        const std::lock_guard lock(network_.mutex_);
        ++network_.wakes_[static_cast<size_t>(rank_)];
        network_.notify(rank_);
    }
    void abort(std::string_view reason) noexcept override {
        const std::lock_guard lock(network_.mutex_);
        if (!network_.aborted_) network_.abort_reason_ = fmt::format("rank {} gave up: {}", rank_, reason);
        network_.aborted_ = true;
        for (int rank = 0; rank < network_.rank_count_; ++rank) network_.notify(rank);
    }

private:
    struct Unexpected {
        uint64_t id = 0;
        size_t total_bytes = 0;
        std::vector<std::byte> bytes;
    };
    struct Peer {
        std::map<uint64_t, std::deque<Transfer*>> posted;       // by tag
        std::map<uint64_t, std::deque<Unexpected>> unexpected;  // by tag
        std::map<uint64_t, Transfer*> arriving;                 // by message
        size_t unexpected_bytes = 0;
    };
    struct Send {
        Transfer* transfer;
        uint64_t message;
    };

    Peer& peer_of(int rank) { return peers_[static_cast<size_t>(rank)]; }

    void check_length(const Transfer& transfer, size_t total_bytes) const {
        if (transfer.bytes == total_bytes) return;
        throw CommError(fmt::format("rank {} expects {} bytes from rank {}, which sends {}", rank_, transfer.bytes, transfer.peer,
                                    total_bytes));
    }

    void move_receive(Transfer& transfer, size_t bytes) {
        transfer.moved += bytes;
        if (transfer.complete()) --posted_;
    }

    // The most urgent first, but the messages of one tag one behind the other.
    bool send_some() {
        std::vector<Send*> order;
        std::vector<std::pair<int, uint64_t>> busy_tags;
        for (Send& send : sends_) {
            const std::pair<int, uint64_t> tag(send.transfer->peer, send.transfer->tag);
            if (std::find(busy_tags.begin(), busy_tags.end(), tag) != busy_tags.end()) continue;
            busy_tags.push_back(tag);
            order.push_back(&send);
        }
        std::stable_sort(order.begin(), order.end(),
                         [](const Send* left, const Send* right) { return left->transfer->urgency > right->transfer->urgency; });
        bool moved = false;
        for (Send* send : order) moved = send_chunk(*send) || moved;
        std::erase_if(sends_, [](const Send& send) { return send.transfer->complete(); });
        return moved;
    }

    bool send_chunk(Send& send) {
        Transfer& transfer = *send.transfer;
        MemoryNetwork::Link& link = network_.link(rank_, transfer.peer);
        const size_t room = network_.options_.link_bytes > link.bytes ? network_.options_.link_bytes - link.bytes : 0;
        const size_t wanted = 1 + random_.next_u32() % network_.options_.max_chunk_bytes;
        const size_t bytes = std::min({room, wanted, transfer.bytes - transfer.moved});
        if (bytes == 0) return false;
        MemoryNetwork::Chunk chunk{.message = send.message, .tag = transfer.tag, .total_bytes = transfer.bytes};
        chunk.bytes.assign(transfer.data + transfer.moved, transfer.data + transfer.moved + bytes);
        const MemoryNetworkOptions& options = network_.options_;
        int64_t& wire_free_ns = network_.wire_free_ns_[static_cast<size_t>(rank_)];
        size_t& wire_bytes = network_.wire_bytes_[static_cast<size_t>(rank_)];
        const double ns_per_byte = wire_bytes < options.slow_bytes ? options.slow_ns_per_byte : options.ns_per_byte;
        wire_free_ns = std::max(wire_free_ns, now_ns()) + static_cast<int64_t>(ns_per_byte * static_cast<double>(bytes));
        wire_bytes += bytes;
        chunk.ready_ns = wire_free_ns + options.latency_ns +
                         static_cast<int64_t>(random_.uniform_double() * static_cast<double>(options.max_delay_ns));
        link.chunks.push_back(std::move(chunk));
        link.bytes += bytes;
        transfer.moved += bytes;
        network_.notify(transfer.peer);
        return true;
    }

    bool receive_some() {
        bool moved = false;
        const auto start = static_cast<int>(random_.next_u32() % static_cast<uint32_t>(network_.rank_count_));
        for (int step = 0; step < network_.rank_count_; ++step) {
            const int from = (start + step) % network_.rank_count_;
            MemoryNetwork::Link& link = network_.link(from, rank_);
            while (!link.chunks.empty() && link.chunks.front().ready_ns <= now_ns() && take(from, link.chunks.front())) {
                link.bytes -= link.chunks.front().bytes.size();
                link.chunks.pop_front();
                network_.notify(from);
                moved = true;
            }
        }
        return moved;
    }

    // Chunks become ready without a signal. One that is ready and not taken waits for a receive, which only this rank can post.
    int64_t until_next_chunk_ns() {
        int64_t wait_ns = 10'000'000;
        const int64_t now = now_ns();
        for (int from = 0; from < network_.rank_count_; ++from) {
            const MemoryNetwork::Link& link = network_.link(from, rank_);
            if (!link.chunks.empty() && link.chunks.front().ready_ns > now)
                wait_ns = std::min(wait_ns, link.chunks.front().ready_ns - now);
        }
        return wait_ns;
    }

    // False when the chunk has to wait, and everything behind it.
    bool take(int from, MemoryNetwork::Chunk& chunk) {
        Peer& peer = peer_of(from);
        auto arriving = peer.arriving.find(chunk.message);
        if (arriving == peer.arriving.end()) {
            if (keep(peer, chunk)) return true;
            auto& posted = peer.posted[chunk.tag];
            if (posted.empty()) return false;
            check_length(*posted.front(), chunk.total_bytes);
            arriving = peer.arriving.emplace(chunk.message, posted.front()).first;
            posted.pop_front();
        }
        Transfer& transfer = *arriving->second;
        std::memcpy(transfer.data + transfer.moved, chunk.bytes.data(), chunk.bytes.size());
        move_receive(transfer, chunk.bytes.size());
        if (transfer.complete()) peer.arriving.erase(arriving);
        return true;
    }

    // As an unexpected message, when it is one and there is room.
    bool keep(Peer& peer, MemoryNetwork::Chunk& chunk) {
        auto& kept = peer.unexpected[chunk.tag];
        auto message = std::find_if(kept.begin(), kept.end(), [&](const Unexpected& each) { return each.id == chunk.message; });
        if (message == kept.end()) {
            if (!peer.posted[chunk.tag].empty()) return false;
            if (peer.unexpected_bytes + chunk.bytes.size() > network_.options_.unexpected_bytes) return false;
            message = kept.insert(kept.end(), {.id = chunk.message, .total_bytes = chunk.total_bytes, .bytes = {}});
        } else if (peer.unexpected_bytes + chunk.bytes.size() > network_.options_.unexpected_bytes) {
            return false;
        }
        message->bytes.insert(message->bytes.end(), chunk.bytes.begin(), chunk.bytes.end());
        peer.unexpected_bytes += chunk.bytes.size();
        network_.most_unexpected_bytes_ = std::max(network_.most_unexpected_bytes_, peer.unexpected_bytes);
        return true;
    }

    void throw_if_failed() {
        if (network_.aborted_) throw CommError(network_.abort_reason_);
        for (int rank = 0; rank < network_.rank_count_; ++rank) {
            if (network_.dead_[static_cast<size_t>(rank)]) throw CommError(fmt::format("rank {} died", rank));
        }
    }
    void throw_if_silent() {
        if (posted_ == 0) last_moved_ns_ = now_ns();
        if (now_ns() - last_moved_ns_ < network_.options_.silence_ns) return;
        throw CommError(fmt::format("nothing has come to rank {} for {:.1f} s, {} receives are posted", rank_,
                                    1e-9 * static_cast<double>(network_.options_.silence_ns), posted_));
    }

    MemoryNetwork& network_;
    const int rank_;
    RandomStream random_;
    std::vector<Peer> peers_;
    std::vector<Send> sends_;  // in order of posting
    size_t posted_ = 0;        // receives
    int64_t last_moved_ns_ = now_ns();
    uint64_t seen_wakes_ = 0;
};

MemoryNetwork::MemoryNetwork(int rank_count, const MemoryNetworkOptions& options)
    : rank_count_(rank_count),
      options_(options),
      changed_(static_cast<size_t>(rank_count)),
      links_(static_cast<size_t>(rank_count * rank_count)),
      dead_(static_cast<size_t>(rank_count), false),
      wakes_(static_cast<size_t>(rank_count), 0),
      wire_free_ns_(static_cast<size_t>(rank_count), 0),
      wire_bytes_(static_cast<size_t>(rank_count), 0) {}

MemoryNetwork::~MemoryNetwork() = default;

std::unique_ptr<Transport> MemoryNetwork::transport(int rank) { return std::make_unique<MemoryTransport>(*this, rank); }

void MemoryNetwork::kill(int rank) {
    const std::lock_guard lock(mutex_);
    dead_[static_cast<size_t>(rank)] = true;
    for (int each = 0; each < rank_count_; ++each) notify(each);
}

size_t MemoryNetwork::most_unexpected_bytes() const {
    const std::lock_guard lock(mutex_);
    return most_unexpected_bytes_;
}

}  // namespace lockstep::testing_support
