// What a compiled graph consists of and what its parts took: for measuring and for people, never for training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// One step of a compiled graph as it was planned.
struct StepFacts {
    enum class Part : uint8_t { forward, backward };

    std::string op, kind;  // of the graph: the op it works for, "conv", "batch_norm", ...
    Part part = Part::forward;
    std::string what;            // "convolution", "convolution weight gradient", "reorder", "add", ...
    std::string implementation;  // the library's name for the code it chose; "own" for a kernel of this project
    std::string layout;          // of its data, outermost axis first: "aBcd8b"; with weights "aBcd8b, weights ABcd8b8a"
    std::string group;           // the ops done in one pass, "bn1 + relu1"; empty: the op alone
    double flop = 0.0;           // of convolutions and fully connected layers; 0 elsewhere
    double bytes = 0.0;          // every operand once: the least that must move, also for steps that pass over their input twice
    bool is_reorder = false;     // only changes a layout or type
};

// One pass over all steps with a clock around each.
struct StepTimes {
    std::vector<double> step_ms;  // one per step
    double forward_ms = 0.0;      // around all forward steps, clocks included
    double backward_ms = 0.0;
    double loss = 0.0;  // sum over images
};

// One buffer of the workspace.
struct PlannedBuffer {
    std::string name;  // "layer1.0.conv1 output", "fc scratchpad", ...
    size_t bytes = 0;
    size_t offset = 0;                     // in the workspace; buffers whose bytes overlap share memory at different times
    size_t first_step = 0, last_step = 0;  // of its life, both inclusive; indices into the steps
};

}  // namespace lockstep
