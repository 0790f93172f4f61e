#include "data_loader/epoch_order.h"

#include <utility>

#include "core/error.h"

namespace lockstep {

EpochOrder::EpochOrder(const Sampler& sampler, int64_t first_epoch, int64_t last_epoch)
    : sampler_(sampler), last_epoch_(last_epoch), present_(sampler.permutation(first_epoch)), present_epoch_(first_epoch) {
    if (last_epoch <= first_epoch) return;
    next_.resize(present_.size());
    thread_ = std::jthread([this, first_epoch](std::stop_token stop) { work(stop, first_epoch); });
}

std::span<const int64_t> EpochOrder::get(int64_t epoch) {
    if (epoch == present_epoch_) return present_;
    check(epoch == present_epoch_ + 1 && epoch <= last_epoch_, "EpochOrder::get: epochs are asked for in turn");
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return next_ready_; });
        std::swap(present_, next_);
        ++present_epoch_;
        next_ready_ = false;
    }
    changed_.notify_all();
    return present_;
}

void EpochOrder::work(std::stop_token stop, int64_t first_epoch) {
    for (int64_t epoch = first_epoch + 1; epoch <= last_epoch_; ++epoch) {
        sampler_.permutation(epoch, next_);
        std::unique_lock lock(mutex_);
        next_ready_ = true;
        changed_.notify_all();
        if (!changed_.wait(lock, stop, [this] { return !next_ready_; })) return;
    }
}

}  // namespace lockstep
