#include "nn/onednn/measure_convolutions.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace lockstep::onednn {

namespace {

constexpr int kRepeats = 5;  // medians of

// One pass over synthetic images, after which every step has something to work on.
void warm_up(OnednnExecutor& executor, const Graph& graph) {
    const InputOp& input = graph.input();
    const std::vector<float> images(static_cast<size_t>(executor.batch() * input.channels * input.height * input.width), 0.5F);
    const std::vector<int32_t> labels(static_cast<size_t>(executor.batch()), 0);
    executor.time_steps({.images = images, .labels = labels});
}

// The convolution that begins with this step, its copies before it included.
double time_convolution(OnednnExecutor& executor, const std::vector<StepFacts>& steps, size_t step) {
    double total_ms = 0.0;
    while (true) {
        total_ms += executor.time_alone(step, kRepeats);
        if (steps.at(step).what.starts_with("convolution")) return total_ms;
        ++step;
    }
}

}  // namespace

ConvolutionTable faster_convolutions(OnednnExecutor& direct, OnednnExecutor& winograd, const Graph& graph,
                                     const ConvolutionTable& known) {
    const std::vector<ChosenConvolution>& one = direct.convolutions();
    const std::vector<ChosenConvolution>& other = winograd.convolutions();
    check(one.size() == other.size(), "two ways to compute the same convolutions");
    ConvolutionTable table;
    std::vector<size_t> unknown;
    for (size_t index = 0; index < one.size(); ++index) {
        check(one[index].key == other[index].key, "two ways to compute the same convolutions");
        const auto found = known.codes.find(one[index].key);
        const bool is_new =
            table.codes.emplace(one[index].key, found == known.codes.end() ? ConvolutionCode::direct : found->second).second;
        if (is_new && found == known.codes.end()) unknown.push_back(index);
    }
    if (unknown.empty()) return table;
    warm_up(direct, graph);
    warm_up(winograd, graph);
    const std::vector<StepFacts> direct_steps = direct.steps(), winograd_steps = winograd.steps();
    for (const size_t index : unknown) {
        const double direct_ms = time_convolution(direct, direct_steps, one[index].first_step);
        const double winograd_ms = time_convolution(winograd, winograd_steps, other[index].first_step);
        if (winograd_ms < direct_ms) table.codes[one[index].key] = ConvolutionCode::winograd;
    }
    return table;
}

}  // namespace lockstep::onednn
