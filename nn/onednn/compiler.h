// Turns a graph into a Program: asks each op's plan for its forward steps in graph order, then for its backward steps in reverse,
// and keeps the books that let ops share and overwrite memory.
//
// Books of a tensor: its output value (forward) and its gradient contributions (backward), one from each consumer. A producer
// takes the contributions when its backward turn comes; several are summed then, in one pass with the ReLU mask where there is
// one. Contributions may share a buffer (both inputs of an addition have the same gradient), so a buffer is overwritten only by its
// last reader.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/parameter_arena.h"
#include "nn/graph.h"
#include "nn/onednn/convolution_chooser.h"
#include "nn/onednn/loss_state.h"
#include "nn/onednn/program.h"

namespace lockstep::onednn {

class Compiler;
class NormPlan;

// One op's part of the program. Keeps what backward needs from forward.
class OpPlan {
public:
    explicit OpPlan(int op) : op_(op) {}
    virtual ~OpPlan() = default;
    virtual void forward(Compiler& compiler) = 0;
    virtual void backward(Compiler& compiler) = 0;  // training only
    // The layout this op would like its input to be born in; consulted for the network's input only.
    virtual std::optional<MemoryDesc> wanted_input(Compiler& /*compiler*/) { return std::nullopt; }

protected:
    int op_;
};

// A gradient ready to be used. `exclusive`: nobody reads its buffer later, it may be overwritten.
struct Gradient {
    Value value;
    bool exclusive = false;
};

// The same as two parts that are still to be added, so that whoever reads them anyway can do it.
struct GradientParts {
    Value first;
    std::optional<Value> second;
    bool first_exclusive = false, second_exclusive = false;
};

// What evaluation does in the pass of a convolution (inference_tail.h).
struct InferenceTail {
    int norm = 0;               // the batch norm behind it
    std::optional<int> addend;  // what the addition behind that adds
    bool relu = false;          // behind all
};

struct GradientOutput {
    int slot = 0;  // DNNL_ARG_DIFF_...
    size_t entry = 0;
    MemoryDesc desc;  // in which the primitive writes it
    // How the arena's memory is seen where that is no plain or planned layout of the primitive's own dimensions.
    std::optional<MemoryDesc> arena = std::nullopt;
};

// A convolution that more than one code can compute, and the step with which its own steps begin; its last one is called
// "convolution ...", those before it are copies for it.
struct ChosenConvolution {
    std::string key;  // of a ConvolutionTable
    ConvolutionCode code = ConvolutionCode::direct;
    size_t first_step = 0;
};

struct Compiled {
    std::unique_ptr<Program> program;
    std::vector<std::unique_ptr<LossState>> losses;  // the network's own is the last
    int reorders = 0;                                // layout conversions of activations and their gradients in one step
    int weight_reorders = 0;                         // copies of weights in another layout or type
    size_t scratch_bytes = 0;                        // the largest scratchpad of a primitive
    std::vector<StepFacts> facts;                    // of each step, forward first; op and kind are the executor's to fill in
    std::vector<ChosenConvolution> convolutions;
};

class Compiler {
public:
    // With `arena` null the compiler only plans: ops choose layouts and register them in `layouts`; nothing is created.
    Compiler(const Library& library, const Graph& graph, int batch, Phase phase, LayoutTable& layouts, ConvolutionChooser& chooser,
             ParameterArena* arena);
    ~Compiler();

    Compiled compile();
    std::vector<ParameterEntry> plan_parameters();

    // Facts.
    const Library& library() const { return library_; }
    const Op& op(int index) const { return graph_.ops.at(static_cast<size_t>(index)); }
    const FeatureShape& shape(int index) const { return shapes_.at(static_cast<size_t>(index)); }
    int batch() const { return batch_; }
    bool training() const { return phase_ == Phase::training; }
    bool planning() const { return arena_ == nullptr; }
    bool has_fused_relu(int index) const;                                            // the op applies the ReLU that follows it
    bool active(int index) const { return active_.at(static_cast<size_t>(index)); }  // not so: left out of evaluation
    // A batch norm and the addition that is its only reader, done in the addition's turn; -1: none.
    int add_after_norm(int index) const { return add_after_norm_.at(static_cast<size_t>(index)); }
    NormPlan* norm_before_add(int index) const { return norm_before_add_.at(static_cast<size_t>(index)); }
    void defer_norm(int add, NormPlan* norm) { norm_before_add_.at(static_cast<size_t>(add)) = norm; }
    const std::optional<InferenceTail>& tail(int index) const { return tails_.at(static_cast<size_t>(index)); }
    // The input whose output is this op's too, because a convolution does its work; -1: none.
    int done_by(int index) const { return done_by_.at(static_cast<size_t>(index)); }
    bool feeds_loss(int index) const;
    bool feeds_sigmoid_only(int index) const;  // in training with compute.fusion = all
    // A producer that applies the sigmoid behind it says so; the sigmoid's turn comes later and asks.
    void apply_sigmoid(int index) { applied_sigmoid_.at(static_cast<size_t>(index)) = true; }
    bool applies_sigmoid(int index) const { return applied_sigmoid_.at(static_cast<size_t>(index)); }
    dnnl::memory::dims dims(int index) const;  // (N, C, H, W)

    // Activations.
    const Value& output(int index) const { return outputs_.at(static_cast<size_t>(index)); }
    void set_output(int index, Value value);
    void keep(const Value& value);                 // backward will read it: nobody may overwrite it
    bool may_overwrite(const Value& value) const;  // the op being compiled is its last reader
    // With compute.recompute, a batch norm's result need not be kept: `norm` makes it again when backward asks with again(). False:
    // it is kept as any other, since its addend would have to be made again by way of another addition, and so on.
    bool offer_to_remake(const Value& result, NormPlan& norm, const std::optional<Value>& addend);
    void keep_or_remake(const Value& value);  // as keep(), for a reader that will ask with again()
    Value again(const Value& value);          // in backward: the value itself where it was kept
    std::optional<MemoryDesc> wanted_by_consumer(int index);

    // Gradients.
    bool needs_gradient(int index) const { return needs_gradient_.at(static_cast<size_t>(index)); }
    const MemoryDesc& gradient_desc(int index) const;
    void set_gradient_desc(int index, const MemoryDesc& desc);  // where it must differ from the output's
    void contribute(int index, const Value& gradient);          // d loss / d output(index), one more part of it
    Gradient take_gradient(int index);                          // the sum of all contributions
    GradientParts take_gradient_in_two(int index);
    Gradient take_gradient_through_relu(int index, const Value& relu_output);
    void pass_gradients(int from, int to);  // `to` receives all contributions of `from` unchanged

    // Parameters: the first entry of an op in the arena; further ones follow.
    size_t first_entry(int index) const { return first_entry_.at(static_cast<size_t>(index)); }
    // `dims`: the plain shape as the op sees it (groups apart, features unflattened); the memory is the same.
    MemoryDesc parameter_desc(size_t entry, const dnnl::memory::dims& dims) const;  // as it lies in the arena
    Value parameter_value(size_t entry, const dnnl::memory::dims& dims);
    Value parameter_gradient(size_t entry, const dnnl::memory::dims& dims);
    Value parameter_gradient(size_t entry, const MemoryDesc& desc);
    Value value_as(const Value& parameter, const MemoryDesc& desc);  // the value itself, or a copy made by a step
    void choose_layout(size_t entry, const MemoryDesc& desc);        // planning only
    void entries_done(int index);  // the op's parameters have their gradients after the last step added

    // Steps.
    // `role` for people: "output" in forward and "gradient" in backward unless given.
    Value new_value(const MemoryDesc& desc, std::string_view role = {});
    Value view(const Value& value, const MemoryDesc& desc);
    Value as_layout(const Value& value, const MemoryDesc& desc);  // the value itself, or a reordered copy
    void add_step(std::unique_ptr<Step> step, const std::vector<const Value*>& used);
    // By which code a convolution's steps, which are added next, compute it.
    ConvolutionCode choose(const ConvolutionChoice& choice);
    // Of an own kernel. `used`: data, weights, result.
    void add_convolution_step(std::unique_ptr<Step> step, std::string_view code, const std::vector<const Value*>& used,
                              const std::optional<Value>& scratch);
    void reorder(const Value& from, const Value& to);
    template <typename Primitive>
    void run(const typename Primitive::primitive_desc& desc, const Arguments& arguments);
    // Runs a primitive that writes parameter gradients, each to the arena or added to it.
    template <typename Primitive>
    void run_into_gradients(const typename Primitive::primitive_desc& desc, const Arguments& arguments,
                            const std::vector<GradientOutput>& outputs);
    static dnnl::primitive_attr attributes();  // scratchpads are ours
    LossState& add_loss();                     // called in graph order

private:
    // How a buffer's content is made again.
    struct Remade {
        NormPlan* norm = nullptr;  // null: not at all
        bool by_addition = false;
        std::optional<Value> value;  // once backward has asked for it
    };

    void decide_fusion();
    void decide_norms_before_adds();
    void decide_tails();
    std::optional<InferenceTail> possible_tail(int conv, bool with_addition) const;
    int only_reader(int index) const;  // -1: none or several
    void plan_needs();
    void compile_forward();
    void compile_backward();
    void with_op_named(int index, std::string_view part, void (Compiler::*work)(int));
    void forward_op(int index);
    void backward_op(int index);
    Arguments with_scratchpad(const Arguments& arguments, const MemoryDesc& scratchpad);
    void add_primitive(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments);
    void add_gradient_step(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments,
                           const std::vector<GradientOutput>& outputs);
    StepFacts& note_step();  // facts of the step about to be added
    void note_primitive(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments);
    std::string group_text() const;
    double flop_of_op() const;  // of one direction
    std::unique_ptr<Step> copy_step(const Value& from, const Value& to);
    std::vector<Value> take_contributions(int index);
    void release(const Value& value);
    bool is_last_reader(const Value& value) const;
    Value sum(const std::vector<Value>& parts, size_t count, bool& exclusive);

    const Library& library_;
    const Graph& graph_;
    const int batch_;
    const Phase phase_;
    LayoutTable& layouts_;
    ConvolutionChooser& chooser_;
    ParameterArena* arena_;

    std::vector<FeatureShape> shapes_;
    std::vector<bool> active_;
    std::vector<std::vector<int>> consumers_;  // active ones
    std::vector<bool> fused_relu_;             // of a producer
    std::vector<bool> applied_sigmoid_;        // of a producer
    std::vector<int> add_after_norm_;          // of a batch norm
    std::vector<NormPlan*> norm_before_add_;
    std::vector<std::optional<InferenceTail>> tails_;  // of a convolution
    std::vector<int> done_by_;
    std::vector<std::unique_ptr<OpPlan>> plans_;
    std::vector<ParameterEntry> entries_;
    std::vector<size_t> first_entry_;
    std::vector<size_t> entry_end_;
    std::vector<std::optional<MemoryDesc>> entry_descs_;
    std::vector<int64_t> macs_;  // of an op, forward, per image
    int current_op_ = 0;

    std::vector<Value> outputs_;
    std::vector<std::optional<MemoryDesc>> gradient_descs_;
    std::vector<bool> needs_gradient_;
    std::vector<int> forward_readers_;   // per buffer: consumers still to come
    std::vector<bool> kept_;             // per buffer
    std::vector<Remade> remade_;         // per buffer
    std::vector<int> gradient_readers_;  // per buffer: contributions not yet taken
    std::vector<std::vector<Value>> contributions_;

    Compiled compiled_;
};

template <typename Primitive>
void Compiler::run(const typename Primitive::primitive_desc& desc, const Arguments& arguments) {
    if (!planning()) add_primitive(Primitive(desc), desc.impl_info_str(), with_scratchpad(arguments, desc.scratchpad_desc()));
}

template <typename Primitive>
void Compiler::run_into_gradients(const typename Primitive::primitive_desc& desc, const Arguments& arguments,
                                  const std::vector<GradientOutput>& outputs) {
    add_gradient_step(Primitive(desc), desc.impl_info_str(), with_scratchpad(arguments, desc.scratchpad_desc()), outputs);
}

// Layouts a primitive may be asked to work in.
struct Layouts {
    MemoryDesc data, weights, result;
};

// The first descriptor among `wishes`, best first, that runs the same code as `make(free)`, which chooses its layouts itself; so
// tensors stay as they are wherever that costs nothing. make(layouts) returns an empty descriptor when it cannot.
template <typename MakeDesc>
auto first_as_fast(const MakeDesc& make, const std::vector<Layouts>& wishes, const Layouts& free) {
    auto best = make(free);
    if (!best) throw dnnl::error(dnnl_unimplemented, "no implementation");
    const std::string_view code = best.impl_info_str();
    for (const Layouts& wish : wishes) {
        auto candidate = make(wish);
        if (candidate && candidate.impl_info_str() == code) return candidate;
    }
    return best;
}

}  // namespace lockstep::onednn
