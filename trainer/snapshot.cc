#include "trainer/snapshot.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

std::string state_file(int index) { return index == 0 ? "optimizer.safetensors" : fmt::format("optimizer-{}.safetensors", index); }

Snapshot::Snapshot(const Backend& backend, const ParameterArena& arena) : backend_(backend), arena_(arena) {
    parts_.push_back({.name = std::string(kModelFile), .image = ArenaImage(arena, EntrySet::all)});
    for (int index = 0; index < arena.state_buffer_count(); ++index) {
        parts_.push_back({.name = state_file(index), .image = ArenaImage(arena, EntrySet::trainable)});
    }
}

void Snapshot::take_values() { parts_.front().bad = parts_.front().image.fill(backend_, arena_, arena_.values()); }

void Snapshot::take_state(int index, std::span<const float> whole) {
    check(whole.size() == static_cast<size_t>(arena_.total_count()), "a checkpoint holds the whole optimizer state");
    Part& part = parts_.at(static_cast<size_t>(index) + 1);
    part.bad = part.image.fill(backend_, arena_, whole);
}

void Snapshot::take_all() {
    take_values();
    int index = 0;
    for (const std::span<const float> state : arena_.states()) take_state(index++, state);
}

std::vector<Snapshot::File> Snapshot::files() const {
    std::vector<File> files;
    for (const Part& part : parts_) files.push_back({.name = part.name, .bytes = part.image.bytes()});
    return files;
}

size_t Snapshot::byte_count() const {
    size_t bytes = 0;
    for (const Part& part : parts_) bytes += part.image.bytes().size();
    return bytes;
}

void Snapshot::require_finite(int64_t step) const {
    for (const Part& part : parts_) {
        if (part.bad.empty()) continue;
        throw DivergedError(fmt::format("after step {} tensor {} of {} holds NaN or Inf; no checkpoint was written. {}", step - 1,
                                        part.bad, part.name, kAfterDivergence));
    }
}

}  // namespace lockstep
