// How the loader kept up: how long steps waited for data, what its threads make, and what would help.
#pragma once

#include <optional>
#include <span>

#include "report/analysis.h"
#include "report/records.h"

namespace lockstep {

// From the keys data.* of the last metrics line that has them; nullopt for a run without, or without steady steps.
std::optional<DataSupply> data_supply(const RunAnalysis& analysis, std::span<const MetricsLine> metrics);

}  // namespace lockstep
