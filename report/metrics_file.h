// metrics.jsonl: one JSON object a line, `{"step":12,"epoch":0.5,"train.loss":1.25}`. Numbers that are not finite are null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "report/records.h"

namespace lockstep {

// Appends the line with its newline to `out`; allocates only while `out` grows.
void format_metrics_line(const MetricsLine& line, fmt::memory_buffer& out);

// Rewrites the file with its whole lines of steps < start_step; anything else in it is dropped. No file: nothing happens.
void keep_metrics_before(const std::filesystem::path& path, int64_t start_step);

// Lines that are not metrics are left out; null values too. A missing file gives none.
std::vector<MetricsLine> read_metrics(const std::filesystem::path& path);

}  // namespace lockstep
