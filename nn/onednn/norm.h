// Batch norm in training by our own kernels, alone or with the addition behind it.
#pragma once

#include <memory>
#include <optional>

#include "nn/onednn/compiler.h"
#include "nn/onednn/kernels/batch_norm.h"

namespace lockstep::onednn {

// The kernels' view of a tensor; empty when they do not know its layout.
std::optional<NormShape> norm_shape(const MemoryDesc& desc);

// Whether the batch norm `op`, whose input lies in `source`, is computed by them: in training, with compute.fusion = all.
bool uses_own_norm(const Compiler& compiler, const MemoryDesc& source);

// What a step of it works on.
struct NormTensors {
    Value source, mean, variance, scratch;
    std::optional<Value> scale, shift;  // where affine
    std::optional<Value> mask;          // of a ReLU
    std::optional<Value> activated;     // a sigmoid's result
};

// A batch norm's part of the program. With an addition behind it (Compiler::norm_before_add) both are done in the addition's turn,
// by forward_with and backward_with; in its own turn the batch norm then does what is left.
class NormPlan {
public:
    NormPlan(int op, const BatchNormOp& norm) : op_(op), epsilon_(norm.epsilon), affine_(norm.affine) {}

    void forward(Compiler& compiler);                             // sets the output of the batch norm
    Value forward_with(Compiler& compiler, const Value& addend);  // the addition's result, ReLU included
    // A step that makes the result of forward, or of forward_with, once more, in a place of its own.
    Value remake(Compiler& compiler);
    void backward(Compiler& compiler);
    Value backward_with(Compiler& compiler, int add, bool addend_wants_gradient);  // the addend's gradient where wanted

private:
    enum Entry : size_t { kScale, kShift, kMean, kVariance };

    size_t place(const Compiler& compiler, Entry entry) const {
        return compiler.first_entry(op_) + (affine_ ? entry : entry - kMean);
    }
    std::optional<Value> parameter(Compiler& compiler, Entry entry) const;
    NormTensors tensors_with(Compiler& compiler, const Value& scratch) const;
    Value add_forward(Compiler& compiler, const std::optional<Value>& addend, bool relu);
    void add_forward_step(Compiler& compiler, const std::optional<Value>& addend, const Value& result, bool again);
    std::optional<Value> add_backward(Compiler& compiler, int from, bool wants_passed);
    void finish_parameters(Compiler& compiler);

    int op_;
    float epsilon_;
    bool affine_;
    int input_ = 0;
    NormShape shape_;
    Value source_, mean_, variance_;
    std::optional<Value> mask_;
    std::optional<Value> activated_;  // the result of the sigmoid behind it
    std::optional<Value> addend_;     // of a result that is remade
};

}  // namespace lockstep::onednn
