#include "nn/onednn/executor.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep::onednn {

namespace {

// In the order of OpAttributes.
constexpr std::array<std::string_view, std::variant_size_v<OpAttributes>> kKinds{
    "input", "conv",   "batch_norm",      "relu",    "leaky_relu",   "sigmoid", "pool", "global_pool",
    "add",   "concat", "fully_connected", "dropout", "pad_shortcut", "loss",    "lrn",  "deconv"};

double ms_since(int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) / 1e6; }

}  // namespace

OnednnExecutor::OnednnExecutor(std::shared_ptr<const Library> library, std::shared_ptr<Workspace> workspace, Compiled compiled,
                               const Graph& graph, int batch, Phase phase)
    : library_(std::move(library)),
      workspace_(std::move(workspace)),
      compiled_(std::move(compiled)),
      batch_(batch),
      phase_(phase),
      classes_(compiled_.losses.back()->logits.size() / static_cast<size_t>(batch)),
      input_count_(static_cast<size_t>(batch * graph.input().channels * graph.input().height * graph.input().width)) {
    for (const Op& op : graph.ops) op_names_.push_back(op.name);
    name_steps(graph);
    workspace_->reserve(compiled_.program->memory_plan().total_bytes);
}

// The block may have moved since this executor last ran, because another one was compiled.
void OnednnExecutor::begin(const ForwardInput& input) {
    check(input.images.size() == input_count_, "images do not fill the executor's batch");
    take_labels(input);
    library_->use_threads();
    if (bound_to_ != workspace_->data()) {
        compiled_.program->bind(workspace_->data());
        bound_to_ = workspace_->data();
    }
    context_ = {.images = input.images.data(), .dropout_key = input.dropout_key};
}

void OnednnExecutor::require_labels(std::span<const int32_t> labels, int32_t smallest) const {
    check(labels.size() == static_cast<size_t>(batch_), "labels do not fill the executor's batch");
    for (const int32_t label : labels) {
        if (label < smallest || label >= static_cast<int64_t>(classes_)) {
            throw DataError(fmt::format("label {} is outside the network's {} classes; check the data set and model.num_classes",
                                        label, classes_));
        }
    }
}

void OnednnExecutor::take_labels(const ForwardInput& input) {
    const bool mixed = !input.second_labels.empty();
    require_labels(input.labels, phase_ == Phase::training ? 0 : -1);
    if (mixed) require_labels(input.second_labels, 0);
    for (const std::unique_ptr<LossState>& head : compiled_.losses) {
        std::ranges::copy(input.labels, head->labels.begin());
        if (mixed) std::ranges::copy(input.second_labels, head->second_labels.begin());
        head->second_share = mixed ? input.second_share : 0.0F;
    }
}

void OnednnExecutor::run(PlacedStep& placed, const RunContext& context) const {
    try {
        placed.step->run(context);
    } catch (const dnnl::error& error) {
        throw DeviceError(fmt::format("op '{}': oneDNN failed while running: {} (status {})",
                                      op_names_[static_cast<size_t>(placed.op)], error.message, static_cast<int>(error.status)));
    }
}

// Heads are joined image by image; then the sum in image order and in double, so that it does not depend on threads.
double OnednnExecutor::sum_losses() {
    std::vector<float>& total = compiled_.losses.back()->losses;
    for (size_t head = 0; head + 1 < compiled_.losses.size(); ++head) {
        const LossState& auxiliary = *compiled_.losses[head];
        for (size_t image = 0; image < total.size(); ++image) total[image] += auxiliary.weight * auxiliary.losses[image];
    }
    double sum = 0.0;
    for (const float loss : total) sum += loss;
    return sum;
}

double OnednnExecutor::forward(const ForwardInput& input) {
    begin(input);
    for (PlacedStep& placed : compiled_.program->forward()) run(placed, context_);
    forward_done_ = true;
    return sum_losses();
}

void OnednnExecutor::backward(bool accumulate, GradientSink* sink) {
    check(phase_ == Phase::training && forward_done_, "backward needs a training executor and a forward before it");
    forward_done_ = false;
    library_->use_threads();
    context_.accumulate = accumulate;
    for (PlacedStep& placed : compiled_.program->backward()) {
        run(placed, context_);
        if (sink != nullptr && placed.entries_done != 0) sink->ready_up_to(placed.entries_done);
    }
}

MemoryUse OnednnExecutor::memory() const {
    const MemoryPlan& plan = compiled_.program->memory_plan();
    return {.activation_bytes = plan.total_bytes,
            .activation_bytes_unshared = plan.unshared_bytes,
            .scratch_bytes = compiled_.scratch_bytes,
            .kept_bytes = compiled_.program->kept_bytes(),
            .reorders = compiled_.reorders,
            .weight_reorders = compiled_.weight_reorders};
}

void OnednnExecutor::name_steps(const Graph& graph) {
    auto facts = compiled_.facts.begin();
    for (const std::vector<PlacedStep>* list : {&compiled_.program->forward(), &compiled_.program->backward()}) {
        for (const PlacedStep& placed : *list) {
            const Op& op = graph.ops[static_cast<size_t>(placed.op)];
            facts->op = op.name;
            facts->kind = kKinds.at(op.attributes.index());
            ++facts;
        }
    }
    check(facts == compiled_.facts.end(), "every step has its facts");
}

double OnednnExecutor::time_list(std::vector<PlacedStep>& list, std::vector<double>& step_ms) const {
    const int64_t list_start_ns = now_ns();
    for (PlacedStep& placed : list) {
        const int64_t start_ns = now_ns();
        run(placed, context_);
        step_ms.push_back(ms_since(start_ns));
    }
    return ms_since(list_start_ns);
}

StepTimes OnednnExecutor::time_steps(const ForwardInput& input) {
    StepTimes times;
    times.step_ms.reserve(compiled_.facts.size());
    begin(input);
    times.forward_ms = time_list(compiled_.program->forward(), times.step_ms);
    times.loss = sum_losses();
    times.backward_ms = time_list(compiled_.program->backward(), times.step_ms);
    forward_done_ = false;
    return times;
}

double OnednnExecutor::time_alone(size_t step, int repeats) {
    check(bound_to_ == workspace_->data() && bound_to_ != nullptr && repeats >= 1, "time_steps comes before time_alone");
    forward_done_ = false;
    library_->use_threads();
    std::vector<PlacedStep>& forward = compiled_.program->forward();
    PlacedStep& placed = step < forward.size() ? forward[step] : compiled_.program->backward().at(step - forward.size());
    run(placed, context_);
    std::vector<double> times_ms;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        const int64_t start_ns = now_ns();
        run(placed, context_);
        times_ms.push_back(ms_since(start_ns));
    }
    std::nth_element(times_ms.begin(), times_ms.begin() + repeats / 2, times_ms.end());
    return times_ms[static_cast<size_t>(repeats / 2)];
}

}  // namespace lockstep::onednn
