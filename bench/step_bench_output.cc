#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/machine_json.h"
#include "bench/step_bench.h"

namespace lockstep::bench {

namespace {

using Json = nlohmann::ordered_json;

std::string precision_text(Precision precision) { return precision == Precision::bf16 ? "bf16" : "fp32"; }

Json json_of(const Spread& spread) {
    return {{"median", spread.median}, {"p10", spread.p10}, {"p90", spread.p90}, {"min", spread.smallest}, {"max", spread.largest}};
}

Json json_of(const std::vector<KindTime>& layers) {
    Json list = Json::array();
    for (const KindTime& kind : layers) {
        list.push_back(
            {{"kind", kind.kind}, {"ops", kind.ops}, {"forward_ms", kind.forward_ms}, {"backward_ms", kind.backward_ms}});
    }
    return list;
}

double gflops(const StepBenchResult& result) { return 2.0 * result.macs_per_image * result.images_per_s.median / 1e9; }

}  // namespace

std::string to_json(const StepBenchResult& result) {
    const StepBenchOptions& options = result.options;
    const MemoryUse& memory = result.memory;
    Json json{{"benchmark", "step"},
              {"model", options.model},
              {"batch", options.batch},
              {"image_size", options.image_size},
              {"num_classes", options.num_classes},
              {"threads", options.threads},
              {"phase", options.phase == Phase::training ? "train" : "infer"},
              {"precision", precision_text(options.precision)},
              {"backend", options.backend},
              {"backend_description", result.backend_description},
              {"steps", options.steps},
              {"warmup_steps", options.warmup_steps},
              {"images_per_s", result.images_per_s.median},
              {"images_per_s_spread", json_of(result.images_per_s)},
              {"step_ms", json_of(result.step_ms)},
              {"forward_ms", result.forward_ms},
              {"backward_ms", result.backward_ms},
              {"optimizer_ms", result.optimizer_ms},
              {"gflop_per_s", gflops(result)},
              {"first_loss", result.first_loss},
              {"last_loss", result.last_loss},
              {"reorders", memory.reorders},
              {"weight_reorders", memory.weight_reorders},
              {"activation_bytes", memory.activation_bytes},
              {"activation_bytes_unshared", memory.activation_bytes_unshared},
              {"scratch_bytes", memory.scratch_bytes},
              {"kept_bytes", memory.kept_bytes},
              {"parameter_bytes", result.parameter_bytes},
              {"peak_resident_bytes", result.peak_resident_bytes},
              {"machine", json_of(machine_facts())}};
    if (!result.layers.empty()) json["layers"] = json_of(result.layers);
    return json.dump();
}

std::string to_text(const StepBenchResult& result) {
    const StepBenchOptions& options = result.options;
    std::string text =
        fmt::format("{} batch {} at {}x{}, {} thread(s), {}, {}\n", options.model, options.batch, options.image_size,
                    options.image_size, options.threads, precision_text(options.precision), result.backend_description);
    text += fmt::format("{:.2f} images/s (p10 {:.2f}, p90 {:.2f}, {} steps), {:.1f} GFLOP/s\n", result.images_per_s.median,
                        result.images_per_s.p10, result.images_per_s.p90, options.steps, gflops(result));
    text += fmt::format("step {:.1f} ms = forward {:.1f} + backward {:.1f} + optimizer {:.1f}\n", result.step_ms.median,
                        result.forward_ms, result.backward_ms, result.optimizer_ms);
    constexpr double kMiB = 1024.0 * 1024.0;
    text += fmt::format("planned {:.0f} MiB with parameters, peak resident {:.0f} MiB\n",
                        static_cast<double>(result.memory.activation_bytes + result.parameter_bytes) / kMiB,
                        static_cast<double>(result.peak_resident_bytes) / kMiB);
    text += fmt::format("activations {:.1f} MiB (unshared {:.1f}), {} reorders, {} weight copies per step\n",
                        static_cast<double>(result.memory.activation_bytes) / kMiB,
                        static_cast<double>(result.memory.activation_bytes_unshared) / kMiB, result.memory.reorders,
                        result.memory.weight_reorders);
    if (!result.layers.empty()) text += fmt::format("{:<16} {:>4} {:>12} {:>12}\n", "kind", "ops", "forward ms", "backward ms");
    for (const KindTime& kind : result.layers) {
        text += fmt::format("{:<16} {:>4} {:>12.3f} {:>12.3f}\n", kind.kind, kind.ops, kind.forward_ms, kind.backward_ms);
    }
    return text;
}

}  // namespace lockstep::bench
