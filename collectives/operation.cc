#include "collectives/operation.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

std::string_view to_string(OperationKind kind) {
    switch (kind) {
        case OperationKind::allreduce:
            return "allreduce";
        case OperationKind::reduce_scatter:
            return "reduce_scatter";
        case OperationKind::allgather:
            return "allgather";
        case OperationKind::broadcast:
            return "broadcast";
        case OperationKind::barrier:
            return "barrier";
    }
    return "unknown operation";
}

namespace {

Operation sum_of(OperationKind kind, std::span<std::byte> data, DataType type, CollectiveLabel label) {
    check(type == DataType::f32 || type == DataType::bf16 || type == DataType::f16, "sums are made for f32, bf16 and f16");
    check(data.size() % bytes_per_element(type) == 0, "the data to sum are whole elements");
    return {.kind = kind, .type = type, .label = label, .target = data.data(), .byte_count = data.size()};
}

}  // namespace

Operation allreduce_of(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return sum_of(OperationKind::allreduce, data, type, label);
}

Operation reduce_scatter_of(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return sum_of(OperationKind::reduce_scatter, data, type, label);
}

Operation allgather_of(std::span<const std::byte> mine, std::span<std::byte> all, int world_size, CollectiveLabel label) {
    check(all.size() == mine.size() * static_cast<size_t>(world_size), "allgather: `all` has room for every rank's part");
    return {
        .kind = OperationKind::allgather, .label = label, .target = all.data(), .source = mine.data(), .byte_count = mine.size()};
}

Operation broadcast_of(std::span<std::byte> data, int root, int world_size, CollectiveLabel label) {
    check(root >= 0 && root < world_size, "broadcast: the root is a rank of this world");
    return {.kind = OperationKind::broadcast, .label = label, .target = data.data(), .byte_count = data.size(), .root = root};
}

Operation barrier_of(CollectiveLabel label) { return {.kind = OperationKind::barrier, .label = label}; }

namespace {

// A sum of products with fixed odd numbers: the multiplications do not wait for each other, and the whole costs a few nanoseconds.
// The carries gather in the upper half, which is what the flags in shared memory hold.
uint64_t hash_of_words(const std::array<uint64_t, 8>& words) {
    constexpr std::array<uint64_t, 8> kFactors = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93,
                                                  0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x589965cc75374cc3};
    uint64_t sum = 0x1d8e4e27c47d124f;
    for (size_t index = 0; index < words.size(); ++index) sum += words[index] * kFactors[index];
    return sum;
}

}  // namespace

OperationSignature OperationSignature::of(const Operation& operation, int64_t place) {
    OperationSignature signature;
    signature.sequence = operation.sequence;
    signature.byte_count = operation.byte_count;
    signature.place = place;
    signature.step = operation.label.step;
    signature.bucket = operation.label.bucket;
    signature.root = static_cast<uint16_t>(operation.root);
    signature.kind = operation.kind;
    signature.type = operation.type;
    const std::string_view what = operation.label.what.substr(0, sizeof signature.what - 1);
    std::copy(what.begin(), what.end(), signature.what);
    const auto words = std::bit_cast<std::array<uint64_t, 9>>(signature);
    std::array<uint64_t, 8> hashed;
    std::copy_n(words.begin(), hashed.size(), hashed.begin());
    signature.plan_hash = hash_of_words(hashed);
    return signature;
}

namespace {

std::string place_text(std::string_view what, int64_t step, int32_t bucket) {
    std::string text(what.empty() ? std::string_view("operation") : what);
    if (bucket >= 0) text += fmt::format(" {}", bucket);
    if (step >= 0) text += fmt::format(" of step {}", step);
    return text;
}

}  // namespace

std::string describe(const CollectiveLabel& label) { return place_text(label.what, label.step, label.bucket); }

std::string describe(const OperationSignature& signature) {
    const std::string_view what(signature.what, std::find(signature.what, std::end(signature.what) - 1, '\0') - signature.what);
    std::string text = fmt::format("{} of {} bytes", to_string(signature.kind), signature.byte_count);
    if (signature.kind == OperationKind::allreduce || signature.kind == OperationKind::reduce_scatter) {
        text += fmt::format(" ({})", to_string(signature.type));
    }
    text += fmt::format(" for {}", place_text(what, signature.step, signature.bucket));
    if (signature.kind == OperationKind::broadcast) text += fmt::format(" from rank {}", signature.root);
    if (signature.place >= 0) text += fmt::format(" at offset {} of the segment", signature.place);
    return text;
}

std::string failure_text(std::string_view fault, int rank, const CollectiveLabel& label, int64_t waited_ns) {
    return fmt::format("{} while rank {} waited in {} ({:.1f} s); restart from the last checkpoint", fault, rank, describe(label),
                       1e-9 * static_cast<double>(waited_ns));
}

std::string mismatch_text(int rank, const OperationSignature& mine, int peer, const OperationSignature& theirs) {
    return fmt::format(
        "ranks disagree at collective {}: rank {} runs {}, rank {} runs {} (collective {}); give all ranks the same program, "
        "configuration and data",
        mine.sequence, rank, describe(mine), peer, describe(theirs), theirs.sequence);
}

}  // namespace lockstep
