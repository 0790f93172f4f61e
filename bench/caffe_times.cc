#include "bench/caffe_times.h"

#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/machine_json.h"

namespace lockstep::bench {

CaffeTimes measure_caffe_times(const LayerTimesOptions& options) {
    check_options(options);
    const Graph graph = build_model(options.model);
    SyntheticStep step(graph, options.step);
    const std::vector<StepFacts> steps = steps_of(step, options);
    CaffeTimes result{.options = options, .backend_description = step.description()};
    std::map<std::string, size_t> layer_of;
    for (const Op& op : graph.ops) {
        layer_of[op.name] = result.layers.size();
        result.layers.push_back({.name = op.name});
    }
    result.initial_loss = step.time_steps().loss / options.step.batch;
    const double part = 1.0 / options.iterations;
    for (int iteration = 0; iteration < options.iterations; ++iteration) {
        const StepTimes times = step.time_steps();
        for (size_t index = 0; index < steps.size(); ++index) {
            CaffeTimes::Layer& layer = result.layers[layer_of.at(steps[index].op)];
            (steps[index].part == StepFacts::Part::forward ? layer.forward_ms : layer.backward_ms) += part * times.step_ms[index];
        }
        result.iteration_ms.push_back(times.forward_ms + times.backward_ms);
        result.forward_ms += part * times.forward_ms;
        result.backward_ms += part * times.backward_ms;
    }
    result.total_ms = std::accumulate(result.iteration_ms.begin(), result.iteration_ms.end(), 0.0);
    result.forward_backward_ms = part * result.total_ms;
    return result;
}

std::string to_json(const CaffeTimes& times) {
    using Json = nlohmann::ordered_json;
    Json layers = Json::array();
    for (const CaffeTimes::Layer& layer : times.layers) {
        layers.push_back({{"name", layer.name}, {"forward_ms", layer.forward_ms}, {"backward_ms", layer.backward_ms}});
    }
    const Json json{{"benchmark", "time_caffe"},
                    {"model", times.options.model.arch},
                    {"batch", times.options.step.batch},
                    {"threads", times.options.step.compute.threads},
                    {"iterations", times.options.iterations},
                    {"backend", times.backend_description},
                    {"initial_loss", times.initial_loss},
                    {"forward_ms", times.forward_ms},
                    {"backward_ms", times.backward_ms},
                    {"forward_backward_ms", times.forward_backward_ms},
                    {"total_ms", times.total_ms},
                    {"iteration_ms", times.iteration_ms},
                    {"layers", layers},
                    {"machine", json_of(machine_facts())}};
    return json.dump();
}

std::string to_text(const CaffeTimes& times) {
    std::string text =
        fmt::format("{}, batch {}, {}\n", times.options.model.arch, times.options.step.batch, times.backend_description);
    text += fmt::format("Initial loss: {:.6g}\n*** Benchmark begins ***\nTesting for {} iterations.\n", times.initial_loss,
                        times.options.iterations);
    for (size_t index = 0; index < times.iteration_ms.size(); ++index) {
        text += fmt::format("Iteration: {} forward-backward time: {:.6g} ms.\n", index + 1, times.iteration_ms[index]);
    }
    text += "Average time per layer: \n";
    for (const CaffeTimes::Layer& layer : times.layers) {
        text += fmt::format("{:>10}\tforward: {:.6g} ms.\n", layer.name, layer.forward_ms);
        text += fmt::format("{:>10}\tbackward: {:.6g} ms.\n", layer.name, layer.backward_ms);
    }
    text +=
        fmt::format("Average Forward pass: {:.6g} ms.\nAverage Backward pass: {:.6g} ms.\n", times.forward_ms, times.backward_ms);
    text += fmt::format("Average Forward-Backward: {:.6g} ms.\nTotal Time: {:.6g} ms.\n*** Benchmark ends ***\n",
                        times.forward_backward_ms, times.total_ms);
    return text;
}

}  // namespace lockstep::bench
