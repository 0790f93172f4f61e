// The loader's statistics as metrics.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data_loader/loader.h"

namespace lockstep {

// Appends the keys data.* of an interval: what came between two looks at the loader's statistics, which took `seconds`.
//   data.wait_share                of the interval, next() waited
//   data.images_per_s_per_thread   images over the time that the workers spent on them
//   data.ready_batches             that lay ready when one was asked for, mean
//   data.read_mb_per_s             stored bytes of the images taken
//   data.workers, data.bad_images  now
// Nothing for an interval without a batch.
void add_data_metrics(const LoaderStatistics& before, const LoaderStatistics& now, double seconds,
                      std::vector<std::pair<std::string, double>>& values);

}  // namespace lockstep
