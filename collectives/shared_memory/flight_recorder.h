// The last operations of every rank of a node, in shared memory: after a failure any rank can read what the others did last, a
// killed one too. Writing costs a few plain stores per operation.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/operation.h"

namespace lockstep {

enum class FlightPhase : uint64_t {
    waiting = 1,  // announced, or about to be: waits for ranks that have not arrived
    working,      // all have arrived; this rank does its share
    shared,       // its share is done; the other ranks' may not be
    finished,
};
std::string_view to_string(FlightPhase phase);

struct FlightEntry {
    OperationSignature signature;
    FlightPhase phase = FlightPhase::waiting;
    int64_t start_ns = 0;   // this rank began it (now_ns)
    int64_t shared_ns = 0;  // this rank's share was done; 0: not yet
};

// One rank's ring. One writer, the rank; readers in any process, any time.
class FlightRing {
public:
    static constexpr size_t kEntries = 4096;

    void begin(const OperationSignature& signature, int64_t start_ns) {
        Slot& slot = slot_of(signature.sequence);
        const auto words = std::bit_cast<std::array<uint64_t, kSignatureWords>>(signature);
        slot.signature[0].store(0, std::memory_order_relaxed);  // half written
        slot.phase.store(static_cast<uint64_t>(FlightPhase::waiting), std::memory_order_release);
        slot.start_ns.store(start_ns, std::memory_order_release);
        slot.shared_ns.store(0, std::memory_order_release);
        for (size_t index = 1; index < kSignatureWords; ++index)
            slot.signature[index].store(words[index], std::memory_order_release);
        slot.signature[0].store(words[0], std::memory_order_release);
        // The ring is larger than a first cache: the next slot's two lines come in the meantime.
        const Slot& next = slot_of(signature.sequence + 1);
        __builtin_prefetch(&next.signature, 1);
        __builtin_prefetch(&next.phase, 1);
    }
    void work(uint64_t sequence) { set_phase(sequence, FlightPhase::working); }
    void share(uint64_t sequence, int64_t shared_ns) {
        slot_of(sequence).shared_ns.store(shared_ns, std::memory_order_relaxed);
        set_phase(sequence, FlightPhase::shared);
    }
    void finish(uint64_t sequence) { set_phase(sequence, FlightPhase::finished); }

    // Nothing when the ring holds another operation in its place, or this one half written: the owner records an operation right
    // after it has announced it.
    std::optional<FlightEntry> find(uint64_t sequence) const;
    std::optional<FlightEntry> entry_in_slot(size_t index) const;  // nothing when empty, or half written

private:
    static constexpr size_t kSignatureWords = sizeof(OperationSignature) / sizeof(uint64_t);

    struct alignas(128) Slot {
        std::atomic<uint64_t> signature[kSignatureWords];  // the first word is the sequence; 0: empty
        std::atomic<uint64_t> phase;
        std::atomic<int64_t> start_ns;
        std::atomic<int64_t> shared_ns;
    };

    Slot& slot_of(uint64_t sequence) { return slots_[sequence % kEntries]; }
    void set_phase(uint64_t sequence, FlightPhase phase) {
        slot_of(sequence).phase.store(static_cast<uint64_t>(phase), std::memory_order_relaxed);
    }

    Slot slots_[kEntries];
};

class NodeSegment;

// Writes the record of all ranks as text, newest operation last. `first_rank` is the name of the node's rank 0. Returns what went
// wrong, or nothing.
std::string write_flight_record(const std::string& path, const NodeSegment& segment, int first_rank, std::string_view cause);

}  // namespace lockstep
