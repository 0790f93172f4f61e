#include "collectives/operation.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/hash.h"

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

OperationSignature OperationSignature::of(const Operation& operation, int64_t place) {
    OperationSignature signature;
    signature.sequence = operation.sequence;
    signature.byte_count = operation.byte_count;
    signature.place = place;
    signature.step = operation.label.step;
    signature.bucket = operation.label.bucket;
    signature.root = static_cast<uint16_t>(operation.root);
    signature.kind = operation.kind;
    const std::string_view what = operation.label.what.substr(0, sizeof signature.what - 1);
    std::copy(what.begin(), what.end(), signature.what);
    // Field by field: padding has no value.
    const uint64_t fields[] = {signature.sequence,
                               signature.byte_count,
                               static_cast<uint64_t>(signature.place),
                               static_cast<uint64_t>(signature.step),
                               static_cast<uint64_t>(signature.bucket),
                               (uint64_t{signature.root} << 8) | static_cast<uint64_t>(signature.kind)};
    signature.plan_hash = hash_bytes(fields, sizeof fields, hash_text(what));
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
    std::string text = fmt::format("{} of {} bytes for {}", to_string(signature.kind), signature.byte_count,
                                   place_text(what, signature.step, signature.bucket));
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
