// Convolution by its definition:
//   y[n, o, r, c] = bias[o] + sum over i, kr, kc of w[o, i, kr, kc] * x[n, i, r * stride - pad + kr * dilation, ...]
// with i over the input channels of o's group and x zero outside the image. The loops run along image rows and keep a short piece
// of a row of sums in double.
#include <algorithm>
#include <array>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

constexpr int64_t kPiece = 64;  // columns summed at a time

int64_t divide_up(int64_t value, int64_t divisor) { return value <= 0 ? -(-value / divisor) : (value - 1) / divisor + 1; }

struct Range {
    int64_t begin = 0, end = 0;
};

// One spatial axis: output position -> input position for each tap of the kernel.
struct Axis {
    int64_t input, output, kernel, stride, pad, dilation;

    int64_t position(int64_t out, int64_t tap) const { return out * stride - pad + tap * dilation; }

    // Outputs in `outputs` whose input position for `tap` lies in `inputs`.
    Range outputs_touching(Range inputs, int64_t tap, Range outputs) const {
        const int64_t shift = pad - tap * dilation;
        return {std::max(outputs.begin, divide_up(inputs.begin + shift, stride)),
                std::min(outputs.end, divide_up(inputs.end + shift, stride))};
    }
};

class Convolution final : public Node {
public:
    Convolution(NodeContext context, const ConvOp& op)
        : context_(std::move(context)),
          rows_{context_.input().shape.height, context_.output.shape.height, op.kernel_h, op.stride_h, op.pad_h, op.dilation_h},
          columns_{context_.input().shape.width, context_.output.shape.width, op.kernel_w, op.stride_w, op.pad_w, op.dilation_w},
          channels_in_(context_.input().shape.channels),
          channels_out_(context_.output.shape.channels),
          group_in_(channels_in_ / op.groups),
          group_out_(channels_out_ / op.groups) {
        see_pointwise_planes_as_one_row();
    }

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, context_.output.batch * channels_out_, [&](int64_t plane) { forward_plane(plane); });
    }

    void backward(bool accumulate) override {
        parallel_for(context_.threads, channels_out_ * group_in_, [&](int64_t pair) { backward_weights(pair, accumulate); });
        if (context_.parameters.size() > 1) {
            parallel_for(context_.threads, channels_out_, [&](int64_t out) { backward_bias(out, accumulate); });
        }
        if (context_.input().wants_gradient()) {
            parallel_for(context_.threads, context_.input().batch * channels_in_, [&](int64_t plane) { backward_plane(plane); });
        }
    }

private:
    // A 1x1 kernel does not see rows, and long rows are quicker.
    void see_pointwise_planes_as_one_row() {
        for (const Axis* axis : {&rows_, &columns_}) {
            if (axis->kernel != 1 || axis->stride != 1 || axis->pad != 0) return;
        }
        columns_.input = columns_.output = rows_.input * columns_.input;
        rows_.input = rows_.output = 1;
    }

    const float* weights(int64_t out, int64_t in_of_group) const {
        return context_.parameters[0].value.data() + (out * group_in_ + in_of_group) * rows_.kernel * columns_.kernel;
    }
    const float* input_plane(int64_t image, int64_t channel) const {
        return context_.input().value.data() + (image * channels_in_ + channel) * rows_.input * columns_.input;
    }
    const float* output_gradient_plane(int64_t image, int64_t channel) const {
        return context_.output.gradient.data() + (image * channels_out_ + channel) * rows_.output * columns_.output;
    }

    void forward_plane(int64_t plane) {
        const int64_t image = plane / channels_out_;
        const int64_t out = plane % channels_out_;
        float* output = context_.output.value.data() + plane * rows_.output * columns_.output;
        for (int64_t row = 0; row < rows_.output; ++row) {
            for (int64_t begin = 0; begin < columns_.output; begin += kPiece) {
                const Range piece{begin, std::min(begin + kPiece, columns_.output)};
                forward_piece(image, out, row, piece, output + row * columns_.output);
            }
        }
    }

    void forward_piece(int64_t image, int64_t out, int64_t row, Range piece, float* output_row) {
        std::array<double, kPiece> sums;
        sums.fill(context_.parameters.size() > 1 ? static_cast<double>(context_.parameters[1].value[static_cast<size_t>(out)])
                                                 : 0.0);
        const int64_t first_in = out / group_out_ * group_in_;
        for (int64_t in = 0; in < group_in_; ++in) {
            for (int64_t tap_row = 0; tap_row < rows_.kernel; ++tap_row) {
                const int64_t input_row = rows_.position(row, tap_row);
                if (input_row < 0 || input_row >= rows_.input) continue;
                const float* input = input_plane(image, first_in + in) + input_row * columns_.input;
                const float* taps = weights(out, in) + tap_row * columns_.kernel;
                for (int64_t tap = 0; tap < columns_.kernel; ++tap) add_tap(taps[tap], tap, input, piece, sums.data());
            }
        }
        for (int64_t column = piece.begin; column < piece.end; ++column) {
            output_row[column] = static_cast<float>(sums[static_cast<size_t>(column - piece.begin)]);
        }
    }

    void add_tap(double weight, int64_t tap, const float* input_row, Range piece, double* sums) const {
        const Range touched = columns_.outputs_touching({0, columns_.input}, tap, piece);
        for (int64_t column = touched.begin; column < touched.end; ++column) {
            sums[column - piece.begin] += weight * static_cast<double>(input_row[columns_.position(column, tap)]);
        }
    }

    void backward_plane(int64_t plane) {
        const int64_t image = plane / channels_in_;
        const int64_t in = plane % channels_in_;
        float* gradient = context_.input().gradient.data() + plane * rows_.input * columns_.input;
        for (int64_t row = 0; row < rows_.input; ++row) {
            for (int64_t begin = 0; begin < columns_.input; begin += kPiece) {
                const Range piece{begin, std::min(begin + kPiece, columns_.input)};
                backward_piece(image, in, row, piece, gradient + row * columns_.input);
            }
        }
    }

    void backward_piece(int64_t image, int64_t in, int64_t row, Range piece, float* gradient_row) {
        std::array<double, kPiece> sums{};
        const int64_t group = in / group_in_;
        for (int64_t tap_row = 0; tap_row < rows_.kernel; ++tap_row) {
            const Range output_rows = rows_.outputs_touching({row, row + 1}, tap_row, {0, rows_.output});
            if (output_rows.begin >= output_rows.end) continue;
            for (int64_t out = group * group_out_; out < (group + 1) * group_out_; ++out) {
                const float* gradient = output_gradient_plane(image, out) + output_rows.begin * columns_.output;
                const float* taps = weights(out, in % group_in_) + tap_row * columns_.kernel;
                for (int64_t tap = 0; tap < columns_.kernel; ++tap) spread_tap(taps[tap], tap, gradient, piece, sums.data());
            }
        }
        for (int64_t column = piece.begin; column < piece.end; ++column) {
            add_to(gradient_row[column], sums[static_cast<size_t>(column - piece.begin)]);
        }
    }

    void spread_tap(double weight, int64_t tap, const float* gradient_row, Range piece, double* sums) const {
        const Range touched = columns_.outputs_touching(piece, tap, {0, columns_.output});
        for (int64_t column = touched.begin; column < touched.end; ++column) {
            sums[columns_.position(column, tap) - piece.begin] += weight * static_cast<double>(gradient_row[column]);
        }
    }

    void backward_weights(int64_t pair, bool accumulate) {
        const int64_t out = pair / group_in_;
        const int64_t in = pair % group_in_;
        const int64_t first_in = out / group_out_ * group_in_;
        const int64_t taps = rows_.kernel * columns_.kernel;
        float* gradient = context_.parameters[0].gradient.data() + pair * taps;
        for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t tap_row = tap / columns_.kernel;
            const int64_t tap_column = tap % columns_.kernel;
            double sum = 0.0;
            for (int64_t image = 0; image < context_.output.batch; ++image) {
                const float* input = input_plane(image, first_in + in);
                sum += correlation(input, output_gradient_plane(image, out), tap_row, tap_column);
            }
            store(gradient[tap], sum, accumulate);
        }
    }

    // Sum over one image of input * output gradient, shifted by one tap.
    double correlation(const float* input, const float* gradient, int64_t tap_row, int64_t tap_column) const {
        const Range rows = rows_.outputs_touching({0, rows_.input}, tap_row, {0, rows_.output});
        const Range columns = columns_.outputs_touching({0, columns_.input}, tap_column, {0, columns_.output});
        double sum = 0.0;
        for (int64_t row = rows.begin; row < rows.end; ++row) {
            const float* input_row = input + rows_.position(row, tap_row) * columns_.input;
            const float* gradient_row = gradient + row * columns_.output;
#pragma omp simd reduction(+ : sum)
            for (int64_t column = columns.begin; column < columns.end; ++column) {
                sum += static_cast<double>(gradient_row[column]) *
                       static_cast<double>(input_row[columns_.position(column, tap_column)]);
            }
        }
        return sum;
    }

    void backward_bias(int64_t out, bool accumulate) {
        const int64_t plane = rows_.output * columns_.output;
        double sum = 0.0;
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            const float* gradient = output_gradient_plane(image, out);
            for (int64_t element = 0; element < plane; ++element) sum += static_cast<double>(gradient[element]);
        }
        store(context_.parameters[1].gradient[static_cast<size_t>(out)], sum, accumulate);
    }

    NodeContext context_;
    Axis rows_;
    Axis columns_;
    int64_t channels_in_, channels_out_;
    int64_t group_in_, group_out_;  // channels of one group
};

}  // namespace

std::unique_ptr<Node> make_convolution(NodeContext context, const ConvOp& op) {
    return std::make_unique<Convolution>(std::move(context), op);
}

}  // namespace lockstep::reference
