// A Transport between threads of one process, with a link of known latency and rate: what is measured on it can be compared with
// what it was told to be.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/transport.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep::testing_support {

struct MemoryLink {
    int64_t latency_ns = 0;
    double ns_per_byte = 0.0;  // of each rank's outgoing wire
};

// What the ranks share: the messages under way.
class MemoryNetwork {
public:
    MemoryNetwork(int rank_count, MemoryLink link) : link_(link), wire_free_ns_(static_cast<size_t>(rank_count), 0) {}

private:
    friend class MemoryTransport;
    struct Message {
        int64_t due_ns = 0;
        std::vector<std::byte> data;
    };
    using Key = std::tuple<int, int, uint64_t>;  // sender, receiver, tag

    const MemoryLink link_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Key, std::deque<Message>> messages_;  // guarded by mutex_, as all below
    std::vector<int64_t> wire_free_ns_;
    std::string aborted_;
};

class MemoryTransport final : public Transport {
public:
    MemoryTransport(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}

    std::string_view name() const override { return "memory"; }

    void post_send(Transfer& transfer) override {
        const std::lock_guard lock(network_.mutex_);
        int64_t& free_ns = network_.wire_free_ns_[static_cast<size_t>(rank_)];
        free_ns =
            std::max(free_ns, now_ns()) + static_cast<int64_t>(network_.link_.ns_per_byte * static_cast<double>(transfer.bytes));
        network_.messages_[{rank_, transfer.peer, transfer.tag}].push_back(
            {free_ns + network_.link_.latency_ns, std::vector<std::byte>(transfer.data, transfer.data + transfer.bytes)});
        transfer.moved = transfer.bytes;
        network_.changed_.notify_all();
    }
    void post_receive(Transfer& transfer) override {
        transfer.moved = 0;
        receives_.push_back(&transfer);
    }

    bool progress(int64_t patience_ns) override {
        std::unique_lock lock(network_.mutex_);
        const int64_t until_ns = now_ns() + patience_ns;
        for (;;) {
            if (!network_.aborted_.empty()) throw CommError(network_.aborted_);
            if (deliver()) return true;
            const int64_t wake_ns = std::min(until_ns, next_due_ns());
            if (now_ns() >= until_ns) return false;
            network_.changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(wake_ns - now_ns(), 1000)));
        }
    }

    void note_progress() noexcept override {}
    void wake() noexcept override { network_.changed_.notify_all(); }
    void abort(std::string_view reason) noexcept override {
        const std::lock_guard lock(network_.mutex_);
        network_.aborted_ = reason;
        network_.changed_.notify_all();
    }

private:
    std::deque<MemoryNetwork::Message>& queue_of(const Transfer& receive) {
        return network_.messages_[{receive.peer, rank_, receive.tag}];
    }
    int64_t next_due_ns() {
        int64_t due_ns = now_ns() + 1'000'000'000;
        for (const Transfer* receive : receives_) {
            if (!queue_of(*receive).empty()) due_ns = std::min(due_ns, queue_of(*receive).front().due_ns);
        }
        return due_ns;
    }
    bool deliver() {
        bool moved = false;
        for (size_t index = 0; index < receives_.size();) {
            Transfer& receive = *receives_[index];
            auto& queue = queue_of(receive);
            if (queue.empty() || queue.front().due_ns > now_ns()) {
                ++index;
                continue;
            }
            check(queue.front().data.size() == receive.bytes, "both ends of a message have one length");
            std::memcpy(receive.data, queue.front().data.data(), receive.bytes);
            receive.moved = receive.bytes;
            queue.pop_front();
            receives_.erase(receives_.begin() + static_cast<std::ptrdiff_t>(index));
            moved = true;
        }
        return moved;
    }

    MemoryNetwork& network_;
    const int rank_;
    std::vector<Transfer*> receives_;  // posted and open, in order
};

}  // namespace lockstep::testing_support
