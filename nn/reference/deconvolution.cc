// Deconvolution by its definition, the transpose of a convolution: input pixel (r, c) adds w[i, o, kr, kc] * x[n, i, r, c] to
// output pixel (r * stride - pad + kr, c * stride - pad + kc), for the input channels i and output channels o of one group.
#include <algorithm>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

class Deconvolution final : public Node {
public:
    Deconvolution(NodeContext context, const DeconvOp& op)
        : context_(std::move(context)),
          op_(op),
          in_(context_.input().shape),
          out_(context_.output.shape),
          group_in_(in_.channels / op.groups),
          group_out_(out_.channels / op.groups),
          output_sums_(context_.output.value.size()),
          input_sums_(context_.input().gradient.size()),
          weight_sums_(context_.parameters[0].value.size()) {}

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, context_.output.batch * out_.channels, [&](int64_t plane) {
            const int64_t image = plane / out_.channels, out = plane % out_.channels;
            const std::span<double> sums = part(output_sums_, plane, out_.height * out_.width, op_.bias ? parameter(1, out) : 0.0);
            const float* input = context_.input().value.data();
            for_each_input_of(out, [&](int64_t in) {
                for_each_pair(image, in, out, [&](size_t pixel, size_t place, size_t tap) {
                    sums[place] += static_cast<double>(input[pixel]) * weights()[tap];
                });
            });
            for (size_t pixel = 0; pixel < sums.size(); ++pixel) {
                context_.output.value[static_cast<size_t>(plane) * sums.size() + pixel] = static_cast<float>(sums[pixel]);
            }
        });
    }

    void backward(bool accumulate) override {
        parallel_for(context_.threads, in_.channels, [&](int64_t in) { backward_weights(in, accumulate); });
        if (op_.bias) parallel_for(context_.threads, out_.channels, [&](int64_t out) { backward_bias(out, accumulate); });
        if (!context_.input().wants_gradient()) return;
        parallel_for(context_.threads, context_.output.batch * in_.channels,
                     [&](int64_t plane) { backward_plane(plane / in_.channels, plane % in_.channels); });
    }

private:
    // The index-th part of `count` sums, all at `start`. Threads take different parts.
    static std::span<double> part(std::vector<double>& all, int64_t index, int64_t count, double start) {
        const std::span<double> sums = std::span(all).subspan(static_cast<size_t>(index * count), static_cast<size_t>(count));
        std::ranges::fill(sums, start);
        return sums;
    }

    const float* weights() const { return context_.parameters[0].value.data(); }
    double parameter(size_t slot, int64_t element) const { return context_.parameters[slot].value[static_cast<size_t>(element)]; }
    const float* output_gradient(int64_t image, int64_t out) const {
        return context_.output.gradient.data() + (image * out_.channels + out) * out_.height * out_.width;
    }
    int64_t taps() const { return op_.kernel_h * op_.kernel_w; }

    template <typename Body>
    void for_each_input_of(int64_t out, const Body& body) const {
        const int64_t first = out / group_out_ * group_in_;
        for (int64_t in = first; in < first + group_in_; ++in) body(in);
    }
    template <typename Body>
    void for_each_output_of(int64_t in, const Body& body) const {
        const int64_t first = in / group_in_ * group_out_;
        for (int64_t out = first; out < first + group_out_; ++out) body(out);
    }

    // body(input element of the batch, pixel of the output plane, element of the weights) for all that meet.
    template <typename Body>
    void for_each_pair(int64_t image, int64_t in, int64_t out, const Body& body) const {
        const int64_t plane = (image * in_.channels + in) * in_.height * in_.width;
        const int64_t first_tap = (in * group_out_ + out % group_out_) * taps();
        for (int64_t row = 0; row < in_.height; ++row) {
            for (int64_t column = 0; column < in_.width; ++column) {
                for (int64_t tap = 0; tap < taps(); ++tap) {
                    const int64_t to_row = row * op_.stride_h - op_.pad_h + tap / op_.kernel_w;
                    const int64_t to_column = column * op_.stride_w - op_.pad_w + tap % op_.kernel_w;
                    if (to_row < 0 || to_row >= out_.height || to_column < 0 || to_column >= out_.width) continue;
                    body(static_cast<size_t>(plane + row * in_.width + column),
                         static_cast<size_t>(to_row * out_.width + to_column), static_cast<size_t>(first_tap + tap));
                }
            }
        }
    }

    void backward_weights(int64_t in, bool accumulate) {
        const float* input = context_.input().value.data();
        const auto first = static_cast<size_t>(in * group_out_ * taps());
        const std::span<double> sums = part(weight_sums_, in, group_out_ * taps(), 0.0);
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            for_each_output_of(in, [&](int64_t out) {
                const float* gradient = output_gradient(image, out);
                for_each_pair(image, in, out, [&](size_t pixel, size_t place, size_t tap) {
                    sums[tap - first] += static_cast<double>(input[pixel]) * gradient[place];
                });
            });
        }
        for (size_t tap = 0; tap < sums.size(); ++tap) store(context_.parameters[0].gradient[first + tap], sums[tap], accumulate);
    }

    void backward_bias(int64_t out, bool accumulate) {
        double sum = 0.0;
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            const float* gradient = output_gradient(image, out);
            for (int64_t pixel = 0; pixel < out_.height * out_.width; ++pixel) sum += gradient[pixel];
        }
        store(context_.parameters[1].gradient[static_cast<size_t>(out)], sum, accumulate);
    }

    void backward_plane(int64_t image, int64_t in) {
        const auto first = static_cast<size_t>((image * in_.channels + in) * in_.height * in_.width);
        const std::span<double> sums = part(input_sums_, image * in_.channels + in, in_.height * in_.width, 0.0);
        for_each_output_of(in, [&](int64_t out) {
            const float* gradient = output_gradient(image, out);
            for_each_pair(image, in, out, [&](size_t pixel, size_t place, size_t tap) {
                sums[pixel - first] += static_cast<double>(gradient[place]) * weights()[tap];
            });
        });
        for (size_t pixel = 0; pixel < sums.size(); ++pixel) add_to(context_.input().gradient[first + pixel], sums[pixel]);
    }

    NodeContext context_;
    DeconvOp op_;
    FeatureShape in_, out_;
    int64_t group_in_, group_out_;  // channels of one group
    std::vector<double> output_sums_, input_sums_, weight_sums_;
};

}  // namespace

std::unique_ptr<Node> make_deconvolution(NodeContext context, const DeconvOp& op) {
    return std::make_unique<Deconvolution>(std::move(context), op);
}

}  // namespace lockstep::reference
