// Local response normalisation across channels. With s[c] = k + alpha / size * sum of x[c']^2 over the channels c' around c:
//   y[c] = x[c] * s[c]^-beta
//   dx[c] = dy[c] * s[c]^-beta - 2 * alpha * beta / size * x[c] * sum of dy[c'] * y[c'] / s[c'] over the same channels
#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

class Lrn final : public Node {
public:
    Lrn(NodeContext context, const LrnOp& op)
        : context_(std::move(context)), op_(op), sums_(static_cast<size_t>(context_.output.count())) {}

    void forward(const ForwardInput& /*input*/) override {
        const std::span<const float> input = context_.input().value;
        for_each_element([&](size_t element, size_t first, size_t last) {
            double squares = 0.0;
            for (size_t near = first; near <= last; near += plane()) squares += static_cast<double>(input[near]) * input[near];
            sums_[element] = op_.k + static_cast<double>(op_.alpha) / static_cast<double>(op_.size) * squares;
            context_.output.value[element] = static_cast<float>(input[element] * std::pow(sums_[element], -op_.beta));
        });
    }

    void backward(bool /*accumulate*/) override {
        if (!context_.input().wants_gradient()) return;
        const std::span<const float> input = context_.input().value;
        const std::span<const float> gradient = context_.output.gradient;
        const double factor = 2.0 * op_.alpha * op_.beta / static_cast<double>(op_.size);
        for_each_element([&](size_t element, size_t first, size_t last) {
            double through_neighbours = 0.0;
            for (size_t near = first; near <= last; near += plane()) {
                through_neighbours += gradient[near] * input[near] * std::pow(sums_[near], -op_.beta - 1.0);
            }
            const double direct = gradient[element] * std::pow(sums_[element], -op_.beta);
            add_to(context_.input().gradient[element], direct - factor * input[element] * through_neighbours);
        });
    }

private:
    size_t plane() const { return static_cast<size_t>(context_.output.plane()); }

    // body(element, first, last): the same pixel in the first and the last channel of the element's neighbourhood.
    template <typename Body>
    void for_each_element(const Body& body) const {
        const int64_t channels = context_.output.shape.channels;
        const int64_t reach = op_.size / 2;
        parallel_for(context_.threads, context_.output.batch * channels, [&](int64_t image_channel) {
            const int64_t channel = image_channel % channels;
            const int64_t before = std::min(reach, channel);
            const int64_t after = std::min(reach, channels - 1 - channel);
            const size_t begin = static_cast<size_t>(image_channel) * plane();
            for (size_t element = begin; element < begin + plane(); ++element) {
                body(element, element - static_cast<size_t>(before) * plane(), element + static_cast<size_t>(after) * plane());
            }
        });
    }

    NodeContext context_;
    LrnOp op_;
    std::vector<double> sums_;  // s of the last forward, by element
};

}  // namespace

std::unique_ptr<Node> make_lrn(NodeContext context, const LrnOp& op) { return std::make_unique<Lrn>(std::move(context), op); }

}  // namespace lockstep::reference
