#include "nn/onednn/program.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "nn/onednn/call_memory.h"

namespace lockstep::onednn {

Operand Value::operand() const { return {memory.get_data_handle(), core_type(desc)}; }

PrimitiveStep::PrimitiveStep(dnnl::stream stream, dnnl::primitive primitive, Arguments arguments)
    : stream_(std::move(stream)), primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    for (const auto& [slot, value] : arguments_) c_arguments_.push_back({slot, value.memory.get()});
}

void PrimitiveStep::run(const RunContext& /*context*/) {
    std::optional<CallMemoryScope> scope;
    if (is_warm_) scope.emplace();
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(c_arguments_.size()), c_arguments_.data()),
        "could not execute a primitive");
    is_warm_ = true;
}

void Workspace::reserve(size_t bytes) {
    if (bytes <= buffer_.byte_count()) return;
    buffer_ = Buffer();  // give the old block back first: the two need not fit side by side
    buffer_ = pool_.allocate(bytes);
}

int Program::add_buffer(size_t bytes, std::string name) {
    lives_.push_back({.bytes = bytes, .first_use = -1, .last_use = -1});
    buffer_names_.push_back(std::move(name));
    return static_cast<int>(lives_.size()) - 1;
}

Value Program::add_value(const dnnl::engine& engine, const MemoryDesc& desc, int buffer) {
    Value value{dnnl::memory(desc, engine, DNNL_MEMORY_NONE), desc, buffer};
    bindings_.push_back({value.memory, buffer});
    return value;
}

void Program::touch(int buffer) {
    if (buffer == Value::kElsewhere) return;
    BufferLife& life = lives_.at(static_cast<size_t>(buffer));
    if (life.first_use < 0) life.first_use = next_step_;
    life.last_use = next_step_;
}

void Program::add_step(std::unique_ptr<Step> step, int op) {
    (in_backward_ ? backward_ : forward_).push_back({std::move(step), op, 0});
    ++next_step_;
}

PlacedStep* Program::last_backward_step() { return backward_.empty() ? nullptr : &backward_.back(); }

void Program::finish(bool share_memory) {
    std::vector<BufferLife> lives = lives_;
    if (!share_memory) {
        for (BufferLife& life : lives) life = {.bytes = life.bytes, .first_use = 0, .last_use = next_step_};
    }
    plan_ = plan_memory(lives);
}

std::vector<PlannedBuffer> Program::planned_buffers() const {
    std::vector<PlannedBuffer> buffers;
    for (size_t index = 0; index < lives_.size(); ++index) {
        const BufferLife& life = lives_[index];
        if (life.first_use < 0 || life.bytes == 0) continue;
        buffers.push_back({.name = buffer_names_[index],
                           .bytes = life.bytes,
                           .offset = plan_.offsets[index],
                           .first_step = static_cast<size_t>(life.first_use),
                           .last_step = static_cast<size_t>(life.last_use)});
    }
    return buffers;
}

size_t Program::kept_bytes() const {
    size_t bytes = 0;
    for (const PlacedStep& placed : forward_) bytes += placed.step->kept_bytes();
    return bytes;
}

void Program::bind(std::byte* workspace) {
    for (Binding& binding : bindings_) {
        binding.memory.set_data_handle(workspace + plan_.offsets[static_cast<size_t>(binding.buffer)]);
    }
}

}  // namespace lockstep::onednn
