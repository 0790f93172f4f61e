// The compiler's books: who still reads an activation or a gradient, what is kept for backward and what is made again.
#include <utility>

#include "core/error.h"
#include "nn/onednn/compiler.h"
#include "nn/onednn/norm.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

// --- activations

void Compiler::set_output(int index, Value value) {
    if (library_.options.plain_between_ops) value = as_layout(value, plain_desc(value.desc.dims(), value.desc.data_type()));
    if (value.buffer != Value::kElsewhere) {
        forward_readers_[static_cast<size_t>(value.buffer)] += static_cast<int>(consumers_.at(static_cast<size_t>(index)).size());
    }
    outputs_.at(static_cast<size_t>(index)) = std::move(value);
}

void Compiler::keep(const Value& value) {
    if (training() && value.buffer != Value::kElsewhere) kept_[static_cast<size_t>(value.buffer)] = true;
}

bool Compiler::may_overwrite(const Value& value) const {
    if (value.buffer == Value::kElsewhere) return false;
    const auto buffer = static_cast<size_t>(value.buffer);
    return forward_readers_[buffer] == 1 && !kept_[buffer] && remade_[buffer].norm == nullptr;
}

bool Compiler::offer_to_remake(const Value& result, NormPlan& norm, const std::optional<Value>& addend) {
    if (library_.options.recompute != Recompute::norms || planning()) return false;
    if (addend) {
        if (addend->buffer == Value::kElsewhere) return false;
        const Remade& before = remade_.at(static_cast<size_t>(addend->buffer));
        if (addend->buffer == result.buffer || before.by_addition) return false;
        if (before.norm == nullptr) keep(*addend);
    }
    remade_.at(static_cast<size_t>(result.buffer)) = {.norm = &norm, .by_addition = addend.has_value()};
    return true;
}

void Compiler::keep_or_remake(const Value& value) {
    if (value.buffer == Value::kElsewhere || remade_[static_cast<size_t>(value.buffer)].norm == nullptr) keep(value);
}

Value Compiler::again(const Value& value) {
    if (value.buffer == Value::kElsewhere) return value;
    const auto buffer = static_cast<size_t>(value.buffer);
    if (remade_[buffer].norm == nullptr || kept_[buffer]) return value;
    if (!remade_[buffer].value) {
        const Value made = remade_[buffer].norm->remake(*this);  // adds buffers
        remade_[buffer].value = made;
    }
    return *remade_[buffer].value;
}

std::optional<MemoryDesc> Compiler::wanted_by_consumer(int index) {
    if (library_.options.plain_between_ops) return std::nullopt;
    return plans_.at(static_cast<size_t>(consumers_.at(static_cast<size_t>(index)).front()))->wanted_input(*this);
}

// --- gradients

const MemoryDesc& Compiler::gradient_desc(int index) const {
    const std::optional<MemoryDesc>& own = gradient_descs_.at(static_cast<size_t>(index));
    return own ? *own : output(index).desc;
}

void Compiler::set_gradient_desc(int index, const MemoryDesc& desc) { gradient_descs_.at(static_cast<size_t>(index)) = desc; }

void Compiler::contribute(int index, const Value& gradient) {
    if (!needs_gradient(index)) return;
    const Value value = as_layout(gradient, gradient_desc(index));
    ++gradient_readers_[static_cast<size_t>(value.buffer)];
    contributions_.at(static_cast<size_t>(index)).push_back(value);
}

void Compiler::pass_gradients(int from, int to) {
    std::vector<Value>& given = contributions_.at(static_cast<size_t>(from));
    std::vector<Value>& target = contributions_.at(static_cast<size_t>(to));
    target.insert(target.end(), given.begin(), given.end());
    given.clear();
}

std::vector<Value> Compiler::take_contributions(int index) {
    std::vector<Value> taken;
    taken.swap(contributions_.at(static_cast<size_t>(index)));
    check(!taken.empty(), "a gradient was asked for before anyone contributed to it");
    return taken;
}

void Compiler::release(const Value& value) { --gradient_readers_[static_cast<size_t>(value.buffer)]; }

bool Compiler::is_last_reader(const Value& value) const { return gradient_readers_[static_cast<size_t>(value.buffer)] == 1; }

// The sum of the first `count` parts, written over one of them if nobody else reads it. The first part stands for the sum in the
// books.
Value Compiler::sum(const std::vector<Value>& parts, size_t count, bool& exclusive) {
    Value total = parts[0];
    exclusive = is_last_reader(total);
    for (size_t index = 1; index < count; ++index) {
        const Value& part = parts[index];
        const bool over_part = !exclusive && is_last_reader(part);
        const Value out = exclusive ? total : over_part ? part : new_value(total.desc);
        add_step(std::make_unique<AddStep>(out, total, part), {&out, &total, &part});
        total = out;
        exclusive = true;
    }
    return total;
}

Gradient Compiler::take_gradient(int index) {
    const std::vector<Value> parts = take_contributions(index);
    Gradient gradient;
    gradient.value = sum(parts, parts.size(), gradient.exclusive);
    for (const Value& part : parts) release(part);
    return gradient;
}

GradientParts Compiler::take_gradient_in_two(int index) {
    const std::vector<Value> all = take_contributions(index);
    GradientParts parts{.first = all[0], .first_exclusive = is_last_reader(all[0])};
    if (all.size() > 2) parts.first = sum(all, all.size() - 1, parts.first_exclusive);
    if (all.size() > 1) {
        parts.second = all.back();
        parts.second_exclusive = is_last_reader(all.back());
    }
    for (const Value& part : all) release(part);
    return parts;
}

Gradient Compiler::take_gradient_through_relu(int index, const Value& relu_output) {
    const GradientParts parts = take_gradient_in_two(index);
    const Value out = parts.first_exclusive ? parts.first : parts.second_exclusive ? *parts.second : new_value(parts.first.desc);
    if (parts.second) {
        add_step(std::make_unique<ReluBackwardStep>(out, relu_output, parts.first, *parts.second),
                 {&out, &relu_output, &parts.first, &*parts.second});
    } else {
        add_step(std::make_unique<ReluBackwardStep>(out, relu_output, parts.first), {&out, &relu_output, &parts.first});
    }
    return {out, true};
}

}  // namespace lockstep::onednn
