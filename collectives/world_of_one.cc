#include "collectives/world_of_one.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "collectives/node_sharing.h"
#include "collectives/operation.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

class WorldOfOne final : public Communicator, public NodeSharing {
public:
    explicit WorldOfOne(const World& world) : world_(world) {}

    const World& world() const override { return world_; }
    std::string_view name() const override { return "one"; }
    MemoryPool& gradient_pool() override { return pool_; }

    using Communicator::allreduce;
    using Communicator::reduce_scatter;
    Work allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) override {
        throw_if_aborted();
        allreduce_of(data, type, label);  // refuses what a larger world would refuse
        ++issued_;
        instants_ns_[issued_ % kHistory] = now_ns();
        return {this, issued_};
    }
    void reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) override {
        throw_if_aborted();
        reduce_scatter_of(data, type, label);
    }
    void allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) override {
        throw_if_aborted();
        allgather_of(mine, all, world_.size, label);
        std::copy(mine.begin(), mine.end(), all.begin());
    }
    void broadcast(std::span<std::byte> data, int root, CollectiveLabel label) override {
        throw_if_aborted();
        broadcast_of(data, root, world_.size, label);
    }
    void barrier(CollectiveLabel) override { throw_if_aborted(); }

    NodeSharing* node_sharing() override { return this; }
    MemoryPool& common_pool() override { return pool_; }
    std::pair<int64_t, int64_t> node_slice(int64_t count) const override { return {0, count}; }
    Work reduce_to_slices(std::span<float> data, CollectiveLabel label) override { return Communicator::allreduce(data, label); }
    void exchange_slices(std::span<float>, CollectiveLabel) override { throw_if_aborted(); }
    void node_barrier(CollectiveLabel label) override { barrier(label); }

    void abort(std::string_view reason) noexcept override {
        const std::lock_guard lock(mutex_);
        if (aborted_) return;
        aborted_ = true;
        try {
            reason_ = reason;
        } catch (...) {
            reason_.clear();  // out of memory: aborted all the same, without its reason
        }
    }

private:
    bool test(uint64_t) override { return true; }
    void wait(uint64_t) override {}
    WorkTimes times(uint64_t ticket) const override {
        const int64_t instant_ns = instants_ns_[ticket % kHistory];
        return {instant_ns, instant_ns, instant_ns};
    }

    void throw_if_aborted() {
        const std::lock_guard lock(mutex_);
        if (aborted_) throw CommError(fmt::format("rank 0 gave up: {}", reason_));
    }

    const World world_;
    HeapPool pool_;
    uint64_t issued_ = 0;
    std::array<int64_t, kHistory> instants_ns_{};
    std::mutex mutex_;
    bool aborted_ = false;  // guarded by mutex_, as is reason_
    std::string reason_;
};

}  // namespace

std::unique_ptr<Communicator> make_world_of_one(const World& world) { return std::make_unique<WorldOfOne>(world); }

}  // namespace lockstep
