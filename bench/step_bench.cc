#include "bench/step_bench.h"

#include <algorithm>
#include <map>
#include <set>

#include "bench/machine_facts.h"
#include "bench/synthetic_step.h"
#include "core/error.h"

namespace lockstep::bench {

namespace {

// Sizes for which the models are known.
ModelOptions model_options(const StepBenchOptions& options) {
    ModelOptions model = usual_model(options.model);
    if (options.image_size > 0) model.image_size = options.image_size;
    if (options.num_classes > 0) model.num_classes = options.num_classes;
    return model;
}

// Median per step over a few timed passes, then summed by kind: a disturbed pass does not shift the picture.
std::vector<KindTime> time_kinds(SyntheticStep& step, int repeats) {
    const std::vector<StepFacts> facts = step.executor().steps();
    std::vector<StepTimes> passes;
    for (int repeat = 0; repeat < repeats; ++repeat) passes.push_back(step.time_steps());
    std::map<std::string, KindTime> kinds;
    std::map<std::string, std::set<std::string>> ops;
    for (size_t index = 0; index < facts.size(); ++index) {
        std::vector<double> times_ms;
        for (const StepTimes& pass : passes) times_ms.push_back(pass.step_ms[index]);
        KindTime& kind = kinds[facts[index].kind];
        kind.kind = facts[index].kind;
        ops[kind.kind].insert(facts[index].op);
        (facts[index].part == StepFacts::Part::forward ? kind.forward_ms : kind.backward_ms) += spread_of(times_ms).median;
    }
    std::vector<KindTime> result;
    for (auto& [name, kind] : kinds) {
        kind.ops = static_cast<int>(ops[name].size());
        result.push_back(kind);
    }
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
    SyntheticStep bench(graph, {.backend = options.backend,
                                .compute = {.threads = options.threads,
                                            .precision = options.precision,
                                            .fusion = options.fusion,
                                            .autotune = options.autotune,
                                            .exact_convolution = options.exact_convolution,
                                            .recompute = options.recompute,
                                            .plain_between_ops = options.plain_between_ops,
                                            .share_memory = options.share_memory},
                                .batch = options.batch,
                                .phase = options.phase});
    const bool trains = options.phase == Phase::training;
    StepBenchResult result{.options = options,
                           .macs_per_image = trains ? training_macs(graph) : static_cast<double>(forward_macs_per_image(graph))};
    result.options.image_size = model.image_size;
    result.options.num_classes = model.num_classes;
    result.first_loss = bench.run().loss;
    for (int step = 1; step < options.warmup_steps; ++step) bench.run();

    std::vector<double> total_ms, images_per_s, forward_ms, backward_ms, optimizer_ms;
    for (int step = 0; step < options.steps; ++step) {
        const SyntheticStep::Times times = bench.run();
        total_ms.push_back(times.total_ms());
        images_per_s.push_back(options.batch * 1e3 / times.total_ms());
        forward_ms.push_back(times.forward_ms);
        backward_ms.push_back(times.backward_ms);
        optimizer_ms.push_back(times.update_ms);
        result.last_loss = times.loss;
    }
    result.step_ms = spread_of(total_ms);
    result.images_per_s = spread_of(images_per_s);
    result.forward_ms = spread_of(forward_ms).median;
    result.backward_ms = spread_of(backward_ms).median;
    result.optimizer_ms = spread_of(optimizer_ms).median;
    result.memory = bench.executor().memory();
    result.parameter_bytes = bench.parameter_bytes();
    result.peak_resident_bytes = peak_resident_bytes();
    result.backend_description = bench.description();
    if (options.layers) result.layers = time_kinds(bench, 3);
    return result;
}

}  // namespace lockstep::bench
