#include <nlohmann/json.hpp>

#include "bench/layer_times.h"
#include "bench/machine_json.h"

namespace lockstep::bench {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Spread& spread) {
    return {{"median", spread.median}, {"p10", spread.p10}, {"p90", spread.p90}, {"min", spread.smallest}, {"max", spread.largest}};
}

Json json_of(const LayerLine& line, double copy_gb_per_s) {
    Json json{{"name", line.name},
              {"kind", line.kind},
              {"group", line.group},
              {"code", line.code},
              {"layout", line.layout},
              {"forward_ms", line.forward_ms},
              {"backward_ms", line.backward_ms},
              {"update_ms", line.update_ms},
              {"flop", line.flop},
              {"bytes", line.bytes},
              {"gflop_per_s", line.gflop_per_s()},
              {"gb_per_s", line.gb_per_s()}};
    json["share_of_copy"] = line.is_memory_bound() ? Json(line.gb_per_s() / copy_gb_per_s) : Json(nullptr);
    return json;
}

Json json_of(const StepFacts& step, double ms) {
    return {{"op", step.op},
            {"part", step.part == StepFacts::Part::forward ? "forward" : "backward"},
            {"what", step.what},
            {"code", step.implementation},
            {"layout", step.layout},
            {"group", step.group},
            {"ms", ms},
            {"flop", step.flop},
            {"bytes", step.bytes},
            {"is_reorder", step.is_reorder}};
}

Json memory_of(const LayerTimes& times) {
    Json buffers = Json::array();
    for (const PlannedBuffer& buffer : times.buffers) {
        buffers.push_back({{"name", buffer.name},
                           {"bytes", buffer.bytes},
                           {"offset", buffer.offset},
                           {"first_step", buffer.first_step},
                           {"last_step", buffer.last_step}});
    }
    return {{"workspace_bytes", times.memory.activation_bytes},
            {"workspace_bytes_unshared", times.memory.activation_bytes_unshared},
            {"largest_scratchpad_bytes", times.memory.scratch_bytes},
            {"kept_bytes", times.memory.kept_bytes},
            {"parameter_bytes", times.parameter_bytes},
            {"peak_resident_bytes", times.peak_resident_bytes},
            {"buffers", buffers}};
}

}  // namespace

std::string to_json(const LayerTimes& times) {
    Json layers = Json::array(), steps = Json::array();
    for (const LayerLine& line : times.layers) layers.push_back(json_of(line, times.copy_gb_per_s));
    for (size_t step = 0; step < times.steps.size(); ++step) {
        steps.push_back(json_of(times.steps[step], times.step_times_ms[step]));
    }
    const Json json{{"benchmark", "time"},
                    {"model", times.options.model.arch},
                    {"batch", times.options.step.batch},
                    {"image_size", times.options.model.image_size},
                    {"threads", times.options.step.compute.threads},
                    {"phase", times.options.step.phase == Phase::training ? "train" : "infer"},
                    {"iterations", times.options.iterations},
                    {"backend", times.backend_description},
                    {"copy_gb_per_s", times.copy_gb_per_s},
                    {"loss", times.loss},
                    {"step_ms", json_of(times.step_ms)},
                    {"forward_ms", times.forward_ms},
                    {"backward_ms", times.backward_ms},
                    {"update_ms", times.update_ms},
                    {"layers_ms", times.layers_ms()},
                    {"unexplained_ms", times.unexplained_ms()},
                    {"convolutions_alone_ms", times.convolutions_alone_ms},
                    {"step_over_convolutions", times.step_over_convolutions()},
                    {"layers", layers},
                    {"steps", steps},
                    {"memory", memory_of(times)},
                    {"machine", json_of(machine_facts())}};
    return json.dump();
}

}  // namespace lockstep::bench
