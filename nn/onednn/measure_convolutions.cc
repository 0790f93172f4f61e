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

ConvolutionTable faster_convolutions(OnednnExecutor& library, OnednnExecutor& own, const Graph& graph,
                                     const ConvolutionTable& known) {
    const std::vector<ChosenConvolution>& theirs = library.convolutions();
    const std::vector<ChosenConvolution>& ours = own.convolutions();
    check(theirs.size() == ours.size(), "two ways to compute the same convolutions");
    ConvolutionTable table;
    std::vector<size_t> unknown;
    for (size_t index = 0; index < theirs.size(); ++index) {
        const std::string& key = theirs[index].key;
        check(key == ours[index].key, "two ways to compute the same convolutions");
        const auto found = known.codes.find(key);
        const bool is_known = found != known.codes.end();
        const bool is_new = table.codes.emplace(key, is_known ? found->second : ConvolutionCode::direct).second;
        if (is_new && !is_known) unknown.push_back(index);
    }
    if (unknown.empty()) return table;
    warm_up(library, graph);
    warm_up(own, graph);
    const std::vector<StepFacts> their_steps = library.steps(), our_steps = own.steps();
    for (const size_t index : unknown) {
        const double their_ms = time_convolution(library, their_steps, theirs[index].first_step);
        const double our_ms = time_convolution(own, our_steps, ours[index].first_step);
        if (our_ms < their_ms) table.codes[ours[index].key] = ours[index].code;
    }
    return table;
}

}  // namespace lockstep::onednn
