#include "nn/onednn/compiler.h"

#include <algorithm>

#include <dnnl_debug.h>
#include <fmt/format.h>

#include "core/error.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

std::string kind_text(dnnl::primitive::kind kind) {
    const std::string text = dnnl_prim_kind2str(static_cast<dnnl_primitive_kind_t>(kind));
    return text.ends_with("_v2") ? text.substr(0, text.size() - 3) : text;
}

const Value* argument(const Arguments& arguments, std::initializer_list<int> slots) {
    for (const int wanted : slots) {
        for (const auto& [slot, value] : arguments) {
            if (slot == wanted) return &value;
        }
    }
    return nullptr;
}

// What a primitive that writes gradients writes them of; empty for forward ones.
std::string direction_text(const Arguments& arguments) {
    if (argument(arguments, {DNNL_ARG_DIFF_SRC}) != nullptr) return " gradient";
    if (argument(arguments, {DNNL_ARG_DIFF_WEIGHTS}) != nullptr) return " weight gradient";
    return {};
}

std::string layouts_text(const Arguments& arguments) {
    const Value* data = argument(arguments, {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC});
    const Value* result = argument(arguments, {DNNL_ARG_DIFF_SRC, DNNL_ARG_DST});
    const Value* weights = argument(arguments, {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS});
    std::string text = data == nullptr ? "" : layout_text(data->desc);
    if (result != nullptr && layout_text(result->desc) != text) text += " to " + layout_text(result->desc);
    if (weights != nullptr) text += ", weights " + layout_text(weights->desc);
    return text;
}

}  // namespace

Compiler::Compiler(const Library& library, const Graph& graph, int batch, Phase phase, LayoutTable& layouts,
                   ConvolutionChooser& chooser, ParameterArena* arena)
    : library_(library), graph_(graph), batch_(batch), phase_(phase), layouts_(layouts), chooser_(chooser), arena_(arena) {
    if (batch < 1) throw ConfigError(fmt::format("network '{}': the batch must be at least 1, not {}", graph.name, batch));
    validate(graph);
    shapes_ = infer_shapes(graph);
    macs_ = forward_macs_by_op(graph);
    const size_t op_count = graph.ops.size();
    active_ = training() ? std::vector<bool>(op_count, true) : ops_of_last_loss(graph);
    consumers_.resize(op_count);
    for (size_t index = 0; index < op_count; ++index) {
        if (!active_[index]) continue;
        for (const int input : graph.ops[index].inputs) consumers_[static_cast<size_t>(input)].push_back(static_cast<int>(index));
    }
    outputs_.resize(op_count);
    gradient_descs_.resize(op_count);
    contributions_.resize(op_count);
    compiled_.program = std::make_unique<Program>();
    decide_fusion();
    decide_norms_before_adds();
    decide_tails();
    plan_needs();
    for (int index = 0; index < static_cast<int>(op_count); ++index) plans_.push_back(make_op_plan(*this, index));
}

Compiler::~Compiler() = default;

// A ReLU that is the only consumer of an op which can apply it in the same pass is fused into that op.
void Compiler::decide_fusion() {
    fused_relu_.resize(graph_.ops.size(), false);
    applied_sigmoid_.resize(graph_.ops.size(), false);
    add_after_norm_.resize(graph_.ops.size(), -1);
    norm_before_add_.resize(graph_.ops.size(), nullptr);
    if (library_.options.fusion == Fusion::off) return;
    for (size_t index = 0; index < graph_.ops.size(); ++index) {
        const OpAttributes& attributes = graph_.ops[index].attributes;
        const bool can = std::holds_alternative<BatchNormOp>(attributes) || std::holds_alternative<AddOp>(attributes) ||
                         std::holds_alternative<ConvOp>(attributes) || std::holds_alternative<FullyConnectedOp>(attributes);
        const std::vector<int>& readers = consumers_[index];
        fused_relu_[index] = can && readers.size() == 1 && std::holds_alternative<ReluOp>(op(readers[0]).attributes);
    }
}

// An addition with its ReLU does the work of one batch norm in front of it, of which it is the only reader: the first such.
void Compiler::decide_norms_before_adds() {
    if (!training() || library_.options.fusion != Fusion::all) return;
    for (size_t index = 0; index < graph_.ops.size(); ++index) {
        const Op& add = graph_.ops[index];
        if (!std::holds_alternative<AddOp>(add.attributes) || !fused_relu_[index]) continue;
        for (const int input : add.inputs) {
            const bool is_norm = std::holds_alternative<BatchNormOp>(op(input).attributes);
            if (!is_norm || consumers_[static_cast<size_t>(input)].size() != 1) continue;
            add_after_norm_[static_cast<size_t>(input)] = static_cast<int>(index);
            break;
        }
    }
}

// In evaluation a convolution does the batch norm that is its only reader, an addition that is that one's only reader where the
// other addend is there by then, and the ReLU behind; less where the library has no such code.
void Compiler::decide_tails() {
    tails_.resize(graph_.ops.size());
    done_by_.resize(graph_.ops.size(), -1);
    if (training() || library_.options.fusion != Fusion::all) return;
    for (int index = 0; index < static_cast<int>(graph_.ops.size()); ++index) {
        const auto* conv = std::get_if<ConvOp>(&op(index).attributes);
        if (conv == nullptr) continue;
        std::optional<InferenceTail>& tail = tails_[static_cast<size_t>(index)];
        for (const bool with_addition : {true, false}) {
            tail = possible_tail(index, with_addition);
            if (tail && convolution_carries_tail(*this, index, *conv)) break;
            tail.reset();
        }
        if (!tail) continue;
        done_by_[static_cast<size_t>(tail->norm)] = index;
        if (tail->addend) done_by_[static_cast<size_t>(only_reader(tail->norm))] = tail->norm;
    }
}

std::optional<InferenceTail> Compiler::possible_tail(int conv, bool with_addition) const {
    const int norm = only_reader(conv);
    if (norm < 0 || !std::holds_alternative<BatchNormOp>(op(norm).attributes)) return std::nullopt;
    InferenceTail tail{.norm = norm, .relu = has_fused_relu(norm)};
    const int add = only_reader(norm);
    if (!with_addition || add < 0 || !std::holds_alternative<AddOp>(op(add).attributes) || done_by(add) >= 0) return tail;
    const std::vector<int>& inputs = op(add).inputs;
    const int other = inputs[0] == norm ? inputs[1] : inputs[0];
    if (other < conv) {
        tail.addend = other;
        tail.relu = has_fused_relu(add);
    }
    return tail;
}

int Compiler::only_reader(int index) const {
    const std::vector<int>& readers = consumers_.at(static_cast<size_t>(index));
    return readers.size() == 1 ? readers.front() : -1;
}

// Gradients flow only to ops that have parameters themselves or behind them.
void Compiler::plan_needs() {
    const std::vector<ParameterOwner> owners = backward_order(graph_);
    const size_t op_count = graph_.ops.size();
    first_entry_.resize(op_count, 0);
    entry_end_.resize(op_count, 0);
    needs_gradient_.resize(op_count, false);
    for (size_t index = owners.size(); index-- > 0;) {
        const size_t owner = static_cast<size_t>(owners[index].op);
        first_entry_[owner] = index;
        entry_end_[owner] = std::max(entry_end_[owner], index + 1);
        needs_gradient_[owner] = true;
    }
    for (size_t index = 0; index < op_count; ++index) {
        for (const int input : graph_.ops[index].inputs) {
            if (needs_gradient_[static_cast<size_t>(input)]) needs_gradient_[index] = true;
        }
    }
    entry_descs_.resize(owners.size());
    if (planning()) {
        for (const ParameterOwner& owner : owners) {
            entries_.push_back({.spec = owner.spec, .physical_count = element_count(owner.spec.shape)});
        }
        return;
    }
    entries_ = arena_->entries();
    check(entries_.size() == owners.size() + 1, "the arena is not from this graph");
    for (size_t entry = 0; entry < owners.size(); ++entry) {
        check(entries_[entry].spec.name == owners[entry].spec.name, "the arena is not from this graph");
    }
}

Compiled Compiler::compile() {
    library_.use_threads();
    compile_forward();
    if (training()) compile_backward();
    compiled_.program->finish(library_.options.share_memory);
    return std::move(compiled_);
}

std::vector<ParameterEntry> Compiler::plan_parameters() {
    library_.use_threads();
    compile_forward();
    return entries_;
}

void Compiler::compile_forward() {
    for (int index = 0; index < static_cast<int>(graph_.ops.size()); ++index)
        with_op_named(index, "forward", &Compiler::forward_op);
}

void Compiler::compile_backward() {
    compiled_.program->begin_backward();
    for (int index = static_cast<int>(graph_.ops.size()) - 1; index > 0; --index) {
        with_op_named(index, "backward", &Compiler::backward_op);
    }
}

void Compiler::with_op_named(int index, std::string_view part, void (Compiler::*work)(int)) {
    current_op_ = index;
    try {
        (this->*work)(index);
    } catch (const dnnl::error& error) {
        const std::string what = fmt::format("network '{}', op '{}' ({}, batch {}): oneDNN says '{}' (status {})", graph_.name,
                                             op(index).name, part, batch_, error.message, static_cast<int>(error.status));
        if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) {
            throw ConfigError(what + "; change the op's options or use backend reference");
        }
        throw DeviceError(what + "; use a smaller batch or more memory");
    }
}

void Compiler::forward_op(int index) {
    if (!active(index)) return;
    plans_[static_cast<size_t>(index)]->forward(*this);
    for (const int input : op(index).inputs) {
        const int buffer = output(input).buffer;
        if (buffer != Value::kElsewhere) --forward_readers_[static_cast<size_t>(buffer)];
    }
}

void Compiler::backward_op(int index) {
    const bool is_loss = std::holds_alternative<SoftmaxCrossEntropyOp>(op(index).attributes);
    if (needs_gradient(index) || is_loss) plans_[static_cast<size_t>(index)]->backward(*this);
}

LossState& Compiler::add_loss() {
    compiled_.losses.push_back(std::make_unique<LossState>());
    return *compiled_.losses.back();
}

bool Compiler::has_fused_relu(int index) const { return fused_relu_.at(static_cast<size_t>(index)); }

bool Compiler::feeds_sigmoid_only(int index) const {
    const std::vector<int>& readers = consumers_.at(static_cast<size_t>(index));
    return training() && library_.options.fusion == Fusion::all && readers.size() == 1 &&
           std::holds_alternative<SigmoidOp>(op(readers.front()).attributes);
}

bool Compiler::feeds_loss(int index) const {
    const std::vector<int>& readers = consumers_.at(static_cast<size_t>(index));
    return std::any_of(readers.begin(), readers.end(),
                       [&](int reader) { return std::holds_alternative<SoftmaxCrossEntropyOp>(op(reader).attributes); });
}

dnnl::memory::dims Compiler::dims(int index) const {
    const FeatureShape& features = shape(index);
    return {batch_, features.channels, features.height, features.width};
}

// --- parameters

MemoryDesc Compiler::parameter_desc(size_t entry, const dnnl::memory::dims& dims) const {
    const ParameterEntry& place = entries_.at(entry);
    return place.layout == "plain" ? plain_desc(dims, dnnl::memory::data_type::f32) : layouts_.find(place);
}

Value Compiler::parameter_value(size_t entry, const dnnl::memory::dims& dims) {
    const MemoryDesc desc = parameter_desc(entry, dims);
    if (planning()) return {{}, desc, Value::kElsewhere};
    return {dnnl::memory(desc, library_.engine, arena_->value(entry).data()), desc, Value::kElsewhere};
}

Value Compiler::parameter_gradient(size_t entry, const dnnl::memory::dims& dims) {
    return parameter_gradient(entry, parameter_desc(entry, dims));
}

Value Compiler::parameter_gradient(size_t entry, const MemoryDesc& desc) {
    return {dnnl::memory(desc, library_.engine, arena_->gradient(entry).data()), desc, Value::kElsewhere};
}

Value Compiler::value_as(const Value& parameter, const MemoryDesc& desc) {
    if (parameter.desc == desc || planning()) return parameter;
    const Value copy = new_value(desc, "weights in another layout");
    reorder(parameter, copy);
    ++compiled_.weight_reorders;
    return copy;
}

void Compiler::choose_layout(size_t entry, const MemoryDesc& desc) {
    check(planning(), "layouts are chosen by plan_parameters only");
    ParameterEntry& place = entries_.at(entry);
    place.layout = layout_text(desc);
    place.physical_count = physical_count(desc);
    if (place.layout != "plain") layouts_.remember(place, desc);
}

void Compiler::entries_done(int index) {
    PlacedStep* step = compiled_.program->last_backward_step();
    if (step != nullptr) step->entries_done = entry_end_.at(static_cast<size_t>(index));
}

// --- steps

Value Compiler::new_value(const MemoryDesc& desc, std::string_view role) {
    if (role.empty()) role = compiled_.program->in_backward() ? "gradient" : "output";
    const int buffer = compiled_.program->add_buffer(desc.get_size(), fmt::format("{} {}", op(current_op_).name, role));
    forward_readers_.push_back(0);
    kept_.push_back(false);
    remade_.emplace_back();
    gradient_readers_.push_back(0);
    return compiled_.program->add_value(library_.engine, desc, buffer);
}

Value Compiler::view(const Value& value, const MemoryDesc& desc) {
    if (value.buffer == Value::kElsewhere) {
        return {dnnl::memory(desc, library_.engine, value.memory.get_data_handle()), desc, Value::kElsewhere};
    }
    return compiled_.program->add_value(library_.engine, desc, value.buffer);
}

Value Compiler::as_layout(const Value& value, const MemoryDesc& desc) {
    if (value.desc == desc) return value;
    const Value copy = new_value(desc, "in another layout");
    reorder(value, copy);
    ++compiled_.reorders;
    return copy;
}

void Compiler::add_step(std::unique_ptr<Step> step, const std::vector<const Value*>& used) {
    StepFacts& facts = note_step();
    facts.what = step->name();
    facts.implementation = "own";
    for (const Value* value : used) {
        compiled_.program->touch(value->buffer);
        facts.bytes += static_cast<double>(value->desc.get_size());
    }
    if (!used.empty()) facts.layout = layout_text(used.front()->desc);
    compiled_.program->add_step(std::move(step), current_op_);
}

ConvolutionCode Compiler::choose(const ConvolutionChoice& choice) {
    const ConvolutionCode code = chooser_.choose(choice);
    compiled_.convolutions.push_back({choice.key, code, compiled_.facts.size()});
    return code;
}

void Compiler::add_convolution_step(std::unique_ptr<Step> step, std::string_view code, const std::vector<const Value*>& used,
                                    const std::optional<Value>& scratch) {
    if (scratch) {
        compiled_.program->touch(scratch->buffer);
        compiled_.scratch_bytes = std::max(compiled_.scratch_bytes, scratch->desc.get_size());
    }
    add_step(std::move(step), used);
    StepFacts& facts = compiled_.facts.back();
    facts.implementation = code;
    facts.layout = fmt::format("{}, weights {}", layout_text(used[0]->desc), layout_text(used[1]->desc));
    facts.flop = flop_of_op();
}

double Compiler::flop_of_op() const { return 2.0 * static_cast<double>(macs_[static_cast<size_t>(current_op_)]) * batch_; }

void Compiler::reorder(const Value& from, const Value& to) {
    const dnnl::reorder::primitive_desc desc(library_.engine, from.desc, library_.engine, to.desc, attributes());
    run<dnnl::reorder>(desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

dnnl::primitive_attr Compiler::attributes() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
}

Arguments Compiler::with_scratchpad(const Arguments& arguments, const MemoryDesc& scratchpad) {
    if (scratchpad.get_size() == 0) return arguments;
    compiled_.scratch_bytes = std::max(compiled_.scratch_bytes, scratchpad.get_size());
    Arguments all = arguments;
    all.emplace_back(DNNL_ARG_SCRATCHPAD, new_value(scratchpad, "scratchpad"));
    return all;
}

void Compiler::add_primitive(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments) {
    note_primitive(primitive, code, arguments);
    for (const auto& [slot, value] : arguments) compiled_.program->touch(value.buffer);
    compiled_.program->add_step(std::make_unique<PrimitiveStep>(library_.stream, primitive, arguments), current_op_);
}

void Compiler::add_gradient_step(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments,
                                 const std::vector<GradientOutput>& outputs) {
    GradientWork write;  // straight to the arena
    GradientWork add;    // aside, then added to the arena
    Arguments write_arguments = arguments;
    Arguments add_arguments = arguments;
    std::vector<std::pair<Value, Value>> write_copies, add_copies;
    for (const GradientOutput& output : outputs) {
        const Value target =
            output.arena ? parameter_gradient(output.entry, *output.arena) : parameter_gradient(output.entry, output.desc.dims());
        const Value aside = new_value(target.desc, "gradient to be added");
        const bool same_layout = output.desc == target.desc;
        const Value foreign = same_layout ? Value{} : new_value(output.desc, "gradient in another layout");
        write_arguments.emplace_back(output.slot, same_layout ? target : foreign);
        add_arguments.emplace_back(output.slot, same_layout ? aside : foreign);
        if (!same_layout) {
            write_copies.emplace_back(foreign, target);
            add_copies.emplace_back(foreign, aside);
            compiled_.program->touch(foreign.buffer);
            ++compiled_.weight_reorders;
        }
        compiled_.program->touch(aside.buffer);
        add.sums.push_back({aside, target, physical_count(target.desc)});
    }
    for (const auto& [slot, value] : arguments) compiled_.program->touch(value.buffer);
    note_primitive(primitive, code, write_arguments);
    write.steps.push_back(std::make_unique<PrimitiveStep>(library_.stream, primitive, write_arguments));
    add.steps.push_back(std::make_unique<PrimitiveStep>(library_.stream, primitive, add_arguments));
    for (const auto& [from, to] : write_copies) write.steps.push_back(copy_step(from, to));
    for (const auto& [from, to] : add_copies) add.steps.push_back(copy_step(from, to));
    compiled_.program->add_step(std::make_unique<GradientStep>(std::move(write), std::move(add)), current_op_);
}

// --- facts

StepFacts& Compiler::note_step() {
    StepFacts& facts = compiled_.facts.emplace_back();
    facts.part = compiled_.program->in_backward() ? StepFacts::Part::backward : StepFacts::Part::forward;
    facts.group = group_text();
    return facts;
}

// The ops whose work one pass does: the batch norm before an addition, the op itself and the ReLU behind it.
std::string Compiler::group_text() const {
    std::string group = op(current_op_).name;
    for (const int input : op(current_op_).inputs) {
        if (add_after_norm(input) == current_op_ && norm_before_add(current_op_) != nullptr) group = op(input).name + " + " + group;
    }
    if (has_fused_relu(current_op_) || applies_sigmoid(current_op_))
        group += " + " + op(consumers_[static_cast<size_t>(current_op_)].front()).name;
    if (const std::optional<InferenceTail>& after = tail(current_op_)) {
        int top = after->norm;
        group += " + " + op(top).name;
        if (after->addend) {
            top = consumers_[static_cast<size_t>(top)].front();
            group += " + " + op(top).name;
        }
        if (after->relu) group += " + " + op(consumers_[static_cast<size_t>(top)].front()).name;
    }
    return group == op(current_op_).name ? std::string() : group;
}

void Compiler::note_primitive(const dnnl::primitive& primitive, std::string_view code, const Arguments& arguments) {
    const auto kind = primitive.get_kind();
    StepFacts& facts = note_step();
    facts.what = kind_text(kind) + direction_text(arguments);
    facts.implementation = code;
    facts.layout = layouts_text(arguments);
    facts.is_reorder = kind == dnnl::primitive::kind::reorder;
    if (facts.is_reorder) facts.group.clear();
    if (kind == dnnl::primitive::kind::convolution || kind == dnnl::primitive::kind::deconvolution ||
        kind == dnnl::primitive::kind::inner_product) {
        facts.flop = flop_of_op();
    }
    for (const auto& [slot, value] : arguments) {
        if (slot != DNNL_ARG_SCRATCHPAD) facts.bytes += static_cast<double>(value.desc.get_size());
    }
}

std::unique_ptr<Step> Compiler::copy_step(const Value& from, const Value& to) {
    const dnnl::reorder::primitive_desc desc(library_.engine, from.desc, library_.engine, to.desc, attributes());
    const Arguments arguments = with_scratchpad({{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, desc.scratchpad_desc());
    if (arguments.size() == 3) compiled_.program->touch(arguments.back().second.buffer);
    return std::make_unique<PrimitiveStep>(library_.stream, dnnl::reorder(desc), arguments);
}

}  // namespace lockstep::onednn
