// The oracle: every op by its definition, in plain layouts. Slow and simple on purpose.
#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "nn/reference/node.h"

namespace lockstep {

namespace {

using reference::Activation;
using reference::Node;
using reference::NodeContext;
using reference::Parameter;

std::unique_ptr<Node> make_node(const Op& op, NodeContext context) {
    struct Maker {
        NodeContext context;
        std::unique_ptr<Node> operator()(const InputOp& /*op*/) { return reference::make_input(std::move(context)); }
        std::unique_ptr<Node> operator()(const ConvOp& op) { return reference::make_convolution(std::move(context), op); }
        std::unique_ptr<Node> operator()(const DeconvOp& op) { return reference::make_deconvolution(std::move(context), op); }
        std::unique_ptr<Node> operator()(const LrnOp& op) { return reference::make_lrn(std::move(context), op); }
        std::unique_ptr<Node> operator()(const BatchNormOp& op) { return reference::make_batch_norm(std::move(context), op); }
        std::unique_ptr<Node> operator()(const ReluOp& /*op*/) { return reference::make_leaky_relu(std::move(context), 0.0F); }
        std::unique_ptr<Node> operator()(const LeakyReluOp& op) { return reference::make_leaky_relu(std::move(context), op.slope); }
        std::unique_ptr<Node> operator()(const SigmoidOp& /*op*/) { return reference::make_sigmoid(std::move(context)); }
        std::unique_ptr<Node> operator()(const PoolOp& op) { return reference::make_pool(std::move(context), op); }
        std::unique_ptr<Node> operator()(const GlobalAveragePoolOp& /*op*/) {
            return reference::make_global_average_pool(std::move(context));
        }
        std::unique_ptr<Node> operator()(const AddOp& /*op*/) { return reference::make_add(std::move(context)); }
        std::unique_ptr<Node> operator()(const ConcatOp& /*op*/) { return reference::make_concat(std::move(context)); }
        std::unique_ptr<Node> operator()(const FullyConnectedOp& op) {
            return reference::make_fully_connected(std::move(context), op);
        }
        std::unique_ptr<Node> operator()(const DropoutOp& op) { return reference::make_dropout(std::move(context), op); }
        std::unique_ptr<Node> operator()(const PadShortcutOp& op) { return reference::make_pad_shortcut(std::move(context), op); }
        std::unique_ptr<Node> operator()(const SoftmaxCrossEntropyOp& op) {
            return reference::make_softmax_cross_entropy(std::move(context), op);
        }
    };
    return std::visit(Maker{std::move(context)}, op.attributes);
}

class ReferenceExecutor final : public Executor {
public:
    ReferenceExecutor(const Graph& graph, int batch, Phase phase, const ParameterArena& arena, int threads)
        : batch_(batch),
          phase_(phase),
          active_(ops_of_last_loss(graph)),
          logits_op_(graph.ops.back().inputs.front()),
          losses_(static_cast<size_t>(batch)) {
        if (phase == Phase::training) active_.assign(graph.ops.size(), true);
        place_activations(infer_shapes(graph));
        place_parameters(graph, arena);
        make_nodes(graph, arena, threads);
    }

    int batch() const override { return batch_; }

    double forward(const ForwardInput& input) override {
        check(input.images.size() == activations_.front().value.size(), "forward: images do not fill the executor's batch");
        check(input.labels.size() == static_cast<size_t>(batch_), "forward: one label per image");
        check(input.second_labels.empty() || input.second_labels.size() == input.labels.size(),
              "forward: one second label per image");
        for (size_t op = 0; op < nodes_.size(); ++op) {
            if (active_[op]) nodes_[op]->forward(input);
        }
        forward_done_ = true;
        sum_losses();
        return std::accumulate(losses_.begin(), losses_.end(), 0.0);
    }

    void backward(bool accumulate, GradientSink* sink) override {
        check(phase_ == Phase::training, "backward: the executor was compiled for evaluation");
        check(forward_done_, "backward: no forward before it");
        std::ranges::fill(gradient_memory_.f32(), 0.0F);
        for (size_t op = nodes_.size(); op-- > 0;) {
            nodes_[op]->backward(accumulate);
            const bool owns_parameters = entry_end_[op] != (op + 1 < nodes_.size() ? entry_end_[op + 1] : 0);
            if (sink != nullptr && owns_parameters) sink->ready_up_to(entry_end_[op]);
        }
    }

    std::span<const float> logits() const override { return activations_[static_cast<size_t>(logits_op_)].value; }
    std::span<const float> losses() const override { return losses_; }

    MemoryUse memory() const override {
        const size_t bytes = value_memory_.byte_count() + gradient_memory_.byte_count();
        return {.activation_bytes = bytes, .activation_bytes_unshared = bytes};
    }

private:
    // Over all heads; each node has put in its weight.
    void sum_losses() {
        std::ranges::fill(losses_, 0.0F);
        for (const size_t op : loss_ops_) {
            for (size_t image = 0; active_[op] && image < losses_.size(); ++image) losses_[image] += activations_[op].value[image];
        }
    }

    void place_activations(const std::vector<FeatureShape>& shapes) {
        int64_t total = 0;
        for (const FeatureShape& shape : shapes) total += batch_ * shape.count();
        HeapPool pool;
        value_memory_ = pool.allocate(static_cast<size_t>(total) * sizeof(float));
        const bool training = phase_ == Phase::training;
        gradient_memory_ = pool.allocate(training ? static_cast<size_t>(total) * sizeof(float) : 0);
        size_t offset = 0;
        for (const FeatureShape& shape : shapes) {
            Activation activation{.batch = batch_, .shape = shape};
            const auto count = static_cast<size_t>(activation.count());
            activation.value = value_memory_.f32().subspan(offset, count);
            const bool is_input = activations_.empty();
            if (training && !is_input) activation.gradient = gradient_memory_.f32().subspan(offset, count);
            activations_.push_back(activation);
            offset += count;
        }
    }

    // entry_end_[op]: entries of the arena that are final once the backward pass has done ops last .. op.
    void place_parameters(const Graph& graph, const ParameterArena& arena) {
        const std::vector<ParameterOwner> owners = backward_order(graph);
        check(arena.entries().size() == owners.size() + 1, "compile: the arena was planned for another network");
        entry_end_.assign(graph.ops.size(), 0);
        for (size_t entry = 0; entry < owners.size(); ++entry) {
            check(arena.entries()[entry].spec.name == owners[entry].spec.name,
                  "compile: the arena was planned for another network");
            entry_end_[static_cast<size_t>(owners[entry].op)] = entry + 1;
        }
        for (size_t op = graph.ops.size() - 1; op-- > 0;) entry_end_[op] = std::max(entry_end_[op], entry_end_[op + 1]);
    }

    void make_nodes(const Graph& graph, const ParameterArena& arena, int threads) {
        for (size_t op = 0; op < graph.ops.size(); ++op) {
            NodeContext context{.op_index = static_cast<int>(op), .phase = phase_, .threads = threads, .output = activations_[op]};
            for (const int input : graph.ops[op].inputs) context.inputs.push_back(activations_[static_cast<size_t>(input)]);
            const size_t first_entry = op + 1 < graph.ops.size() ? entry_end_[op + 1] : 0;
            for (size_t entry = first_entry; entry < entry_end_[op]; ++entry) {
                context.parameters.push_back({.value = arena.value(entry), .gradient = arena.gradient(entry)});
            }
            nodes_.push_back(make_node(graph.ops[op], std::move(context)));
            if (std::holds_alternative<SoftmaxCrossEntropyOp>(graph.ops[op].attributes)) loss_ops_.push_back(op);
        }
    }

    int batch_;
    Phase phase_;
    std::vector<bool> active_;  // by op: all in training, without the auxiliary heads in evaluation
    int logits_op_;
    std::vector<size_t> loss_ops_;
    std::vector<float> losses_;  // of the last forward
    bool forward_done_ = false;
    Buffer value_memory_;
    Buffer gradient_memory_;
    std::vector<Activation> activations_;  // by op
    std::vector<size_t> entry_end_;        // by op
    std::vector<std::unique_ptr<Node>> nodes_;
};

class ReferenceBackend final : public Backend {
public:
    explicit ReferenceBackend(const BackendOptions& options) : threads_(options.threads) {}

    std::string_view name() const override { return "reference"; }

    std::vector<ParameterEntry> plan_parameters(const Graph& graph, int /*batch*/) override {
        validate(graph);
        std::vector<ParameterEntry> entries;
        for (ParameterOwner& owner : backward_order(graph)) {
            const int64_t count = element_count(owner.spec.shape);
            entries.push_back({.spec = std::move(owner.spec), .physical_count = count});
        }
        return entries;
    }

    std::unique_ptr<Executor> compile(const Graph& graph, int batch, Phase phase, ParameterArena& arena) override {
        if (batch < 1) throw ConfigError(fmt::format("batch must be at least 1, not {}", batch));
        validate(graph);
        return std::make_unique<ReferenceExecutor>(graph, batch, phase, arena, threads_);
    }

    void to_plain(const ParameterEntry& entry, std::span<const float> physical, std::span<float> plain) const override {
        copy_exactly(entry, physical, plain);
    }
    void from_plain(const ParameterEntry& entry, std::span<const float> plain, std::span<float> physical) const override {
        copy_exactly(entry, plain, physical);
    }

    std::string description() const override { return fmt::format("reference: plain loops, fp32, {} thread(s)", threads_); }

private:
    static void copy_exactly(const ParameterEntry& entry, std::span<const float> from, std::span<float> to) {
        const auto count = static_cast<size_t>(element_count(entry.spec.shape));
        check(from.size() == count && to.size() == count, "a parameter's data has another size than its shape");
        std::ranges::copy(from, to.begin());
    }

    int threads_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options) {
    if (options.threads < 1) throw ConfigError(fmt::format("a backend needs at least 1 thread, not {}", options.threads));
    if (options.precision != Precision::fp32) {
        throw ConfigError("backend 'reference' computes in fp32 only; set the precision to fp32 or use backend 'onednn'");
    }
    return std::make_unique<ReferenceBackend>(options);
}

}  // namespace lockstep
