// By what a communicator over a transport chooses its schedules: one table for all ranks, one for the ranks of equal place on their
// nodes (a rail), and from how many bytes the way through the nodes is taken. Decided by rank 0, then the same text on all ranks.
//
// Unless SumOrder::any is asked for, an automatic choice takes only schedules whose sums follow the one tree over the ranks
// (schedule.h), and the way through the nodes only where it follows that tree too, or always. So a table, measured or not, decides
// about time and never about a bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/schedule/link_model.h"
#include "collectives/selector.h"

namespace lockstep {

enum class Probing : uint8_t {
    never,     // the default table
    unknown,   // the table that `lockstep tune` has kept for these machines, else links measured at the start, in under a second
    thorough,  // links and schedules are measured and the table is kept
};

// What a choice of schedules may change besides time.
enum class SumOrder : uint8_t {
    any,           // the order of additions: `auto` takes what is fastest
    of_one_world,  // nothing: `auto` keeps to the one tree over the ranks; a schedule that is named may leave it
    of_any_world,  // nothing, and a named schedule that leaves the tree is an error
};

// comm.algorithm and what belongs to it. What rank 0 has is what counts for probing and cache_folder; the others are compared.
struct PlanOptions {
    static constexpr int64_t kChosen = -1;

    std::string algorithm = "auto";             // auto | hierarchical | a schedule's name
    int64_t radix = 0;                          // of exchange and halving_doubling; 0: chosen
    int64_t chunks = 0;                         // of ring, tree and double_tree: pieces in the pipeline; 0: chosen
    int64_t hierarchical_from_bytes = kChosen;  // over several nodes: smaller ones are not summed inside the nodes first
    SumOrder order = SumOrder::of_one_world;
    Probing probing = Probing::never;
    std::string cache_folder;  // of kept tables; empty: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep
};

// Throws ConfigError for an unknown algorithm, for numbers that the named one does not have, and with SumOrder::of_any_world for
// an algorithm no plan of which follows the tree on so many ranks.
void check_plan_options(const PlanOptions& options, int rank_count);

// Where the ranks are.
struct RankLayout {
    int rank_count = 1;
    int node_count = 1;           // above 1 only where gradients may go through the nodes' memory
    int local_count = 1;          // ranks of the smallest node: so many rails
    bool keeps_rank_tree = true;  // a sum inside the nodes first is the tree over all ranks: equal nodes of powers of two, in order
};

struct MeasuredLinks {
    LinkModel all;   // between all ranks; the wire as a rank sees it while the others of its node use it too
    LinkModel node;  // between the ranks of a node
};

struct Tuning {
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

    std::string origin = "the default table";  // one line: where the choice comes from
    std::optional<MeasuredLinks> links;        // none: nothing was measured
    int64_t hierarchical_from_bytes = kNever;
    Selector flat;                  // over all ranks
    std::optional<Selector> rails;  // over the nodes

    bool through_nodes(int64_t bytes) const { return bytes >= hierarchical_from_bytes; }
    // Of an allreduce of gradients, by formula from the links; none where nothing was measured.
    std::optional<double> predicted_us(int64_t bytes) const;
    // How an allreduce of gradients is carried out: "exchange(4)", "through the nodes, ring(8 chunks) between them".
    std::string describe_choice(int64_t bytes) const;
    std::string describe_links() const;  // one line; empty where nothing was measured

    std::string to_text() const;
    static Tuning from_text(std::string_view text);  // throws DataError
    std::string table() const;                       // for people: the allreduce's rows
};

// A pure function. `links`: none gives the default table. Throws ConfigError when a forced way through the nodes leaves the tree
// that SumOrder::of_any_world asks for.
Tuning decide_tuning(const RankLayout& layout, const std::optional<MeasuredLinks>& links, std::span<const MeasuredFactor> factors,
                     const PlanOptions& options);

// What decide_tuning limits its selectors to.
SelectorOptions selector_options(const PlanOptions& options);

// Tables kept by `lockstep tune`, one file for each fingerprint: text of all that a table depends on (hosts, ranks, interface,
// settings, version). No file is no table; a damaged file is no table and a warning.
std::filesystem::path tuning_file(const std::string& cache_folder, std::string_view fingerprint);
void save_tuning(const std::filesystem::path& file, std::string_view fingerprint, const Tuning& tuning);  // atomic; DeviceError
std::optional<Tuning> load_tuning(const std::filesystem::path& file, std::string_view fingerprint);

}  // namespace lockstep
