// Where the time of a step goes, layer by layer: what `lockstep time` measures and prints.
//
// Two kinds of passes take turns: whole steps as training makes them, and passes with a clock around each step of the compiled
// program. All figures are medians. The sum of the layers therefore need not equal the whole step; the difference is shown.
#pragma once

#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/synthetic_step.h"

namespace lockstep::bench {

struct LayerTimesOptions {
    ModelOptions model;
    SyntheticStepOptions step;
    int iterations = 10;
};

// One layer (op of the graph), or one reorder made for it.
struct LayerLine {
    std::string name, kind;
    std::string group;   // the ops done in one pass; empty: alone
    std::string code;    // implementations in the order in which they run, "/" between different ones
    std::string layout;  // of the data, forward
    bool is_reorder = false;
    double forward_ms = 0.0, backward_ms = 0.0;
    double update_ms = 0.0;  // its parameters' share of the update, which is one loop over all parameters
    double flop = 0.0;       // forward + backward
    double bytes = 0.0;      // each operand of each step once

    double total_ms() const { return forward_ms + backward_ms; }  // what flop and bytes stand for
    double gflop_per_s() const { return total_ms() > 0.0 ? flop / total_ms() / 1e6 : 0.0; }
    double gb_per_s() const { return total_ms() > 0.0 ? bytes / total_ms() / 1e6 : 0.0; }
    bool is_memory_bound() const { return flop == 0.0 && bytes > 0.0; }
};

struct LayerTimes {
    LayerTimesOptions options;
    std::string backend_description;
    double copy_gb_per_s = 0.0;
    double loss = 0.0;                                            // mean per image, of the first pass
    Spread step_ms;                                               // whole steps, no clock inside
    double forward_ms = 0.0, backward_ms = 0.0, update_ms = 0.0;  // medians of their parts
    std::vector<LayerLine> layers;                                // in graph order, reorders behind their layer
    std::vector<StepFacts> steps;
    std::vector<double> step_times_ms;   // medians, one per step
    double convolutions_alone_ms = 0.0;  // sum over the convolution steps, each run by itself
    std::vector<PlannedBuffer> buffers;
    MemoryUse memory;
    size_t parameter_bytes = 0;  // values + gradients + optimizer state
    size_t peak_resident_bytes = 0;

    double layers_ms() const;  // sum of all lines and the update
    double unexplained_ms() const { return step_ms.median - layers_ms(); }
    double step_over_convolutions() const;  // 0 when the network has none
};

// Throws ConfigError for an impossible model or size, or a backend that cannot tell its steps.
LayerTimes measure_layer_times(const LayerTimesOptions& options);

// What every kind of timing checks first. Both throw ConfigError.
void check_options(const LayerTimesOptions& options);
std::vector<StepFacts> steps_of(SyntheticStep& step, const LayerTimesOptions& options);

// Pure: the lines from the steps' times. `share_of_update`: of each op, in [0, 1].
std::vector<LayerLine> layer_lines(const Graph& graph, const std::vector<StepFacts>& steps, const std::vector<double>& step_ms,
                                   const std::vector<double>& share_of_update, double update_ms);

std::string to_json(const LayerTimes& times);                    // one object; docs/time.md describes it
std::string to_text(const LayerTimes& times, bool with_memory);  // for people

}  // namespace lockstep::bench
