#include "core/parameter_arena.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

constexpr int64_t kAlignmentFloats = 16;  // one cache line

int64_t align_up(int64_t count) { return (count + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats; }

ParameterEntry control_entry() {
    return {.spec = {.name = "control", .kind = ParameterKind::control, .shape = {ParameterArena::kControlCount}},
            .physical_count = ParameterArena::kControlCount};
}

}  // namespace

ParameterArena::ParameterArena(std::vector<ParameterEntry> entries, MemoryPool& private_pool, MemoryPool& gradient_pool,
                               int state_buffers)
    : entries_(std::move(entries)) {
    entries_.push_back(control_entry());
    for (ParameterEntry& entry : entries_) {
        check(entry.physical_count >= element_count(entry.spec.shape), "physical layout smaller than the plain one");
        entry.offset = total_count_;
        total_count_ += align_up(entry.physical_count);
    }
    const size_t bytes = static_cast<size_t>(total_count_) * sizeof(float);
    values_ = private_pool.allocate(bytes);
    gradients_ = gradient_pool.allocate(bytes);
    owned_ = {{.offset = 0, .count = total_count_}};
    state_count_ = total_count_;
    for (int index = 0; index < state_buffers; ++index) states_.push_back(private_pool.allocate(bytes));
}

std::optional<size_t> ParameterArena::find(std::string_view name) const {
    for (size_t index = 0; index < entries_.size(); ++index) {
        if (entries_[index].spec.name == name) return index;
    }
    return std::nullopt;
}

std::span<float> ParameterArena::state(int index) const {
    return states_.at(static_cast<size_t>(index)).f32().first(static_cast<size_t>(state_count_));
}

std::vector<std::span<const float>> ParameterArena::states() const {
    std::vector<std::span<const float>> all;
    for (int index = 0; index < state_buffer_count(); ++index) all.emplace_back(state(index));
    return all;
}

void ParameterArena::share_out(Buffer values, std::vector<ArenaRange> owned, MemoryPool& private_pool) {
    check(state_count_ == total_count_, "an arena is shared out once");
    int64_t count = 0;
    int64_t end = 0;
    for (const ArenaRange& range : owned) {
        check(range.offset >= end && range.count >= 0, "owned ranges ascend");
        end = range.offset + range.count;
        count += range.count;
    }
    check(end <= total_count_ && values.f32().size() >= static_cast<size_t>(total_count_), "owned ranges lie in the arena");
    for (const ArenaRange& range : owned) {
        std::copy_n(values_.f32().begin() + range.offset, range.count, values.f32().begin() + range.offset);
    }
    values_ = std::move(values);
    for (Buffer& state : states_) {
        Buffer kept = private_pool.allocate(static_cast<size_t>(count) * sizeof(float));
        auto next = kept.f32().begin();
        for (const ArenaRange& range : owned) next = std::copy_n(state.f32().begin() + range.offset, range.count, next);
        state = std::move(kept);
    }
    owned_ = std::move(owned);
    state_count_ = count;
}

int64_t ParameterArena::trainable_count() const {
    int64_t count = 0;
    for (const ParameterEntry& entry : entries_) {
        if (is_trainable(entry.spec.kind)) count += element_count(entry.spec.shape);
    }
    return count;
}

size_t ParameterArena::trainable_tensor_count() const {
    size_t count = 0;
    for (const ParameterEntry& entry : entries_) count += is_trainable(entry.spec.kind) ? 1 : 0;
    return count;
}

uint64_t ParameterArena::plan_hash() const {
    std::string text;
    for (const ParameterEntry& entry : entries_) {
        text += fmt::format("{};{};{};{};{};{}\n", entry.spec.name, static_cast<int>(entry.spec.kind), to_string(entry.spec.shape),
                            entry.layout, entry.physical_count, entry.offset);
    }
    return hash_text(text);
}

std::span<float> ParameterArena::slice(std::span<float> buffer, size_t entry) const {
    const ParameterEntry& place = entries_.at(entry);
    return buffer.subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.physical_count));
}

}  // namespace lockstep
