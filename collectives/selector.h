// Which plan carries out which operation: a table by collective and size, decided once and then the same on all ranks.
//
//   rank 0:  Selector::decide(...)  -> to_text() -> all ranks: from_text() -> choose(collective, bytes) for each operation
//
// A table and not the model travels, so no rank computes anything that another could round differently.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/schedule/link_model.h"
#include "collectives/schedule/schedule.h"

namespace lockstep {

// What a choice is limited to.
struct SelectorOptions {
    std::string algorithm = "auto";  // auto | exchange | halving_doubling | ring | tree | double_tree: the allreduce's; the other
                                     // collectives follow where there is such a schedule for them, and choose freely elsewhere
    int radix = 0;                   // of exchange and halving_doubling; 0: chosen
    int chunks = 0;                  // of ring, tree and double_tree; 0: chosen
    // Only plans whose sums follow the one tree over the ranks (schedule.h), where the number of ranks has any: then a choice
    // changes times and no bit. What `algorithm` names is taken all the same when none of its plans does.
    bool rank_tree = false;
};

// A measured time over the predicted one, for an algorithm near a size. Predictions are multiplied by the factor of the measured
// size that is nearest (as a ratio); no measurement, no correction.
struct MeasuredFactor {
    schedule::Algorithm algorithm = schedule::Algorithm::exchange;
    int64_t bytes = 0;
    double factor = 1.0;
};

// One way to carry out a collective, and what it is expected to take.
struct Candidate {
    schedule::Plan plan;
    double predicted_us = 0.0;  // 0 when nothing is known of the link
};

// All plans worth considering (radices 2, 4, 8, 16 and all ranks at once; 1 to 64 chunks), cheapest first; equal ones in a fixed
// order. A pure function. Throws ConfigError for an algorithm that does not exist or does not fit the collective.
std::vector<Candidate> candidates(schedule::Collective collective, int rank_count, int64_t bytes, const LinkModel& link,
                                  std::span<const MeasuredFactor> factors, const SelectorOptions& options);

class Selector {
public:
    // The plan for operations of more bytes than the row before has, up to these. The last row has no limit.
    struct Row {
        int64_t up_to_bytes = 0;
        Candidate choice;
    };

    // `rank_count`: of the ranks that run the schedule (of a hierarchy: the nodes, and `link` is shared_link's). Without a link the
    // choice is a fixed table. Throws ConfigError for an unknown algorithm, a radix below 2 or fewer chunks than 1.
    static Selector decide(int rank_count, const std::optional<LinkModel>& link, std::span<const MeasuredFactor> factors,
                           const SelectorOptions& options);

    // `bytes`: of the whole buffer. `root`: of broadcast and reduce.
    schedule::Plan choose(schedule::Collective collective, int64_t bytes, int root = 0) const;

    int rank_count() const { return rank_count_; }
    std::span<const Row> rows(schedule::Collective collective) const { return rows_[static_cast<size_t>(collective)]; }

    std::string to_text() const;
    static Selector from_text(std::string_view text);  // throws DataError naming the line
    std::string table() const;                         // for people

private:
    static constexpr size_t kCollectives = 5;

    int rank_count_ = 1;
    std::vector<Row> rows_[kCollectives];  // by collective, growing bytes; never empty
};

}  // namespace lockstep
