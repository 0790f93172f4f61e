// Which slices of the gradient buffer travel together. A pure function of the layout, so every rank has the same plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/parameter_arena.h"

namespace lockstep {

struct BucketPlanOptions {
    int64_t bucket_bytes = 8 << 20;  // a bucket is closed before it would exceed this; a larger tensor travels alone
    int64_t last_bucket_bytes = 0;   // limit of the last one, which nothing can hide; 0: an eighth of all, at most 1 MiB
};

// Entries [entry_begin, entry_end) of the arena: floats [offset, offset + count) of the gradient buffer, alignment gaps included.
struct Bucket {
    size_t entry_begin = 0, entry_end = 0;
    int64_t offset = 0, count = 0;
    int64_t byte_count() const { return count * static_cast<int64_t>(sizeof(float)); }
};

// In the order in which buckets become ready. Together they cover the whole gradient buffer, control entry last.
using BucketPlan = std::vector<Bucket>;

BucketPlan plan_buckets(const ParameterArena& arena, const BucketPlanOptions& options);
uint64_t plan_hash(const ParameterArena& arena, const BucketPlan& plan);       // of layout and slices
std::string bucket_layers(const ParameterArena& arena, const Bucket& bucket);  // "fc.weight … layer4.2.bn3.weight"

}  // namespace lockstep
