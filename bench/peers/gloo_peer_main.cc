// Gloo in the allreduce benchmark. Setting "algorithm": ring (its default) and bcube are functions that make their buffers in every
// call; ring_chunked and halving_doubling are objects that are made once per turn.
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/config.h>
#include <gloo/math.h>

#include "bench/contestant.h"
#include "bench/peers/meeting_point.h"
#include "collectives/gloo/gloo_device.h"
#include "core/error.h"
#include "core/tensor.h"

namespace lockstep::bench {

namespace {

class GlooAllreducer final : public Allreducer {
public:
    GlooAllreducer(const ContestantPlan& plan, int rank)
        : algorithm_(plan.setting("algorithm")),
          buffer_(HeapPool().allocate(static_cast<size_t>(plan.buffer_count) * sizeof(float))),
          meeting_(plan, rank) {
        context_ = connect_mesh(meeting_.world(), meeting_.store(), "bench", {.interface = plan.interface});
    }

    std::string version() const override {
        return fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
    }
    std::span<float> buffer() override { return buffer_.f32(); }

    void prepare(TensorViews unit) override {
        unit_ = unit;
        made_.clear();
        if (is_function()) return;
        for (const std::span<float> tensor : unit) made_.push_back(make(tensor));
    }

    void allreduce() override {
        for (const auto& algorithm : made_) algorithm->run();
        if (!is_function()) return;
        for (const std::span<float> tensor : unit_) call(tensor);
    }

private:
    bool is_function() const { return algorithm_ == "ring" || algorithm_ == "bcube"; }

    std::unique_ptr<gloo::Algorithm> make(std::span<float> tensor) {
        const std::vector<float*> pointers{tensor.data()};
        const auto count = static_cast<int>(tensor.size());
        if (algorithm_ == "ring_chunked") return std::make_unique<gloo::AllreduceRingChunked<float>>(context_, pointers, count);
        if (algorithm_ == "halving_doubling") {
            return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, count);
        }
        throw ConfigError(fmt::format("Gloo has no algorithm `{}`", algorithm_));
    }

    void call(std::span<float> tensor) {
        gloo::AllreduceOptions options(context_);
        using Algorithm = gloo::AllreduceOptions::Algorithm;
        options.setAlgorithm(algorithm_ == "bcube" ? Algorithm::BCUBE : Algorithm::RING);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        options.setOutput(tensor.data(), tensor.size());
        gloo::allreduce(options);
    }

    const std::string algorithm_;
    Buffer buffer_;
    MeetingPoint meeting_;
    std::shared_ptr<gloo::rendezvous::Context> context_;
    TensorViews unit_;
    std::vector<std::unique_ptr<gloo::Algorithm>> made_;
};

int body(const ContestantPlan& plan) {
    bind_to_cores(plan, plan.rank);
    GlooAllreducer library(plan, plan.rank);
    take_turns(plan, plan.rank, library);
    return 0;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::run_contestant(argc, argv, lockstep::bench::body); }
