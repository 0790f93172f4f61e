#include "bench/step_bench.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "models/models.h"
#include "optim/optimizer.h"

namespace lockstep::bench {

namespace {

double ms_since(int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) / 1e6; }

// Sizes for which the models are known.
ModelOptions model_options(const StepBenchOptions& options) {
    const bool cifar = options.model == "resnet20" || options.model == "resnet32" || options.model == "resnet44" ||
                       options.model == "resnet56" || options.model == "resnet110" || options.model.starts_with("tiny") ||
                       options.model.starts_with("cifar10");
    const bool mnist = options.model == "mnist_cnn";
    ModelOptions model{.arch = options.model,
                       .num_classes = cifar || mnist ? 10 : 1000,
                       .image_size = mnist                             ? 28
                                     : cifar                           ? 32
                                     : options.model == "inception_v3" ? 299
                                                                       : 224};
    if (mnist) model.channels = 1;
    if (options.image_size > 0) model.image_size = options.image_size;
    if (options.num_classes > 0) model.num_classes = options.num_classes;
    return model;
}

// Everything a step needs, made before the first one.
class Bench {
public:
    Bench(const StepBenchOptions& options, const Graph& graph)
        : backend_(make_backend(options.backend, {.threads = options.threads, .precision = options.precision})),
          optimizer_(make_sgd({}, options.threads)),
          arena_(backend_->plan_parameters(graph, options.batch), pool_, pool_, optimizer_->state_buffer_count()),
          executor_(backend_->compile(graph, options.batch, Phase::training, arena_)),
          batch_(options.batch) {
        initialize_parameters(*backend_, arena_, 1);
        fill_batch(graph);
    }

    struct StepTimes {
        double forward_ms = 0.0, backward_ms = 0.0, optimizer_ms = 0.0, loss = 0.0;
        double total_ms() const { return forward_ms + backward_ms + optimizer_ms; }
    };

    StepTimes step() {
        StepTimes times;
        int64_t start_ns = now_ns();
        times.loss = executor_->forward(input()) / batch_;
        times.forward_ms = ms_since(start_ns);
        start_ns = now_ns();
        executor_->backward(false, nullptr);
        times.backward_ms = ms_since(start_ns);
        start_ns = now_ns();
        optimizer_->step(arena_, {.rate = 0.01, .images = static_cast<double>(batch_)});
        times.optimizer_ms = ms_since(start_ns);
        return times;
    }

    std::vector<OpTime> time_ops() { return executor_->time_ops(input()); }
    const Executor& executor() const { return *executor_; }
    std::string description() const { return backend_->description(); }

private:
    ForwardInput input() const { return {.images = images_, .labels = labels_, .dropout_key = 1}; }

    void fill_batch(const Graph& graph) {
        RandomStream random(1, "bench images");
        images_.resize(static_cast<size_t>(batch_ * graph.input().channels * graph.input().height * graph.input().width));
        for (float& value : images_) value = 2.0F * random.uniform() - 1.0F;
        const auto classes = static_cast<uint64_t>(class_count(graph));
        for (int image = 0; image < batch_; ++image) labels_.push_back(static_cast<int32_t>(random.below(classes)));
    }

    HeapPool pool_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Optimizer> optimizer_;
    ParameterArena arena_;
    std::unique_ptr<Executor> executor_;
    int batch_;
    std::vector<float> images_;
    std::vector<int32_t> labels_;
};

// Median per op over a few timed steps, then summed by kind: a disturbed step does not shift the picture.
std::vector<KindTime> time_layers(Bench& bench, int repeats) {
    std::vector<std::vector<OpTime>> runs;
    for (int repeat = 0; repeat < repeats; ++repeat) runs.push_back(bench.time_ops());
    std::map<std::string, KindTime> kinds;
    for (size_t op = 0; op < runs[0].size(); ++op) {
        std::vector<double> forward_ms, backward_ms;
        for (const std::vector<OpTime>& run : runs) {
            forward_ms.push_back(run[op].forward_ms);
            backward_ms.push_back(run[op].backward_ms);
        }
        KindTime& kind = kinds[runs[0][op].kind];
        kind.kind = runs[0][op].kind;
        ++kind.ops;
        kind.forward_ms += spread_of(forward_ms).median;
        kind.backward_ms += spread_of(backward_ms).median;
    }
    std::vector<KindTime> result;
    for (auto& [name, kind] : kinds) result.push_back(kind);
    std::ranges::sort(result, std::greater(), [](const KindTime& kind) { return kind.forward_ms + kind.backward_ms; });
    return result;
}

// Forward, input gradient and weight gradient cost the same; the ops that read the images need no input gradient.
double training_macs(const Graph& graph) {
    const std::vector<FeatureShape> shapes = infer_shapes(graph);
    double macs = 3.0 * static_cast<double>(forward_macs_per_image(graph));
    for (size_t index = 1; index < graph.ops.size(); ++index) {
        const auto* conv = std::get_if<ConvOp>(&graph.ops[index].attributes);
        if (conv == nullptr || graph.ops[index].inputs[0] != 0) continue;
        macs -= static_cast<double>(shapes[index].count() * (shapes[0].channels / conv->groups) * conv->kernel_h * conv->kernel_w);
    }
    return macs;
}

}  // namespace

StepBenchResult run_step_bench(const StepBenchOptions& options) {
    if (options.batch < 1 || options.steps < 1 || options.warmup_steps < 1 || options.threads < 1) {
        throw ConfigError("bench step: batch, threads, steps and warm-up steps must be at least 1");
    }
    const ModelOptions model = model_options(options);
    const Graph graph = build_model(model);
    Bench bench(options, graph);
    StepBenchResult result{.options = options, .training_macs_per_image = training_macs(graph)};
    result.options.image_size = model.image_size;
    result.options.num_classes = model.num_classes;
    result.first_loss = bench.step().loss;
    for (int step = 1; step < options.warmup_steps; ++step) bench.step();

    std::vector<double> total_ms, images_per_s, forward_ms, backward_ms, optimizer_ms;
    for (int step = 0; step < options.steps; ++step) {
        const Bench::StepTimes times = bench.step();
        total_ms.push_back(times.total_ms());
        images_per_s.push_back(options.batch * 1e3 / times.total_ms());
        forward_ms.push_back(times.forward_ms);
        backward_ms.push_back(times.backward_ms);
        optimizer_ms.push_back(times.optimizer_ms);
        result.last_loss = times.loss;
    }
    result.step_ms = spread_of(total_ms);
    result.images_per_s = spread_of(images_per_s);
    result.forward_ms = spread_of(forward_ms).median;
    result.backward_ms = spread_of(backward_ms).median;
    result.optimizer_ms = spread_of(optimizer_ms).median;
    result.memory = bench.executor().memory();
    result.backend_description = bench.description();
    if (options.layers) result.layers = time_layers(bench, 3);
    return result;
}

}  // namespace lockstep::bench
