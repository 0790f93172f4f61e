// Caffe's `time` with its semantics, so that figures can stand beside published ones: one forward and backward that is not timed,
// then `iterations` of them; in each, every layer's forward and then every layer's backward has a clock of its own, and so have the
// two passes. Averages, not medians; no update. The input counts as a layer, as Caffe's data layer does; a layer whose work another
// one does in the same pass shows 0.
#pragma once

#include <string>
#include <vector>

#include "bench/layer_times.h"

namespace lockstep::bench {

struct CaffeTimes {
    struct Layer {
        std::string name;
        double forward_ms = 0.0, backward_ms = 0.0;  // averages
    };
    LayerTimesOptions options;
    std::string backend_description;
    double initial_loss = 0.0;  // mean per image
    std::vector<Layer> layers;  // in graph order
    std::vector<double> iteration_ms;
    double forward_ms = 0.0, backward_ms = 0.0, forward_backward_ms = 0.0;  // averages
    double total_ms = 0.0;
};

// Throws as measure_layer_times does.
CaffeTimes measure_caffe_times(const LayerTimesOptions& options);

std::string to_json(const CaffeTimes& times);
std::string to_text(const CaffeTimes& times);  // lines as Caffe prints them

}  // namespace lockstep::bench
