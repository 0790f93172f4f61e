// Runs a compiled program. One thread at a time over all executors of a backend, since they share the workspace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/executor.h"
#include "nn/onednn/compiler.h"

namespace lockstep::onednn {

class OnednnExecutor final : public Executor {
public:
    // `workspace` and `library` are shared by the backend and all its executors, which may be destroyed in any order.
    OnednnExecutor(std::shared_ptr<const Library> library, std::shared_ptr<Workspace> workspace, Compiled compiled,
                   const Graph& graph, int batch, Phase phase);

    int batch() const override { return batch_; }
    double forward(const ForwardInput& input) override;
    void backward(bool accumulate, GradientSink* sink) override;
    std::span<const float> logits() const override { return compiled_.losses.back()->logits; }
    std::span<const float> losses() const override { return compiled_.losses.back()->losses; }
    MemoryUse memory() const override;
    std::vector<StepFacts> steps() const override { return compiled_.facts; }
    const std::vector<ChosenConvolution>& convolutions() const { return compiled_.convolutions; }
    StepTimes time_steps(const ForwardInput& input) override;
    double time_alone(size_t step, int repeats) override;
    std::vector<PlannedBuffer> memory_plan() const override { return compiled_.program->planned_buffers(); }

private:
    void begin(const ForwardInput& input);
    void take_labels(const ForwardInput& input);
    void require_labels(std::span<const int32_t> labels, int32_t smallest) const;
    void run(PlacedStep& placed, const RunContext& context) const;
    double sum_losses();
    void name_steps(const Graph& graph);
    double time_list(std::vector<PlacedStep>& list, std::vector<double>& step_ms) const;

    std::shared_ptr<const Library> library_;
    std::shared_ptr<Workspace> workspace_;
    Compiled compiled_;
    std::vector<std::string> op_names_;
    int batch_;
    Phase phase_;
    size_t classes_;
    size_t input_count_;
    RunContext context_;
    std::byte* bound_to_ = nullptr;
    bool forward_done_ = false;
};

}  // namespace lockstep::onednn
