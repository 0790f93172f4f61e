#include "trainer/sharded_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lockstep {

size_t ShardedUpdate::common_bytes(size_t value_bytes, int local_size) {
    return value_bytes + static_cast<size_t>(local_size) * sizeof(Report);
}

ShardedUpdate::ShardedUpdate(NodeSharing& node, const World& world, ParameterArena& arena, const BucketPlan& plan)
    : node_(node),
      world_(world),
      arena_(arena),
      plan_(plan),
      values_(node.common_pool().allocate(static_cast<size_t>(arena.total_count()) * sizeof(float))),
      reports_(node.common_pool().allocate(static_cast<size_t>(world.local_size) * sizeof(Report))) {
    for (const Bucket& bucket : plan) {
        const auto [first, last] = node.node_slice(bucket.count);
        owned_.push_back({.offset = bucket.offset + first, .count = last - first});
    }
}

int64_t ShardedUpdate::owned_count() const {
    int64_t count = 0;
    for (const ArenaRange& range : owned_) count += range.count;
    return count;
}

void ShardedUpdate::take_over() {
    arena_.share_out(std::move(values_), owned_, private_pool_);
    node_.node_barrier({.what = "first weights"});
}

// A report is written again only after all ranks have read it: they do so before they start the next step's buckets.
GradientHealth ShardedUpdate::agree(const GradientHealth& mine, int64_t step) {
    report(world_.local_rank) = {.squared_norm = mine.squared_norm, .first_bad_entry = mine.first_bad_entry};
    node_.node_barrier({.what = "inspection", .step = step});
    GradientHealth all;
    for (int rank = 0; rank < world_.local_size; ++rank) {
        const Report& theirs = report(rank);
        all.squared_norm += theirs.squared_norm;
        if (theirs.first_bad_entry < 0) continue;
        if (all.first_bad_entry < 0 || theirs.first_bad_entry < all.first_bad_entry) all.first_bad_entry = theirs.first_bad_entry;
    }
    return all;
}

void ShardedUpdate::publish(int64_t step) { node_.node_barrier({.what = "update", .step = step}); }

std::span<float> ShardedUpdate::gradients_of(const Bucket& bucket) const {
    return arena_.gradients().subspan(static_cast<size_t>(bucket.offset), static_cast<size_t>(bucket.count));
}

// A slice travels as its bytes: nothing is added, so not even the sign of a zero changes.
void ShardedUpdate::gather_state(int64_t step, const std::function<void(int index, std::span<const float> whole)>& take) {
    for (int index = 0; index < arena_.state_buffer_count(); ++index) {
        auto next = arena_.state(index).begin();
        for (size_t at = 0; at < plan_.size(); ++at) {
            std::copy_n(next, owned_[at].count, arena_.gradients().begin() + owned_[at].offset);
            next += owned_[at].count;
            node_.exchange_slices(gradients_of(plan_[at]),
                                  {.what = "optimizer state", .step = step, .bucket = static_cast<int32_t>(at)});
        }
        if (world_.is_leader()) take(index, arena_.gradients());
    }
}

}  // namespace lockstep
