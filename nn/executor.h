// A Graph compiled for one backend, one batch size and one phase: shapes, layouts, fusion, algorithms and memory are decided; then
// forward and backward only compute. They allocate nothing, take no lock and hit no page fault.
//
// Order of use: make_backend -> plan_parameters -> ParameterArena -> initialize_parameters or import -> compile (several batch
// sizes and phases may share one arena and one backend; they run one at a time and share a workspace) -> forward, backward ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameter_arena.h"
#include "nn/convolution_table.h"
#include "nn/graph.h"
#include "nn/program_facts.h"

namespace lockstep {

enum class Precision : uint8_t { fp32, bf16 };  // bf16: activations and convolution inputs; values and gradients stay fp32
// How much of a training step is done in one pass over the data. off: every op makes its own. bn_relu: a ReLU is applied by the op
// in front of it (batch norm, addition, convolution, fully connected). all: also a batch norm, the addition behind it and that
// one's ReLU together, a batch norm and the sigmoid behind it, and in evaluation a convolution with the batch norm, addition and
// ReLU behind it. Results differ by rounding only.
enum class Fusion : uint8_t { off, bn_relu, all };
enum class Phase : uint8_t { training, evaluation };
// What decides by which code a convolution is computed. off: the library alone. heuristic: a fixed rule on its shape and the
// processor's instruction set. measure: Backend::use_convolutions, and the rule for what that does not name.
enum class Autotune : uint8_t { off, heuristic, measure };
// What backward reads and is computed again instead of being kept. norms: the results of batch norms (with the addition and the
// ReLU behind them) that backward needs for weight gradients of convolutions only. Same bits, less memory, more time.
enum class Recompute : uint8_t { off, norms };

struct BackendOptions {
    int threads = 1;  // compute threads of this replica
    Precision precision = Precision::fp32;
    Fusion fusion = Fusion::all;
    Autotune autotune = Autotune::heuristic;
    bool exact_convolution = false;        // only codes that multiply and add what the formula says: no Winograd
    Recompute recompute = Recompute::off;  // backend onednn with fusion all
    // For measuring what they are worth, not for use: backend onednn without its layout propagation, every tensor between two ops
    // in the plain layout (with fusion off only); and without sharing of memory, one place for each buffer.
    bool plain_between_ops = false;
    bool share_memory = true;
};

struct ForwardInput {
    std::span<const float> images;    // (N, C, H, W), plain, normalised; N = the executor's batch
    std::span<const int32_t> labels;  // N; an evaluation executor accepts -1 ("no image here") and counts nothing for it
    // Images that are mixtures of two: the other one's labels (N; empty: none are) and its share, from 0 to 1.
    std::span<const int32_t> second_labels{};
    float second_share = 0.0F;
    uint64_t dropout_key = 0;  // f(seed, step, virtual worker): the same masks on any number of ranks
};

// Hears during backward that entries [0, entry_end) of the arena hold their final gradients of this micro-step. Called in
// increasing order from the thread that called backward; must not block for long.
class GradientSink {
public:
    virtual ~GradientSink() = default;
    virtual void ready_up_to(size_t entry_end) = 0;
};

struct MemoryUse {
    size_t activation_bytes = 0;           // planned by lifetime
    size_t activation_bytes_unshared = 0;  // what one buffer per tensor would need
    size_t scratch_bytes = 0;
    size_t kept_bytes = 0;    // beside these: weights in another form, kept from pass to pass in evaluation
    int reorders = 0;         // layout conversions of activations and their gradients in one step
    int weight_reorders = 0;  // copies of weights in another layout or type in one step
};

class Executor {
public:
    virtual ~Executor() = default;
    virtual int batch() const = 0;

    // Returns the sum of losses over images. Throws DataError for a label that is no class (-1 only in evaluation). In training,
    // batch norm uses this batch's own statistics; in evaluation the running ones in the arena.
    virtual double forward(const ForwardInput& input) = 0;

    // Training only, once after each forward. Writes d(sum of losses)/d(parameter) to the arena's gradients: overwrites them, or
    // adds to them when `accumulate`. Statistics entries receive N * batch mean and N * unbiased batch variance (biased when the
    // batch has one value per channel) in the same way. `sink` may be null. Does not touch the control entry.
    virtual void backward(bool accumulate, GradientSink* sink) = 0;

    virtual std::span<const float> logits() const = 0;  // (N, classes) of the last forward, plain
    virtual std::span<const float> losses() const = 0;  // N, of the last forward
    virtual MemoryUse memory() const = 0;

    // For measuring, not for training; may allocate. Empty or 0 when the backend cannot tell.
    //
    // Forward steps, then backward steps, in the order in which they run.
    virtual std::vector<StepFacts> steps() const { return {}; }
    // One forward, and in training one backward that overwrites the gradients, as forward() and backward() do them, with a clock
    // around each step.
    virtual StepTimes time_steps(const ForwardInput& /*input*/) { return {}; }
    // Median milliseconds of one step run over and over by itself, after one run that does not count. Its operands hold whatever
    // the last pass left; needs a time_steps before, and a new forward before the next backward.
    virtual double time_alone(size_t /*step*/, int /*repeats*/) { return 0.0; }
    virtual std::vector<PlannedBuffer> memory_plan() const { return {}; }
};

class Backend {
public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;

    // Chooses each parameter's physical layout, best for training with `batch` images. In backward-finish order, for
    // ParameterArena.
    virtual std::vector<ParameterEntry> plan_parameters(const Graph& graph, int batch) = 0;

    // The arena must come from this backend's plan_parameters and outlive the executor. Throws ConfigError for what the backend
    // cannot do (naming op and option) and DeviceError when memory or the library fails.
    virtual std::unique_ptr<Executor> compile(const Graph& graph, int batch, Phase phase, ParameterArena& arena) = 0;

    // Times the convolutions of a step with `batch` images in every code that can compute them, but for those that `known` names,
    // and returns the fastest of all of them. Takes seconds and memory for two executors; overwrites the arena's gradients. Nothing
    // is measured, and the table is empty, unless the options say Autotune::measure.
    virtual ConvolutionTable measure_convolutions(const Graph& /*graph*/, int /*batch*/, Phase /*phase*/, ParameterArena& /*arena*/,
                                                  const ConvolutionTable& /*known*/) {
        return {};
    }
    virtual void use_convolutions(const ConvolutionTable& /*table*/) {}  // from the next compile on; Autotune::measure only
    virtual ConvolutionTable convolutions() const { return {}; }         // what all compiles so far have decided

    // One entry between its physical layout and plain; works for values, gradients and optimizer state alike.
    virtual void to_plain(const ParameterEntry& entry, std::span<const float> physical, std::span<float> plain) const = 0;
    virtual void from_plain(const ParameterEntry& entry, std::span<const float> plain, std::span<float> physical) const = 0;

    virtual std::string description() const = 0;  // library version, instruction set, threads: for reports and benchmarks
};

// make_backend and make_onednn_backend are in the library lockstep_nn_backends. `name`: "reference" (plain loops, the oracle,
// always there) or "onednn". Throws ConfigError for an unknown or unbuilt one.
std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_onednn_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options);

// Gives every entry its first value from its Initializer, keyed by (seed, parameter name); independent of backend and layout.
void initialize_parameters(const Backend& backend, ParameterArena& arena, uint64_t seed);

}  // namespace lockstep
