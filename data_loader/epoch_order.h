// The permutations of the epochs in turn. The next one is computed by a thread of its own while the present one is used, so that
// nobody waits for it at the border.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "data_loader/sampler.h"

namespace lockstep {

class EpochOrder {
public:
    // Epochs [first_epoch, last_epoch]. Computes the first at once.
    EpochOrder(const Sampler& sampler, int64_t first_epoch, int64_t last_epoch);

    // The order of `epoch`: the present one or the one after it. Valid until a later epoch is asked for. One caller at a time.
    std::span<const int64_t> get(int64_t epoch);

private:
    void work(std::stop_token stop, int64_t first_epoch);

    const Sampler sampler_;
    const int64_t last_epoch_;
    std::vector<int64_t> present_, next_;
    int64_t present_epoch_;

    std::mutex mutex_;
    std::condition_variable_any changed_;
    bool next_ready_ = false;  // guarded by mutex_; while false, next_ belongs to the thread
    std::jthread thread_;      // last: stops before the rest dies
};

}  // namespace lockstep
