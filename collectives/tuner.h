// What the ranks of a communicator over a transport settle before their first operation: who is where, and by which tables all of
// them choose schedules. Used once, by the transport's owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/schedule_engine.h"
#include "collectives/transport.h"
#include "collectives/tuning.h"
#include "core/world.h"

namespace lockstep {

// Fixed size: travels as it is.
struct RankPlace {
    int32_t node = 0;
    int32_t local_rank = 0;
    int32_t local_size = 1;
    int32_t rank = 0;
    uint64_t host_hash = 0;
    uint64_t settings_hash = 0;  // of the settings that all ranks must share
};

// What a table is decided for. `through_nodes`: there is node memory.
RankLayout layout_of(std::span<const RankPlace> places, bool through_nodes);

class Tuner {
public:
    // Collective over all ranks: they learn each other's places. `backend`: for the fingerprint of kept tables. Throws ConfigError
    // when the ranks' settings differ, CommError as Transport::progress.
    Tuner(Transport& transport, const World& world, const CommunicatorOptions& options, std::string_view backend);

    const std::vector<RankPlace>& places() const { return places_; }  // by rank

    // Collective over all ranks. Rank 0 takes a kept table or has the links measured, as options.plan.probing says; all return the
    // same. ConfigError as decide_tuning's.
    Tuning agree(bool through_nodes);

private:
    struct Trial {  // a schedule to be timed; fixed size, travels as it is
        schedule::Plan plan;
        int32_t repeats = 0;  // 0: there are no more
        int64_t bytes = 0;
    };

    void run(const schedule::Plan& plan, std::span<std::byte> data, DataType type, std::string_view what);
    void from_rank_zero(std::span<std::byte> data, std::string_view what);
    std::string text_from_rank_zero(std::string text);
    bool measures() const;
    std::string fingerprint() const;
    std::optional<Tuning> kept_tuning() const;
    std::string measure(const RankLayout& layout);
    MeasuredLinks measure_links(const RankLayout& layout);
    std::vector<MeasuredFactor> measure_factors(const LinkModel& link);
    double least_time_us(const Trial& trial);
    uint64_t next_number() { return ++number_; }

    Transport& transport_;
    const World& world_;
    const CommunicatorOptions& options_;
    const std::string backend_;
    ScheduleEngine engine_;                // of all ranks
    uint64_t number_ = uint64_t{1} << 40;  // of operations: far from the communicator's own
    std::vector<RankPlace> places_;
};

}  // namespace lockstep
