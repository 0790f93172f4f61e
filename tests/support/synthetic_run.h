// A made-up data-parallel run with known answers: what the recorder of every rank would have seen.
//
// Buckets become ready at equal distances during backward, run one after the other, begin moving bytes when the last rank has
// started, and take their transfer time; all ranks leave a bucket together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "report/record_file.h"

namespace lockstep::testing_support {

struct SyntheticRun {
    int rank_count = 2;
    int64_t step_count = 20;
    int64_t images_per_rank = 32;
    int64_t data_wait_ns = 0, forward_ns = 10'000'000, backward_ns = 20'000'000, optimizer_ns = 2'000'000, other_ns = 0;
    std::vector<int64_t> transfer_ns = {1'000'000, 1'000'000};  // per bucket
    int64_t bucket_bytes = 8 << 20;
    bool records_arrival = true;  // false: as from a backend that cannot tell
    // Added to what a rank does in a step.
    std::function<int64_t(int rank, int64_t step)> extra_data_wait_ns, extra_forward_ns;
};

RunFacts synthetic_facts(const SyntheticRun& plan, int rank);
RunRecords make_synthetic_run(const SyntheticRun& plan);

// Through the recorder into a run folder, with metrics of a plausible training.
void write_synthetic_run(const SyntheticRun& plan, const std::filesystem::path& run_dir);

}  // namespace lockstep::testing_support
