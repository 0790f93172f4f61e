// From records to answers. Pure: records in, numbers out. What a run is too short to tell is nullopt ("n/a"), never a guess.
//
// Rates, budgets and percentiles speak of the steady steps: those that all present ranks have, without the first few of the run
// and after each resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/record_file.h"
#include "report/step_budget.h"

namespace lockstep {

struct Percentiles {
    double p50 = 0.0, p95 = 0.0, p99 = 0.0;
};
// Nearest rank: a value that occurred. `values` must not be empty.
Percentiles percentiles(std::vector<double> values);
double median(std::vector<double> values);

struct RankSummary {
    int rank = 0;
    std::string host;
    int64_t steps = 0;   // recorded, whole window
    int64_t images = 0;  // in steady steps
    std::optional<double> images_per_s;
    std::optional<Percentiles> step_ms;
    std::optional<double> step_mean_ms;
    std::optional<PerPart<double>> mean_ms;  // adds up to step_mean_ms
    // Stragglers: in a step the rank is "last" when it delayed the others most. Only with several ranks.
    std::optional<double> last_share;        // of steady steps with communication
    std::optional<double> mean_lateness_ms;  // over the steps in which it was last
    std::string cause;                       // of that lateness: "data wait", "compute", ...; empty: none worth naming
};

// Times are medians over steady steps and ranks, relative to the step's begin.
struct BucketSummary {
    int32_t bucket = 0;
    BucketInfo info;
    double ready_ms = 0.0, start_ms = 0.0, arrived_ms = 0.0, end_ms = 0.0;
    double wait_ms = 0.0, transfer_ms = 0.0;               // medians of the durations
    std::optional<double> hidden_share;                    // of the transfer, behind compute
    std::optional<double> algbw_gb_per_s, busbw_gb_per_s;  // bytes / transfer time; times 2 (p - 1) / p
};

struct PauseSummary {
    Span::Kind kind = Span::Kind::evaluation;
    int64_t count = 0;     // of the rank with most
    double total_s = 0.0;  // of that rank
};

struct StepPoint {
    int64_t step = 0;
    double wall_ms = 0.0;  // of the slowest rank
};

// One thing that costs time, with the most that removing it could bring.
struct Loss {
    Part part = Part::other;
    double loss_ms = 0.0;               // per step, on the rank where it is largest
    double ceiling_gain_percent = 0.0;  // more images/s if all of it went away: an upper bound
    std::string text;                   // "arrival wait on bucket 2: rank 1 comes late (data wait)"
};

struct SyncModel {  // E = (Tf + Tb) / (Tf + max(Tb, M / B))
    double forward_ms = 0.0, backward_ms = 0.0;
    int64_t gradient_bytes = 0;                // M
    std::optional<double> bandwidth_gb_per_s;  // B = M / transfer time of a step; nullopt: nothing was transferred
    double efficiency = 1.0;
};

// How the loader kept up (report/data_supply.h).
struct DataSupply {
    double wait_share = 0.0;               // of the steady steps, mean over the ranks
    double images_per_s_per_thread = 0.0;  // of a loader thread of rank 0 that has work
    double workers = 0.0;                  // loader threads of rank 0 at the end
    double ready_batches = 0.0;            // that lay ready when a step came for one, mean
    double read_mb_per_s = 0.0;            // from storage or the page cache, rank 0
    std::string sentence;                  // with advice where steps wait
};

struct RunAnalysis {
    RunFacts facts;  // of the lowest present rank
    std::vector<int> missing_ranks;
    std::vector<std::string> warnings;
    int64_t first_step = 0, last_step = -1;  // of the window
    int64_t common_steps = 0;                // steps that all present ranks have
    int64_t steady_steps = 0;
    int64_t skipped_steps = 0;

    std::optional<double> images_per_s;                                // all ranks
    std::optional<Percentiles> step_ms;                                // the slowest rank's step is the step
    std::optional<double> step_mean_ms;                                // mean over ranks and steps
    std::optional<PerPart<double>> mean_ms;                            // mean over ranks; adds up to step_mean_ms
    std::optional<PerPart<double>> sd_ms;                              // over ranks
    std::optional<double> sync_efficiency;                             // 1 - exposed_transfer_share - arrival_wait_share, in [0, 1]
    std::optional<double> exposed_transfer_share, arrival_wait_share;  // of the step
    std::optional<double> overlap_share;                               // hidden part of all transfer
    std::optional<SyncModel> model;

    std::vector<RankSummary> ranks;
    std::vector<BucketSummary> buckets;
    std::vector<PauseSummary> pauses;
    std::optional<DataSupply> data;                         // comes from the metrics, not from analyze()
    std::vector<StepPoint> curve;                           // all common steps
    std::vector<Loss> losses;                               // largest first
    std::string headline;                                   // one sentence
    double backward_begin_ms = 0.0, backward_end_ms = 0.0;  // from the step's begin; medians over steady steps
    std::optional<int64_t> typical_step;                    // a steady step of median length
    std::optional<double> clock_error_ms;                   // bound of the alignment between hosts; nullopt: one host, one clock
};

// Moves the times of ranks on other hosts onto the first rank's clock, so that spans compare. All ranks leave an allreduce
// together: a host's offset is the median difference of its first rank's last bucket ends to the first rank's, per session. Sets
// `clock_error_ms` to the largest residual (95th percentile) as the bound; it stays empty when all ranks share a host.
void align_clocks(RunRecords& run);

// Expects aligned clocks.
RunAnalysis analyze(const RunRecords& run, int64_t skip_first_steps);

// One rank's step with everything a timeline shows.
struct TimelineStep {
    int rank = 0;
    StoredStep step;
    std::vector<BucketTimes> buckets;
    std::vector<Span> pauses;  // just before it
};
// The steps in [first_step, last_step] that all ranks have: ascending by step, then rank. Expects aligned clocks.
std::vector<TimelineStep> timeline_of(const RunRecords& run, int64_t first_step, int64_t last_step);

}  // namespace lockstep
