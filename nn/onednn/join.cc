// Where branches meet: add, concat, and the shortcut that pads channels.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "nn/onednn/norm.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

// The gradient of both inputs is the gradient of the sum, so both get the same buffer and backward makes no pass of its own.
class AddPlan final : public OpPlan {
public:
    using OpPlan::OpPlan;

    void forward(Compiler& compiler) override {
        const std::vector<int>& inputs = compiler.op(op_).inputs;
        if (NormPlan* const norm = compiler.norm_before_add(op_); norm != nullptr) {
            compiler.set_output(op_, norm->forward_with(compiler, compiler.output(addend_of_norm(compiler))));
            return;
        }
        const Value& a = compiler.output(inputs[0]);
        const Value b = compiler.as_layout(compiler.output(inputs[1]), a.desc);
        result_ = compiler.may_overwrite(a) ? a : compiler.may_overwrite(b) ? b : compiler.new_value(a.desc);
        if (compiler.has_fused_relu(op_)) {
            compiler.add_step(std::make_unique<AddReluStep>(result_, a, b), {&result_, &a, &b});
            compiler.keep(result_);
        } else {
            compiler.add_step(std::make_unique<AddStep>(result_, a, b), {&result_, &a, &b});
        }
        compiler.set_output(op_, result_);
    }

    void backward(Compiler& compiler) override {
        if (NormPlan* const norm = compiler.norm_before_add(op_); norm != nullptr) {
            const int addend = addend_of_norm(compiler);
            const bool wanted = compiler.needs_gradient(addend);
            const Value passed = norm->backward_with(compiler, op_, wanted);
            if (wanted) compiler.contribute(addend, passed);
            return;
        }
        const Value gradient = compiler.has_fused_relu(op_) ? compiler.take_gradient_through_relu(op_, result_).value
                                                            : compiler.take_gradient(op_).value;
        for (const int input : compiler.op(op_).inputs) compiler.contribute(input, gradient);
    }

private:
    // The input that is not the batch norm done in the addition's turn.
    int addend_of_norm(const Compiler& compiler) const {
        const std::vector<int>& inputs = compiler.op(op_).inputs;
        return compiler.add_after_norm(inputs[0]) == op_ ? inputs[1] : inputs[0];
    }

    Value result_;
};

// Copies into slices of the result. Slices of a blocked tensor must start at a block; otherwise the result is plain.
class ConcatPlan final : public OpPlan {
public:
    using OpPlan::OpPlan;

    void forward(Compiler& compiler) override {
        const Value result = compiler.new_value(result_desc(compiler));
        int64_t channel = 0;
        for (const int input : compiler.op(op_).inputs) {
            compiler.reorder(compiler.output(input), slice(compiler, result, input, channel));
            channel += compiler.shape(input).channels;
        }
        compiler.set_output(op_, result);
    }

    void backward(Compiler& compiler) override {
        const Value gradient = compiler.take_gradient(op_).value;
        int64_t channel = 0;
        for (const int input : compiler.op(op_).inputs) {
            if (compiler.needs_gradient(input)) {
                const Value part = compiler.new_value(compiler.gradient_desc(input));
                compiler.reorder(slice(compiler, gradient, input, channel), part);
                compiler.contribute(input, part);
            }
            channel += compiler.shape(input).channels;
        }
    }

private:
    MemoryDesc result_desc(const Compiler& compiler) const {
        const std::vector<int>& inputs = compiler.op(op_).inputs;
        const MemoryDesc& first = compiler.output(inputs[0]).desc;
        const auto type = compiler.library().activation_type();
        const auto whole_blocks = [&](int64_t block) {
            return std::all_of(inputs.begin(), inputs.end(),
                               [&](int input) { return compiler.shape(input).channels % block == 0; });
        };
        using Tag = dnnl::memory::format_tag;
        for (const auto& [tag, block] : {std::pair(Tag::nChw16c, 16), std::pair(Tag::nChw8c, 8), std::pair(Tag::nhwc, 1)}) {
            if (first == MemoryDesc(first.dims(), first.data_type(), tag) && whole_blocks(block)) {
                return {compiler.dims(op_), type, tag};
            }
        }
        return plain_desc(compiler.dims(op_), type);
    }

    Value slice(Compiler& compiler, const Value& whole, int input, int64_t first_channel) const {
        return compiler.view(whole, whole.desc.submemory_desc(compiler.dims(input), {0, first_channel, 0, 0}));
    }
};

// The strides of a (N, C, H, W) layout with at most one block, of channels.
std::optional<ChannelBlocks> channel_blocks(const MemoryDesc& desc) {
    const auto& blocking = desc.data.format_desc.blocking;
    const bool blocked = blocking.inner_nblks == 1 && blocking.inner_idxs[0] == 1;
    if (desc.data.format_kind != dnnl_blocked || (blocking.inner_nblks != 0 && !blocked)) return std::nullopt;
    ChannelBlocks blocks{.channels = desc.data.dims[1], .height = desc.data.dims[2], .width = desc.data.dims[3]};
    blocks.block = blocked ? blocking.inner_blks[0] : 1;
    blocks.block_count = desc.data.padded_dims[1] / blocks.block;
    blocks.image_stride = blocking.strides[0];
    blocks.block_stride = blocking.strides[1];
    blocks.row_stride = blocking.strides[2];
    blocks.pixel_stride = blocking.strides[3];
    return blocks;
}

class PadShortcutPlan final : public OpPlan {
public:
    PadShortcutPlan(int op, const PadShortcutOp& shortcut) : OpPlan(op), shortcut_(shortcut) {}

    void forward(Compiler& compiler) override {
        input_ = compiler.op(op_).inputs[0];
        const Value source = with_known_blocks(compiler, compiler.output(input_));
        const Value result = compiler.new_value(result_desc(compiler, source.desc));
        const PadShortcut shape = kernel_shape(compiler, source.desc, result.desc);
        compiler.add_step(std::make_unique<PadShortcutStep>(shape, PadShortcutStep::Direction::forward, source, result),
                          {&source, &result});
        compiler.set_output(op_, result);
    }

    void backward(Compiler& compiler) override {
        const Value gradient = compiler.take_gradient(op_).value;
        const MemoryDesc& wanted = compiler.gradient_desc(input_);
        const Value result =
            compiler.new_value(channel_blocks(wanted) ? wanted : plain_desc(compiler.dims(input_), wanted.data_type()));
        const PadShortcut shape = kernel_shape(compiler, result.desc, gradient.desc);
        compiler.add_step(std::make_unique<PadShortcutStep>(shape, PadShortcutStep::Direction::backward, gradient, result),
                          {&gradient, &result});
        compiler.contribute(input_, result);
    }

private:
    Value with_known_blocks(Compiler& compiler, const Value& value) const {
        return channel_blocks(value.desc) ? value
                                          : compiler.as_layout(value, plain_desc(value.desc.dims(), value.desc.data_type()));
    }

    MemoryDesc result_desc(const Compiler& compiler, const MemoryDesc& source) const {
        using Tag = dnnl::memory::format_tag;
        for (const Tag tag : {Tag::nChw16c, Tag::nChw8c, Tag::nhwc}) {
            if (source == MemoryDesc(source.dims(), source.data_type(), tag)) return {compiler.dims(op_), source.data_type(), tag};
        }
        return plain_desc(compiler.dims(op_), source.data_type());
    }

    PadShortcut kernel_shape(const Compiler& compiler, const MemoryDesc& small, const MemoryDesc& large) const {
        const std::optional<ChannelBlocks> small_blocks = channel_blocks(small);
        const std::optional<ChannelBlocks> large_blocks = channel_blocks(large);
        check(small_blocks && large_blocks, "the pad shortcut needs channels in blocks");
        return {.batch = compiler.batch(),
                .stride = shortcut_.stride,
                .channels_before = (shortcut_.out_channels - compiler.shape(input_).channels) / 2,
                .small = *small_blocks,
                .large = *large_blocks,
                .element_bytes = bytes_per_element(core_type(small))};
    }

    PadShortcutOp shortcut_;
    int input_ = 0;
};

}  // namespace

std::unique_ptr<OpPlan> make_add(int op) { return std::make_unique<AddPlan>(op); }

std::unique_ptr<OpPlan> make_concat(int op) { return std::make_unique<ConcatPlan>(op); }

std::unique_ptr<OpPlan> make_pad_shortcut(int op, const PadShortcutOp& shortcut) {
    return std::make_unique<PadShortcutPlan>(op, shortcut);
}

}  // namespace lockstep::onednn
