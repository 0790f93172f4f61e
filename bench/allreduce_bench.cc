#include "bench/allreduce_bench.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "bench/allreduce_contestants.h"
#include "bench/contestant_group.h"
#include "bench/statistics.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/nearest.h"
#include "core/temporary_folder.h"

namespace lockstep::bench {

namespace {

constexpr int kFirstCalls = 12;          // some libraries change their method after the first few
constexpr int kMostCallsPerTurn = 1000;  // keeps messages short
constexpr int kFewestCallsPerTurn = 2;
constexpr int64_t kMostOddHalf = 50'000;  // the odd size that is only checked is below twice this many floats

std::string control_in(const TemporaryFolder& folder) {
    if (folder.path().empty())
        throw DeviceError("bench allreduce: cannot make a temporary folder; set TMPDIR to one that can be written");
    return (folder.path() / "control").string();
}

struct Entrant {
    Contestant contestant;
    std::unique_ptr<ContestantGroup> group;  // null: not in any more
    // Of the unit that is being measured.
    int calls_per_turn = 1;
    std::vector<double> us;
    double cpu_s = 0, link_bytes = 0;  // sums over turns of means per call
    int turns = 0;
};

int cores_allowed() {
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

class Driver {
public:
    explicit Driver(const AllreduceBenchOptions& options)
        : options_(options), lab_(LabMap::from_environment()), listener_(control_in(folder_)) {
        plan_.control = control_in(folder_);
        plan_.rank_count = options.rank_count;
        plan_.ranks_per_node = lab_.ranks_per_node(options.rank_count);
        plan_.store_host = lab_.exists() ? lab_.nodes[0].address : "127.0.0.1";
        plan_.interface = lab_.exists() ? "lab0" : "";
        const int cores = cores_allowed();
        result_.oversubscribed = options.rank_count > cores;
        if (!lab_.exists() && !result_.oversubscribed) plan_.cores_per_rank = cores / options.rank_count;
        plan_.yields = result_.oversubscribed || lab_.exists();  // packets are carried by a process that needs a core as well
        for (const AllreduceUnit& unit : options.units) {
            std::vector<int64_t> offsets;
            plan_.buffer_count = std::max(plan_.buffer_count, place_tensors(unit.counts, offsets) + 1);
        }
        result_.options = options;
        result_.machine = machine_facts();
        result_.link = lab_.link;
        result_.cores_per_rank = plan_.cores_per_rank;
    }

    AllreduceBenchResult run() {
        const CpuTimes before = cpu_times();
        for (const Contestant& contestant : present(contestants_for(options_))) start(contestant);
        folder_.remove();  // all have met: nothing is left behind, however this ends
        check_odd_sizes();
        for (const AllreduceUnit& unit : options_.units) measure(unit);
        entrants_.clear();
        result_.steal_share = steal_share(before, cpu_times());
        return std::move(result_);
    }

private:
    // Without those whose program is not there, which are named in the result once.
    std::vector<Contestant> present(const std::vector<Contestant>& all) {
        std::vector<Contestant> some;
        for (const Contestant& contestant : all) {
            const std::string reason = why_missing(contestant.name, options_.program_folder);
            if (reason.empty()) {
                some.push_back(contestant);
            } else if (result_.missing.empty() || result_.missing.back().name != contestant.name) {
                result_.missing.push_back({.name = contestant.name, .reason = reason});
            }
        }
        return some;
    }

    void start(const Contestant& contestant) {
        plan_.number = static_cast<int>(entrants_.size() + result_.failures.size());
        plan_.folder = (folder_.path() / std::to_string(plan_.number)).string();
        plan_.settings = contestant.settings;
        make_directories(plan_.folder);
        try {
            auto group = std::make_unique<ContestantGroup>(commands_for(contestant, plan_, lab_, options_.program_folder),
                                                           plan_.number, options_.rank_count, listener_, options_.timeout_s);
            result_.contestants.push_back({contestant.name, contestant.setting, group->version(), contestant.how()});
            entrants_.push_back({.contestant = contestant, .group = std::move(group)});
        } catch (const Error& error) {
            result_.failures.push_back({contestant.name, contestant.setting, "start", error.what()});
        }
    }

    // One turn; a contestant that fails is out, with the reason in the result.
    std::optional<TurnOutcome> take_turn(Entrant& entrant, const std::string& unit, const Turn& turn) {
        if (entrant.group == nullptr) return std::nullopt;
        try {
            return entrant.group->take_turn(turn);
        } catch (const Error& error) {
            result_.failures.push_back({entrant.contestant.name, entrant.contestant.setting, unit, error.what()});
            entrant.group.reset();
            return std::nullopt;
        }
    }

    // A size that is odd and does not begin on a cache line must give the right sum too. Not timed.
    void check_odd_sizes() {
        const int64_t most = (plan_.buffer_count - 1) / 2;
        const int64_t count = 2 * static_cast<int64_t>(random_() % static_cast<uint64_t>(std::min(most, kMostOddHalf))) + 1;
        const Turn turn{.counts = {count}, .shift = 1, .iterations = 1, .seed = next_seed()};
        for (Entrant& entrant : entrants_) take_turn(entrant, fmt::format("{} floats, misaligned", count), turn);
    }

    void measure(const AllreduceUnit& unit) {
        if (options_.progress) fmt::print(stderr, "{}\n", unit.label);
        for (Entrant& entrant : entrants_) warm_up(entrant, unit);
        for (int round = 0; round < options_.rounds; ++round) {
            for (Entrant& entrant : entrants_) {
                const Turn turn{.counts = unit.counts, .iterations = entrant.calls_per_turn, .seed = next_seed()};
                const std::optional<TurnOutcome> outcome = take_turn(entrant, unit.label, turn);
                if (!outcome) continue;
                entrant.us.insert(entrant.us.end(), outcome->us.begin(), outcome->us.end());
                entrant.cpu_s += outcome->cpu_s;
                entrant.link_bytes += outcome->link_bytes;
                ++entrant.turns;
            }
        }
        add_rows(unit);
    }

    // Finds how many calls fill a turn, rewriting and checking included.
    void warm_up(Entrant& entrant, const AllreduceUnit& unit) {
        entrant.us.clear();
        entrant.cpu_s = entrant.link_bytes = 0;
        entrant.turns = 0;
        const int calls = unit.byte_count() > (4 << 20) ? 1 : kFirstCalls;
        const int64_t start_ns = now_ns();
        take_turn(entrant, unit.label, {.counts = unit.counts, .iterations = calls, .seed = next_seed()});
        const double ms_per_call = static_cast<double>(now_ns() - start_ns) / 1e6 / (calls + 1);
        entrant.calls_per_turn =
            static_cast<int>(std::clamp(options_.turn_ms / ms_per_call, double{kFewestCallsPerTurn}, double{kMostCallsPerTurn}));
    }

    void add_rows(const AllreduceUnit& unit) {
        std::vector<AllreduceRow> forced;
        for (const Entrant& entrant : entrants_) {
            if (entrant.group == nullptr || entrant.turns == 0) continue;
            const AllreduceRow row = row_of(entrant, unit);
            (row.kind == "sweep" ? forced : result_.rows).push_back(row);
        }
        for (const std::string& peer : options_.peers) {
            const AllreduceRow* best = nullptr;
            for (const AllreduceRow& row : forced) {
                if (row.name == peer && (best == nullptr || row.median_us < best->median_us)) best = &row;
            }
            if (best == nullptr) continue;
            result_.rows.push_back(*best);
            result_.rows.back().kind = "best";
        }
        result_.sweep.insert(result_.sweep.end(), forced.begin(), forced.end());
    }

    static AllreduceRow row_of(const Entrant& entrant, const AllreduceUnit& unit) {
        const Spread us = spread_of(entrant.us);
        return {.unit = unit.label,
                .bytes = unit.byte_count(),
                .tensors = static_cast<int>(unit.counts.size()),
                .name = entrant.contestant.name,
                .setting = entrant.contestant.setting,
                .kind = entrant.contestant.kind,
                .calls = static_cast<int>(entrant.us.size()),
                .median_us = us.median,
                .p10_us = us.p10,
                .p99_us = us.p99,
                .cpu_s = entrant.cpu_s / entrant.turns,
                .link_bytes = entrant.link_bytes / entrant.turns};
    }

    uint32_t next_seed() { return static_cast<uint32_t>(random_()); }

    const AllreduceBenchOptions options_;
    TemporaryFolder folder_{"lockstep-bench"};
    const LabMap lab_;
    ControlListener listener_;
    ContestantPlan plan_;
    std::mt19937 random_{std::random_device{}()};
    AllreduceBenchResult result_;
    std::vector<Entrant> entrants_;
};

void check_options(const AllreduceBenchOptions& options) {
    if (options.rank_count < 2 || options.rank_count > 64) {
        throw ConfigError(fmt::format("--ranks {}: an allreduce needs 2 to 64 ranks", options.rank_count));
    }
    if (options.units.empty()) throw ConfigError("--sizes names no size; for example --sizes 4B,64KiB,1MiB");
    for (const std::string& peer : options.peers) {
        const std::vector<std::string> known = peer_names();
        if (std::ranges::find(known, peer) != known.end()) continue;
        const std::string nearest = nearest_name(peer, known);
        throw ConfigError(fmt::format("--peers: `{}` is not known{}; there are openmpi, mpich and gloo", peer,
                                      nearest.empty() ? "" : fmt::format(", did you mean `{}`", nearest)));
    }
}

}  // namespace

AllreduceBenchResult run_allreduce_bench(const AllreduceBenchOptions& options) {
    check_options(options);
    return Driver(options).run();
}

}  // namespace lockstep::bench
