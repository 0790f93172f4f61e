#include <algorithm>
#include <array>
#include <utility>

#include "nn/onednn/kernels/pooling.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

// Padding after the last pixel such that exactly `count` windows fit; more than `pad` in ceil mode.
int64_t pad_after(int64_t input, int64_t count, int64_t kernel, int64_t stride, int64_t pad) {
    const int64_t needed = (count - 1) * stride + kernel - input - pad;
    return needed > pad ? needed : pad;
}

// In ceil mode the last window of an axis may hang over the padded image. The library then still divides a padding-counting average
// by the whole kernel; multiplied by these factors, it is divided by the window's part inside the padded image.
struct OverhangFactors {
    std::vector<float> rows, columns;  // by output position, kernel / (kernel - overhang)

    static std::vector<float> of_axis(int64_t input, int64_t count, int64_t kernel, int64_t stride, int64_t pad) {
        std::vector<float> factors;
        for (int64_t index = 0; index < count; ++index) {
            const int64_t inside = std::min(kernel, input + pad - (index * stride - pad));
            factors.push_back(static_cast<float>(kernel) / static_cast<float>(inside));
        }
        return factors;
    }
};

// Writes the factors of all planes, in plain order.
class OverhangStep final : public Step {
public:
    OverhangStep(Value out, OverhangFactors factors) : out_(std::move(out)), factors_(std::move(factors)) {}

    void run(const RunContext& /*context*/) override {
        auto* element = static_cast<float*>(out_.memory.get_data_handle());
        const int64_t planes = out_.desc.dims()[0] * out_.desc.dims()[1];
        for (int64_t plane = 0; plane < planes; ++plane) {
            for (const float row : factors_.rows) {
                for (const float column : factors_.columns) *element++ = row * column;
            }
        }
    }

private:
    Value out_;
    OverhangFactors factors_;
};

// Our own pooling, one of its four forms.
class PoolStep final : public Step {
public:
    enum class Work : uint8_t { max, max_gradient, average, average_gradient };

    PoolStep(std::shared_ptr<const Pooling> pooling, Work work, Value from, Value to, std::optional<Value> winners)
        : pooling_(std::move(pooling)), work_(work), from_(std::move(from)), to_(std::move(to)), winners_(std::move(winners)) {}

    void run(const RunContext& /*context*/) override {
        const void* from = from_.memory.get_data_handle();
        void* to = to_.memory.get_data_handle();
        auto* winners = winners_ ? static_cast<uint8_t*>(winners_->memory.get_data_handle()) : nullptr;
        switch (work_) {
            case Work::max:
                return pooling_->max_forward(from, to, winners);
            case Work::max_gradient:
                return pooling_->max_backward(from, winners, to);
            case Work::average:
                return pooling_->average_forward(from, to);
            case Work::average_gradient:
                return pooling_->average_backward(from, to);
        }
    }
    std::string_view name() const override {
        constexpr std::array<std::string_view, 4> kNames{"max pooling", "max pooling gradient", "average pooling",
                                                         "average pooling gradient"};
        return kNames[static_cast<size_t>(work_)];
    }

private:
    std::shared_ptr<const Pooling> pooling_;  // shared by forward and backward
    Work work_;
    Value from_, to_;
    std::optional<Value> winners_;
};

class PoolPlan final : public OpPlan {
public:
    // Without options: the average over the whole map.
    PoolPlan(int op, std::optional<PoolOp> options) : OpPlan(op), options_(options) {}
    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;

private:
    void prepare(const Compiler& compiler);
    std::shared_ptr<const Pooling> own_pooling(const Compiler& compiler, const MemoryDesc& source) const;
    void own_forward(Compiler& compiler, const Value& source);
    void own_backward(Compiler& compiler);
    bool divides_overhang(const Compiler& compiler) const;
    Value overhang_factors(Compiler& compiler, const MemoryDesc& layout) const;
    bool is_max() const { return pool_.kind == PoolOp::Kind::max; }

    std::optional<PoolOp> options_;
    PoolOp pool_;
    int input_ = 0;
    dnnl::algorithm algorithm_ = dnnl::algorithm::pooling_max;
    dnnl::memory::dims strides_, kernel_, pad_begin_, pad_end_;
    Forward::primitive_desc forward_desc_;
    Value argmax_, factors_;
    std::shared_ptr<const Pooling> own_;  // null: the library pools
    MemoryDesc source_desc_;
    std::optional<Value> winners_;
};

void PoolPlan::prepare(const Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    const FeatureShape& in = compiler.shape(input_);
    const FeatureShape& out = compiler.shape(op_);
    pool_ = options_
                ? *options_
                : PoolOp{.kind = PoolOp::Kind::average, .kernel_h = in.height, .kernel_w = in.width, .stride_h = 1, .stride_w = 1};
    algorithm_ = is_max()              ? dnnl::algorithm::pooling_max
                 : pool_.count_padding ? dnnl::algorithm::pooling_avg_include_padding
                                       : dnnl::algorithm::pooling_avg_exclude_padding;
    strides_ = {pool_.stride_h, pool_.stride_w};
    kernel_ = {pool_.kernel_h, pool_.kernel_w};
    pad_begin_ = {pool_.pad_h, pool_.pad_w};
    pad_end_ = {pad_after(in.height, out.height, pool_.kernel_h, pool_.stride_h, pool_.pad_h),
                pad_after(in.width, out.width, pool_.kernel_w, pool_.stride_w, pool_.pad_w)};
}

bool PoolPlan::divides_overhang(const Compiler& compiler) const {
    if (is_max() || !pool_.count_padding) return false;
    const FeatureShape& in = compiler.shape(input_);
    const FeatureShape& out = compiler.shape(op_);
    const auto overhangs = [](int64_t input, int64_t count, int64_t kernel, int64_t stride, int64_t pad) {
        return (count - 1) * stride + kernel > input + 2 * pad;
    };
    return overhangs(in.height, out.height, pool_.kernel_h, pool_.stride_h, pool_.pad_h) ||
           overhangs(in.width, out.width, pool_.kernel_w, pool_.stride_w, pool_.pad_w);
}

Value PoolPlan::overhang_factors(Compiler& compiler, const MemoryDesc& layout) const {
    const FeatureShape& in = compiler.shape(input_);
    const FeatureShape& out = compiler.shape(op_);
    OverhangFactors factors{OverhangFactors::of_axis(in.height, out.height, pool_.kernel_h, pool_.stride_h, pool_.pad_h),
                            OverhangFactors::of_axis(in.width, out.width, pool_.kernel_w, pool_.stride_w, pool_.pad_w)};
    const Value plain = compiler.new_value(plain_desc(compiler.dims(op_), dnnl::memory::data_type::f32));
    compiler.add_step(std::make_unique<OverhangStep>(plain, std::move(factors)), {&plain});
    return compiler.as_layout(plain, with_type(layout, dnnl::memory::data_type::f32));
}

// Null where our kernels do not know the layout or the size of the window.
std::shared_ptr<const Pooling> PoolPlan::own_pooling(const Compiler& compiler, const MemoryDesc& source) const {
    const std::optional<int64_t> block = channel_block(source);
    if (!block || (is_max() && pool_.kernel_h * pool_.kernel_w > Pooling::kLargestWindow)) return nullptr;
    const FeatureShape& in = compiler.shape(input_);
    const FeatureShape& out = compiler.shape(op_);
    return std::make_shared<const Pooling>(PoolShape{.planes = compiler.batch() * ((in.channels + *block - 1) / *block),
                                                     .block = *block,
                                                     .type = core_type(source),
                                                     .rows = {in.height, out.height, pool_.kernel_h, pool_.stride_h, pool_.pad_h},
                                                     .columns = {in.width, out.width, pool_.kernel_w, pool_.stride_w, pool_.pad_w},
                                                     .count_padding = pool_.count_padding});
}

void PoolPlan::own_forward(Compiler& compiler, const Value& source) {
    source_desc_ = source.desc;
    const Value result = compiler.new_value(blocked_desc(compiler.dims(op_), source.desc.data_type(), *channel_block(source.desc)));
    std::vector<const Value*> used{&source, &result};
    if (compiler.training() && is_max()) {
        winners_ = compiler.new_value({{physical_count(result.desc)}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a},
                                      "winners");
        used.push_back(&*winners_);
    }
    const auto work = is_max() ? PoolStep::Work::max : PoolStep::Work::average;
    compiler.add_step(std::make_unique<PoolStep>(own_, work, source, result, winners_), used);
    compiler.set_output(op_, result);
}

void PoolPlan::own_backward(Compiler& compiler) {
    const Value gradient = compiler.take_gradient(op_).value;
    const Value result = compiler.new_value(source_desc_);
    std::vector<const Value*> used{&gradient, &result};
    if (winners_) used.push_back(&*winners_);
    const auto work = is_max() ? PoolStep::Work::max_gradient : PoolStep::Work::average_gradient;
    compiler.add_step(std::make_unique<PoolStep>(own_, work, gradient, result, winners_), used);
    compiler.contribute(input_, result);
}

void PoolPlan::forward(Compiler& compiler) {
    prepare(compiler);
    const Value& input = compiler.output(input_);
    own_ = own_pooling(compiler, input.desc);
    if (own_) return own_forward(compiler, input);
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const MemoryDesc any_result = any_desc(compiler.dims(op_), input.desc.data_type());
    forward_desc_ = {{phase, algorithm_, input.desc, any_result, strides_, kernel_, pad_begin_, pad_end_},
                     Compiler::attributes(),
                     compiler.library().engine};
    const Value result = compiler.new_value(forward_desc_.dst_desc());
    Arguments arguments{{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}};
    if (compiler.training() && is_max()) {
        argmax_ = compiler.new_value(forward_desc_.workspace_desc());
        arguments.emplace_back(DNNL_ARG_WORKSPACE, argmax_);
    }
    compiler.run<Forward>(forward_desc_, arguments);
    if (divides_overhang(compiler)) {
        factors_ = overhang_factors(compiler, result.desc);
        compiler.add_step(std::make_unique<MultiplyStep>(result, result, factors_), {&result, &factors_});
    }
    compiler.set_output(op_, result);
}

void PoolPlan::backward(Compiler& compiler) {
    if (!compiler.needs_gradient(input_)) return;
    if (own_) return own_backward(compiler);
    Value gradient = compiler.take_gradient(op_).value;
    if (divides_overhang(compiler)) {
        const Value scaled = compiler.new_value(gradient.desc);
        compiler.add_step(std::make_unique<MultiplyStep>(scaled, gradient, factors_), {&scaled, &gradient, &factors_});
        gradient = scaled;
    }
    const Value result = compiler.new_value(compiler.gradient_desc(input_));
    const Backward::primitive_desc desc({algorithm_, result.desc, gradient.desc, strides_, kernel_, pad_begin_, pad_end_},
                                        Compiler::attributes(), compiler.library().engine, forward_desc_);
    Arguments arguments{{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}};
    if (is_max()) arguments.emplace_back(DNNL_ARG_WORKSPACE, argmax_);
    compiler.run<Backward>(desc, arguments);
    compiler.contribute(input_, result);
}

}  // namespace

std::unique_ptr<OpPlan> make_pool(int op, const PoolOp& pool) { return std::make_unique<PoolPlan>(op, pool); }

std::unique_ptr<OpPlan> make_global_average_pool(int op) { return std::make_unique<PoolPlan>(op, std::nullopt); }

}  // namespace lockstep::onednn
