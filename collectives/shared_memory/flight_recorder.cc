#include "collectives/shared_memory/flight_recorder.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "collectives/shared_memory/node_segment.h"
#include "core/clock.h"
#include "core/files.h"

namespace lockstep {

std::string_view to_string(FlightPhase phase) {
    switch (phase) {
        case FlightPhase::waiting:
            return "waiting";
        case FlightPhase::working:
            return "working";
        case FlightPhase::shared:
            return "shared";
        case FlightPhase::finished:
            return "finished";
    }
    return "unknown";
}

std::optional<FlightEntry> FlightRing::find(uint64_t sequence) const {
    std::optional<FlightEntry> entry = entry_in_slot(sequence % kEntries);
    if (entry && entry->signature.sequence != sequence) entry.reset();
    return entry;
}

std::optional<FlightEntry> FlightRing::entry_in_slot(size_t index) const {
    const Slot& slot = slots_[index];
    std::array<uint64_t, kSignatureWords> words;
    for (size_t word = 0; word < kSignatureWords; ++word) words[word] = slot.signature[word].load(std::memory_order_acquire);
    FlightEntry entry{.signature = std::bit_cast<OperationSignature>(words),
                      .phase = static_cast<FlightPhase>(slot.phase.load(std::memory_order_acquire)),
                      .start_ns = slot.start_ns.load(std::memory_order_acquire),
                      .shared_ns = slot.shared_ns.load(std::memory_order_acquire)};
    const bool torn = slot.signature[0].load(std::memory_order_relaxed) != words[0];
    if (words[0] == 0 || torn) return std::nullopt;
    return entry;
}

namespace {

std::vector<FlightEntry> entries_in_order(const FlightRing& ring) {
    std::vector<FlightEntry> entries;
    for (size_t index = 0; index < FlightRing::kEntries; ++index) {
        if (const auto entry = ring.entry_in_slot(index)) entries.push_back(*entry);
    }
    std::ranges::sort(entries, {}, [](const FlightEntry& entry) { return entry.signature.sequence; });
    return entries;
}

std::string milliseconds(int64_t at_ns, int64_t now) {
    return at_ns == 0 ? std::string("-") : fmt::format("{:.3f}", 1e-6 * static_cast<double>(at_ns - now));
}

// An operation's arrival and end are those of its last rank; 0 while one is missing.
struct LastRank {
    int64_t arrived_ns = 0;
    int64_t end_ns = 0;
};

LastRank last_rank_of(const NodeSegment& segment, uint64_t sequence) {
    LastRank last;
    bool all_shared = true;
    for (int rank = 0; rank < segment.rank_count(); ++rank) {
        const auto entry = segment.block(rank).flights.find(sequence);
        if (!entry) return {};
        last.arrived_ns = std::max(last.arrived_ns, entry->start_ns);
        last.end_ns = std::max(last.end_ns, entry->shared_ns);
        all_shared = all_shared && entry->shared_ns != 0;
    }
    if (!all_shared) last.end_ns = 0;
    return last;
}

std::string text_of(const NodeSegment& segment, int first_rank, std::string_view cause) {
    const int64_t now = now_ns();
    std::string text = fmt::format(
        "Flight record of ranks {} to {}, written at {}\ncause: {}\n\n"
        "Times in milliseconds before this was written. start: this rank began; arrived: the last rank began; shared: this rank "
        "had\n"
        "done its share; end: all ranks had. Phases: waiting for ranks that have not arrived; working; shared, the others' shares\n"
        "may be missing; finished.\n",
        first_rank, first_rank + segment.rank_count() - 1, wall_clock_text(), cause);
    for (int rank = 0; rank < segment.rank_count(); ++rank) {
        const std::vector<FlightEntry> entries = entries_in_order(segment.block(rank).flights);
        fmt::format_to(std::back_inserter(text), "\nrank {} (pid {}): the last {} operations\n", first_rank + rank,
                       segment.control().ranks[rank].pid.load(std::memory_order_relaxed), entries.size());
        fmt::format_to(std::back_inserter(text), "{:>10} {:>8} {:>14} {:>14} {:>14} {:>14}  operation\n", "collective", "phase",
                       "start", "arrived", "shared", "end");
        for (const FlightEntry& entry : entries) {
            const LastRank last = last_rank_of(segment, entry.signature.sequence);
            fmt::format_to(std::back_inserter(text), "{:>10} {:>8} {:>14} {:>14} {:>14} {:>14}  {}\n", entry.signature.sequence,
                           to_string(entry.phase), milliseconds(entry.start_ns, now), milliseconds(last.arrived_ns, now),
                           milliseconds(entry.shared_ns, now), milliseconds(last.end_ns, now), describe(entry.signature));
        }
    }
    return text;
}

}  // namespace

std::string write_flight_record(const std::string& path, const NodeSegment& segment, int first_rank, std::string_view cause) {
    try {
        write_file_atomically(path, text_of(segment, first_rank, cause));
        return {};
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace lockstep
