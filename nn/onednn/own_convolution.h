// What the steps that compute a convolution by own kernels have in common.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/onednn/compiler.h"

namespace lockstep::onednn {

struct ConvolutionOperands {
    Value source, weights, result;  // or their gradients
    std::optional<Value> bias;
};

// What forward does to its sums: relu(sum + the operands' bias), or relu(sum scale + bias + addend) with values per channel.
struct ConvolutionFinish {
    bool relu = false;
    std::optional<Value> scale, bias, addend;  // bias counts with a scale only
};

inline float* floats(const Value& value) { return static_cast<float*>(value.memory.get_data_handle()); }
inline float* floats(const std::optional<Value>& value) { return value ? floats(*value) : nullptr; }

// Memory of a step; none for 0.
inline std::optional<Value> new_scratch(Compiler& compiler, size_t float_count) {
    if (float_count == 0) return std::nullopt;
    const MemoryDesc desc({static_cast<int64_t>(float_count)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
    return compiler.new_value(desc, "scratchpad");
}

// Adds the step of the op being compiled, with its scratch memory. `code`: for people.
inline void add_own_convolution(Compiler& compiler, std::unique_ptr<Step> step, std::string_view code,
                                const ConvolutionOperands& operands, const ConvolutionFinish& finish,
                                const std::optional<Value>& scratch) {
    std::vector<const Value*> used{&operands.source, &operands.weights, &operands.result};
    for (const std::optional<Value>* value : {&operands.bias, &finish.scale, &finish.bias, &finish.addend}) {
        if (*value) used.push_back(&**value);
    }
    compiler.add_convolution_step(std::move(step), code, used, scratch);
}

}  // namespace lockstep::onednn
