// `lockstep time`: how steps become lines, and that its sums are sums. No test looks at how fast anything is.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/caffe_times.h"
#include "bench/copy_bandwidth.h"
#include "bench/layer_times.h"
#include "core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerTimesOptions tiny(Phase phase = Phase::training) {
    LayerTimesOptions options{.model = usual_model("tiny_bn"), .iterations = 2};
    options.model.image_size = 16;
    options.step.batch = 2;
    options.step.phase = phase;
    return options;
}

// A network of one layer in three steps, one of them a reorder.
std::vector<StepFacts> three_steps() {
    using Part = StepFacts::Part;
    return {
        {.op = "fc",
         .kind = "fully_connected",
         .part = Part::forward,
         .implementation = "gemm",
         .layout = "ab",
         .flop = 10,
         .bytes = 8},
        {.op = "fc", .kind = "fully_connected", .part = Part::backward, .implementation = "simple", .bytes = 4, .is_reorder = true},
        {.op = "fc", .kind = "fully_connected", .part = Part::backward, .implementation = "gemm", .flop = 20, .bytes = 16}};
}

Graph graph_of_fc() {
    Graph graph{.name = "fc"};
    graph.add("input", InputOp{.channels = 1, .height = 1, .width = 1}, {});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 2}, {0})});
    return graph;
}

TEST(LayerLines, StepsOfAnOpMakeOneLineAndReordersTheirOwn) {
    const std::vector<LayerLine> lines = layer_lines(graph_of_fc(), three_steps(), {1.0, 2.0, 4.0}, {0.0, 1.0, 0.0}, 8.0);
    ASSERT_EQ(lines.size(), 4U);
    const LayerLine& fc = lines[1];
    EXPECT_EQ(fc.name, "fc");
    EXPECT_EQ(fc.code, "gemm");
    EXPECT_EQ(fc.layout, "ab");
    EXPECT_EQ(fc.forward_ms, 1.0);
    EXPECT_EQ(fc.backward_ms, 4.0);
    EXPECT_EQ(fc.update_ms, 8.0);
    EXPECT_DOUBLE_EQ(fc.gflop_per_s(), 30.0 / 5e-3 / 1e9);
    EXPECT_DOUBLE_EQ(fc.gb_per_s(), 24.0 / 5e-3 / 1e9);
    EXPECT_FALSE(fc.is_memory_bound());
    EXPECT_TRUE(lines[2].is_reorder);
    EXPECT_EQ(lines[2].backward_ms, 2.0);
    EXPECT_TRUE(lines[2].is_memory_bound());
}

TEST(LayerTimesOf, TinyNetworkAddsUp) {
    const LayerTimes times = measure_layer_times(tiny());
    double steps_ms = 0.0, lines_ms = 0.0, update_ms = 0.0, flop = 0.0;
    for (const double ms : times.step_times_ms) steps_ms += ms;
    for (const LayerLine& line : times.layers) {
        lines_ms += line.forward_ms + line.backward_ms;
        update_ms += line.update_ms;
        flop += line.flop;
    }
    EXPECT_NEAR(lines_ms, steps_ms, 1e-9 * steps_ms);
    EXPECT_NEAR(update_ms, times.update_ms, 1e-9 * times.update_ms);
    EXPECT_NEAR(times.layers_ms() + times.unexplained_ms(), times.step_ms.median, 1e-9 * times.step_ms.median);
    EXPECT_GT(flop, 0.0);
    EXPECT_GT(times.convolutions_alone_ms, 0.0);
    EXPECT_GT(times.copy_gb_per_s, 0.0);
    EXPECT_GT(times.peak_resident_bytes, times.memory.activation_bytes);
}

TEST(LayerTimesOf, InferenceHasNoBackwardAndNoUpdate) {
    const LayerTimes times = measure_layer_times(tiny(Phase::evaluation));
    for (const LayerLine& line : times.layers) EXPECT_EQ(line.backward_ms + line.update_ms, 0.0) << line.name;
    EXPECT_GT(times.forward_ms, 0.0);
}

TEST(LayerTimesOf, JsonAndTextNameEveryLayer) {
    const LayerTimes times = measure_layer_times(tiny());
    const auto json = nlohmann::json::parse(to_json(times));
    const std::string text = to_text(times, true);
    EXPECT_EQ(json["layers"].size(), times.layers.size());
    EXPECT_EQ(json["steps"].size(), times.steps.size());
    EXPECT_EQ(json["memory"]["buffers"].size(), times.buffers.size());
    for (const LayerLine& line : times.layers) EXPECT_THAT(text, HasSubstr(line.name));
    EXPECT_THAT(text, HasSubstr("step / convolutions"));
    EXPECT_THAT(text, HasSubstr("peak resident"));
}

TEST(LayerTimesOf, ABackendWithoutStepsIsRefusedByName) {
    LayerTimesOptions options = tiny();
    options.step.backend = "reference";
    EXPECT_THROW(measure_layer_times(options), ConfigError);
}

TEST(CaffeTimesOf, CountEveryLayerAndTheWholePasses) {
    const CaffeTimes times = measure_caffe_times(tiny());
    double layers_ms = 0.0;
    for (const CaffeTimes::Layer& layer : times.layers) layers_ms += layer.forward_ms + layer.backward_ms;
    EXPECT_EQ(times.iteration_ms.size(), 2U);
    EXPECT_LE(layers_ms, times.forward_backward_ms);  // clocks inside a clock
    EXPECT_NEAR(times.forward_ms + times.backward_ms, times.forward_backward_ms, 1e-9 * times.total_ms);
    EXPECT_NEAR(times.total_ms, 2.0 * times.forward_backward_ms, 1e-9 * times.total_ms);
    EXPECT_EQ(times.layers.front().name, "input");
    EXPECT_THAT(to_text(times), HasSubstr("Average Forward-Backward"));
    EXPECT_EQ(nlohmann::json::parse(to_json(times))["layers"].size(), times.layers.size());
}

}  // namespace
}  // namespace lockstep::bench
