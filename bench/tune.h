// `lockstep tune`: the schedule table that a job's ranks have measured and kept, and how long an allreduce takes with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep::bench {

struct TuneRow {
    int64_t bytes = 0;
    std::string choice;
    double predicted_us = 0.0;  // by formula from the links
    double measured_us = 0.0;   // median of the slowest rank
};

struct TuneResult {
    std::string backend;
    int rank_count = 1;
    Tuning tuning;
    std::vector<TuneRow> rows;
};

// Collective; the communicator was made with Probing::thorough. Sizes that are predicted to take long are left out. Throws
// ConfigError where there is nothing to choose: shared memory on one node, gloo, a single rank.
TuneResult tune(Communicator& communicator);

std::string to_text(const TuneResult& result);
std::string to_json(const TuneResult& result);

}  // namespace lockstep::bench
