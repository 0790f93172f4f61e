#include "bench/synthetic_step.h"

#include "core/clock.h"
#include "core/random.h"
#include "nn/convolution_cache.h"

namespace lockstep::bench {

namespace {

double ms_since(int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) / 1e6; }

}  // namespace

ModelOptions usual_model(const std::string& arch) {
    const bool cifar = arch == "resnet20" || arch == "resnet32" || arch == "resnet44" || arch == "resnet56" ||
                       arch == "resnet110" || arch.starts_with("tiny") || arch.starts_with("cifar10");
    const bool mnist = arch == "mnist_cnn";
    ModelOptions model{.arch = arch,
                       .num_classes = cifar || mnist ? 10 : 1000,
                       .image_size = mnist                    ? 28
                                     : cifar                  ? 32
                                     : arch == "inception_v3" ? 299
                                                              : 224};
    if (mnist) model.channels = 1;
    return model;
}

SyntheticStep::SyntheticStep(const Graph& graph, const SyntheticStepOptions& options)
    : backend_(make_backend(options.backend, options.compute)),
      optimizer_(make_sgd(options.optimizer, options.compute.threads)),
      arena_(backend_->plan_parameters(graph, options.batch), pool_, pool_, optimizer_->state_buffer_count()),
      executor_(compile(graph, options)),
      batch_(options.batch),
      trains_(options.phase == Phase::training) {
    initialize_parameters(*backend_, arena_, 1);
    fill_batch(graph);
}

std::unique_ptr<Executor> SyntheticStep::compile(const Graph& graph, const SyntheticStepOptions& options) {
    if (options.compute.autotune == Autotune::measure && !options.compute.exact_convolution) {
        backend_->use_convolutions(
            measured_convolutions(*backend_, graph, options.batch, options.phase, arena_, options.cache_folder));
    }
    return backend_->compile(graph, options.batch, options.phase, arena_);
}

size_t SyntheticStep::parameter_bytes() const {
    return static_cast<size_t>(arena_.total_count()) * sizeof(float) * static_cast<size_t>(2 + arena_.state_buffer_count());
}

void SyntheticStep::fill_batch(const Graph& graph) {
    RandomStream random(1, "bench images");
    images_.resize(static_cast<size_t>(batch_ * graph.input().channels * graph.input().height * graph.input().width));
    for (float& value : images_) value = 2.0F * random.uniform() - 1.0F;
    const auto classes = static_cast<uint64_t>(class_count(graph));
    for (int image = 0; image < batch_; ++image) labels_.push_back(static_cast<int32_t>(random.below(classes)));
}

SyntheticStep::Times SyntheticStep::run() {
    Times times;
    int64_t start_ns = now_ns();
    times.loss = executor_->forward(input()) / batch_;
    times.forward_ms = ms_since(start_ns);
    if (!trains_) return times;
    start_ns = now_ns();
    executor_->backward(false, nullptr);
    times.backward_ms = ms_since(start_ns);
    start_ns = now_ns();
    optimizer_->step(arena_, {.rate = 0.01, .images = static_cast<double>(batch_)});
    times.update_ms = ms_since(start_ns);
    return times;
}

}  // namespace lockstep::bench
