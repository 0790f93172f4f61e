#include "bench/kernels_bench.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/copy_bandwidth.h"
#include "bench/machine_json.h"
#include "bench/statistics.h"
#include "bench/synthetic_step.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep::bench {

namespace {

// A layer between a convolution, which gives its input the layout that it has in networks, and a global pool.
struct Layer {
    std::string name;
    // Returns the index of its last op. Its ops' names start with "layer". `conv`: for a second input like the first.
    std::function<int(Graph&, int from, const ConvOp& conv)> add;
};

Layer one(const std::string& name, const OpAttributes& attributes) {
    return {name, [attributes](Graph& graph, int from, const ConvOp&) { return graph.add("layer", attributes, {from}); }};
}

Layer after_norm(const std::string& name, const BatchNormOp& norm, const OpAttributes& activation) {
    return {name, [=](Graph& graph, int from, const ConvOp&) {
                return graph.add("layer activation", activation, {graph.add("layer", norm, {from})});
            }};
}

PoolOp pool_3x3(PoolOp::Kind kind) {
    return {.kind = kind, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .ceil_mode = true};
}

std::vector<Layer> layers() {
    return {
        one("batch norm", BatchNormOp{}),
        after_norm("batch norm + ReLU", BatchNormOp{}, ReluOp{}),
        {"batch norm + add + ReLU",
         [](Graph& graph, int from, const ConvOp&) {
             const int add = graph.add("layer add", AddOp{}, {graph.add("layer", BatchNormOp{}, {from}), from});
             return graph.add("layer ReLU", ReluOp{}, {add});
         }},
        after_norm("batch norm + sigmoid", BatchNormOp{.affine = false}, SigmoidOp{}),
        one("max pooling 3x3/2", pool_3x3(PoolOp::Kind::max)),
        one("average pooling 3x3/2", pool_3x3(PoolOp::Kind::average)),
        one("global average pooling", GlobalAveragePoolOp{}),
        one("sigmoid", SigmoidOp{}),
        {"add",
         [](Graph& graph, int from, const ConvOp& conv) {
             return graph.add("layer", AddOp{}, {graph.add("other", conv, {0}), from});
         }},
        {"add + ReLU",
         [](Graph& graph, int from, const ConvOp& conv) {
             const int add = graph.add("layer", AddOp{}, {graph.add("other", conv, {0}), from});
             return graph.add("layer ReLU", ReluOp{}, {add});
         }},
    };
}

Graph graph_around(const Layer& layer, const KernelsBenchOptions& options) {
    Graph graph{.name = layer.name};
    graph.add("images", InputOp{.channels = 8, .height = options.side, .width = options.side}, {});
    const ConvOp conv{.out_channels = options.channels};
    const int layer_top = layer.add(graph, graph.add("before", conv, {0}), conv);
    const int top = graph.add("pool", GlobalAveragePoolOp{}, {layer_top});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 10}, {top})});
    return graph;
}

void time_layer(const Layer& layer, const KernelsBenchOptions& options, KernelsBenchResult& result) {
    SyntheticStep step(graph_around(layer, options),
                       {.backend = options.backend, .compute = options.compute, .batch = options.images});
    result.backend_description = step.description();
    const std::vector<StepFacts> steps = step.executor().steps();
    if (steps.empty())
        throw ConfigError(fmt::format("bench kernels: backend {} cannot tell its steps; use onednn", options.backend));
    step.time_steps();
    for (size_t index = 0; index < steps.size(); ++index) {
        const StepFacts& facts = steps[index];
        if (!facts.op.starts_with("layer") || facts.what == "batch statistics") continue;  // those are per channel: nothing
        result.kernels.push_back({.kernel = layer.name,
                                  .part = facts.part == StepFacts::Part::forward ? "forward" : "backward",
                                  .code = facts.implementation,
                                  .bytes = facts.bytes,
                                  .ms = step.executor().time_alone(index, options.repeats)});
    }
}

// Value and velocity are read and written, the gradient is read.
KernelTime time_update(const KernelsBenchOptions& options) {
    HeapPool pool;
    const auto optimizer = make_sgd({}, options.compute.threads);
    ParameterArena arena({{.spec = {.name = "weights", .shape = {options.parameters}}, .physical_count = options.parameters}}, pool,
                         pool, optimizer->state_buffer_count());
    std::vector<double> times_ms;
    for (int repeat = 0; repeat <= options.repeats; ++repeat) {
        const int64_t start_ns = now_ns();
        optimizer->step(arena, {.rate = 0.01, .images = 32.0});
        if (repeat > 0) times_ms.push_back(static_cast<double>(now_ns() - start_ns) / 1e6);
    }
    return {.kernel = "SGD update",
            .part = "update",
            .code = "own",
            .bytes = 5.0 * sizeof(float) * static_cast<double>(options.parameters),
            .ms = spread_of(times_ms).median};
}

}  // namespace

KernelsBenchResult run_kernels_bench(const KernelsBenchOptions& options) {
    if (options.repeats < 1 || options.images < 1 || options.channels < 1 || options.side < 3 || options.parameters < 1) {
        throw ConfigError("bench kernels: repeats, images, channels and parameters must be at least 1, the side at least 3");
    }
    KernelsBenchResult result{.options = options, .copy_gb_per_s = copy_bandwidth_gb_per_s(options.compute.threads)};
    for (const Layer& layer : layers()) time_layer(layer, options, result);
    result.kernels.push_back(time_update(options));
    result.copy_gb_per_s = std::max(result.copy_gb_per_s, copy_bandwidth_gb_per_s(options.compute.threads));
    return result;
}

std::string to_json(const KernelsBenchResult& result) {
    using Json = nlohmann::ordered_json;
    Json kernels = Json::array();
    for (const KernelTime& kernel : result.kernels) {
        kernels.push_back({{"kernel", kernel.kernel},
                           {"part", kernel.part},
                           {"code", kernel.code},
                           {"bytes", kernel.bytes},
                           {"ms", kernel.ms},
                           {"gb_per_s", kernel.gb_per_s()},
                           {"share_of_copy", result.share_of_copy(kernel)}});
    }
    const KernelsBenchOptions& options = result.options;
    const Json json{{"benchmark", "kernels"},
                    {"backend", result.backend_description},
                    {"threads", options.compute.threads},
                    {"images", options.images},
                    {"channels", options.channels},
                    {"side", options.side},
                    {"repeats", options.repeats},
                    {"copy_gb_per_s", result.copy_gb_per_s},
                    {"kernels", kernels},
                    {"machine", json_of(machine_facts())}};
    return json.dump();
}

std::string to_text(const KernelsBenchResult& result) {
    const KernelsBenchOptions& options = result.options;
    std::string text = fmt::format("{}x{}x{}x{}, {}; copies {:.1f} GB/s\n", options.images, options.channels, options.side,
                                   options.side, result.backend_description, result.copy_gb_per_s);
    text += fmt::format("{:<26} {:<9} {:>9} {:>8} {:>8}  {}\n", "kernel", "part", "ms", "GB/s", "of copy", "code");
    for (const KernelTime& kernel : result.kernels) {
        text += fmt::format("{:<26} {:<9} {:>9.2f} {:>8.1f} {:>7.0f}%  {}\n", kernel.kernel, kernel.part, kernel.ms,
                            kernel.gb_per_s(), 100.0 * result.share_of_copy(kernel), kernel.code);
    }
    return text;
}

}  // namespace lockstep::bench
