#include "bench/layer_times.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/copy_bandwidth.h"
#include "bench/machine_facts.h"
#include "core/error.h"

namespace lockstep::bench {

namespace {

constexpr int kAloneRepeats = 3;

// Of each op: its parameters' part of the arena.
std::vector<double> update_shares(const Graph& graph, const ParameterArena& arena) {
    const std::vector<ParameterOwner> owners = backward_order(graph);
    std::vector<double> shares(graph.ops.size(), 0.0);
    double total = 0.0;
    for (size_t entry = 0; entry < owners.size(); ++entry) {
        const auto count = static_cast<double>(arena.entries()[entry].physical_count);
        shares[static_cast<size_t>(owners[entry].op)] += count;
        total += count;
    }
    for (double& share : shares) share = total > 0.0 ? share / total : 0.0;
    return shares;
}

std::vector<double> medians_by_step(const std::vector<StepTimes>& passes) {
    std::vector<double> medians;
    for (size_t step = 0; step < passes.front().step_ms.size(); ++step) {
        std::vector<double> times_ms;
        for (const StepTimes& pass : passes) times_ms.push_back(pass.step_ms[step]);
        medians.push_back(spread_of(times_ms).median);
    }
    return medians;
}

double time_convolutions_alone(Executor& executor, const std::vector<StepFacts>& steps) {
    double total_ms = 0.0;
    for (size_t step = 0; step < steps.size(); ++step) {
        if (steps[step].what.starts_with("convolution")) total_ms += executor.time_alone(step, kAloneRepeats);
    }
    return total_ms;
}

// Appends `text` unless it is there already.
void add_code(std::string& codes, const std::string& text) {
    if (("/" + codes + "/").find("/" + text + "/") != std::string::npos) return;
    codes += (codes.empty() ? "" : "/") + text;
}

void add_step(LayerLine& line, const StepFacts& step, double ms) {
    const bool forward = step.part == StepFacts::Part::forward;
    (forward ? line.forward_ms : line.backward_ms) += ms;
    line.flop += step.flop;
    line.bytes += step.bytes;
    add_code(line.code, step.implementation);
    if (line.layout.empty()) line.layout = step.layout;
    if (line.group.empty()) line.group = step.group;
}

}  // namespace

void check_options(const LayerTimesOptions& options) {
    if (options.step.batch < 1 || options.iterations < 1) {
        throw ConfigError(
            fmt::format("time: batch {} and iterations {} must be at least 1", options.step.batch, options.iterations));
    }
}

std::vector<StepFacts> steps_of(SyntheticStep& step, const LayerTimesOptions& options) {
    std::vector<StepFacts> steps = step.executor().steps();
    if (!steps.empty()) return steps;
    throw ConfigError(
        fmt::format("time: backend {} cannot tell the times of its layers; use backend onednn", options.step.backend));
}

std::vector<LayerLine> layer_lines(const Graph& graph, const std::vector<StepFacts>& steps, const std::vector<double>& step_ms,
                                   const std::vector<double>& share_of_update, double update_ms) {
    check(steps.size() == step_ms.size() && graph.ops.size() == share_of_update.size(), "one time per step, one share per op");
    std::vector<LayerLine> lines;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
        LayerLine layer{.name = graph.ops[op].name, .update_ms = share_of_update[op] * update_ms};
        std::vector<LayerLine> reorders;
        for (size_t step = 0; step < steps.size(); ++step) {
            if (steps[step].op != layer.name) continue;
            layer.kind = steps[step].kind;
            if (!steps[step].is_reorder) {
                add_step(layer, steps[step], step_ms[step]);
                continue;
            }
            LayerLine& reorder = reorders.emplace_back(LayerLine{.name = layer.name, .kind = "reorder", .is_reorder = true});
            add_step(reorder, steps[step], step_ms[step]);
        }
        lines.push_back(std::move(layer));
        std::move(reorders.begin(), reorders.end(), std::back_inserter(lines));
    }
    return lines;
}

double LayerTimes::layers_ms() const {
    double sum = 0.0;
    for (const LayerLine& line : layers) sum += line.forward_ms + line.backward_ms + line.update_ms;
    return sum;
}

double LayerTimes::step_over_convolutions() const {
    return convolutions_alone_ms > 0.0 ? step_ms.median / convolutions_alone_ms : 0.0;
}

LayerTimes measure_layer_times(const LayerTimesOptions& options) {
    check_options(options);
    const Graph graph = build_model(options.model);
    LayerTimes result{.options = options};
    SyntheticStep step(graph, options.step);
    result.steps = steps_of(step, options);
    result.backend_description = step.description();

    result.loss = step.run().loss;
    step.time_steps();
    std::vector<double> total_ms, forward_ms, backward_ms, update_ms;
    std::vector<StepTimes> passes;
    for (int iteration = 0; iteration < options.iterations; ++iteration) {
        const SyntheticStep::Times times = step.run();
        total_ms.push_back(times.total_ms());
        forward_ms.push_back(times.forward_ms);
        backward_ms.push_back(times.backward_ms);
        update_ms.push_back(times.update_ms);
        passes.push_back(step.time_steps());
    }
    result.step_ms = spread_of(total_ms);
    result.forward_ms = spread_of(forward_ms).median;
    result.backward_ms = spread_of(backward_ms).median;
    result.update_ms = spread_of(update_ms).median;
    result.step_times_ms = medians_by_step(passes);
    result.layers = layer_lines(graph, result.steps, result.step_times_ms, update_shares(graph, step.arena()), result.update_ms);
    result.convolutions_alone_ms = time_convolutions_alone(step.executor(), result.steps);
    result.buffers = step.executor().memory_plan();
    result.memory = step.executor().memory();
    result.parameter_bytes = step.parameter_bytes();
    result.peak_resident_bytes = peak_resident_bytes();
    result.copy_gb_per_s = copy_bandwidth_gb_per_s(options.step.compute.threads);  // last: its buffers are no part of the peak
    return result;
}

}  // namespace lockstep::bench
