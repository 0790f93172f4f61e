#include "trainer/bucket_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

int64_t entry_end_offset(const ParameterArena& arena, size_t entry) {
    return entry + 1 < arena.entries().size() ? arena.entries()[entry + 1].offset : arena.total_count();
}

int64_t entry_bytes(const ParameterArena& arena, size_t entry) {
    return (entry_end_offset(arena, entry) - arena.entries()[entry].offset) * kFloatBytes;
}

// Nothing can hide the last bucket's transfer, so it is small beside the rest: latency is paid once more for a tail of little
// bytes.
int64_t last_bucket_limit(const ParameterArena& arena, const BucketPlanOptions& options) {
    constexpr int64_t kMostBytes = 1 << 20;
    const int64_t limit =
        options.last_bucket_bytes > 0 ? options.last_bucket_bytes : std::min(kMostBytes, arena.total_count() * kFloatBytes / 8);
    return std::min(options.bucket_bytes, limit);
}

// The control entry and as many of the entries before it as the last bucket may hold.
size_t first_entry_of_last_bucket(const ParameterArena& arena, int64_t limit_bytes) {
    size_t first = arena.entries().size() - 1;
    int64_t bytes = entry_bytes(arena, first);
    while (first > 0 && bytes + entry_bytes(arena, first - 1) <= limit_bytes) bytes += entry_bytes(arena, --first);
    return first;
}

}  // namespace

BucketPlan plan_buckets(const ParameterArena& arena, const BucketPlanOptions& options) {
    check(options.bucket_bytes > 0 && options.last_bucket_bytes >= 0, "bucket sizes are positive");
    BucketPlan plan;
    const auto close = [&](size_t begin, size_t end) {
        if (begin == end) return;
        const int64_t offset = arena.entries()[begin].offset;
        plan.push_back(
            {.entry_begin = begin, .entry_end = end, .offset = offset, .count = entry_end_offset(arena, end - 1) - offset});
    };
    const size_t last_begin = first_entry_of_last_bucket(arena, last_bucket_limit(arena, options));
    size_t begin = 0;
    int64_t bytes = 0;
    for (size_t entry = 0; entry < last_begin; ++entry) {
        const int64_t more_bytes = entry_bytes(arena, entry);
        if (bytes + more_bytes > options.bucket_bytes) {
            close(begin, entry);
            begin = entry;
            bytes = 0;
        }
        bytes += more_bytes;
    }
    close(begin, last_begin);
    close(last_begin, arena.entries().size());
    return plan;
}

uint64_t plan_hash(const ParameterArena& arena, const BucketPlan& plan) {
    std::string text = fmt::format("{}\n", arena.plan_hash());
    for (const Bucket& bucket : plan) text += fmt::format("{} {}\n", bucket.offset, bucket.count);
    return hash_text(text);
}

std::string bucket_layers(const ParameterArena& arena, const Bucket& bucket) {
    const std::string& first = arena.entries()[bucket.entry_begin].spec.name;
    const std::string& last = arena.entries()[bucket.entry_end - 1].spec.name;
    return bucket.entry_end - bucket.entry_begin == 1 ? first : fmt::format("{} … {}", first, last);
}

}  // namespace lockstep
