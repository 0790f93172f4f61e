#include "trainer/data_metrics.h"

#include <algorithm>
#include <numeric>

namespace lockstep {

namespace {

double work_s(const LoaderStatistics& statistics) {
    return 1e-9 * static_cast<double>(std::accumulate(statistics.stages.begin(), statistics.stages.end(), int64_t{0}));
}

}  // namespace

void add_data_metrics(const LoaderStatistics& before, const LoaderStatistics& now, double seconds,
                      std::vector<std::pair<std::string, double>>& values) {
    const auto batches = static_cast<double>(now.batches - before.batches);
    if (batches <= 0.0 || seconds <= 0.0) return;
    // Batches are made ahead: the images made in an interval are not those taken in it, so costs of an image are those of the run.
    const double made = std::max(1.0, static_cast<double>(now.made));
    const double taken = static_cast<double>(now.images - before.images);
    values.emplace_back("data.wait_share", std::min(1.0, 1e-9 * static_cast<double>(now.wait_ns - before.wait_ns) / seconds));
    values.emplace_back("data.images_per_s_per_thread", made / std::max(work_s(now), 1e-9));
    values.emplace_back("data.ready_batches", static_cast<double>(now.ready_batches - before.ready_batches) / batches);
    values.emplace_back("data.read_mb_per_s", 1e-6 * static_cast<double>(now.read_bytes) / made * taken / seconds);
    values.emplace_back("data.workers", now.workers);
    values.emplace_back("data.bad_images", static_cast<double>(now.bad_images));
}

}  // namespace lockstep
