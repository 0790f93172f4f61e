#include "tests/support/test_network.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "core/random.h"

namespace lockstep::testing_support {

namespace {

float random_value(const ParameterSpec& spec, RandomStream& stream) {
    switch (spec.kind) {
        case ParameterKind::weight: {
            const auto fan_in = static_cast<float>(element_count(spec.shape) / spec.shape.front());
            return stream.normal() / std::sqrt(fan_in);
        }
        case ParameterKind::bn_scale:
            return 0.7F + 0.6F * stream.uniform();
        case ParameterKind::bn_variance:
            return 0.5F + stream.uniform();
        default:
            return 0.3F * stream.normal();
    }
}

}  // namespace

TestBatch random_batch(const Graph& graph, int batch, uint64_t seed) {
    const InputOp& input = graph.input();
    TestBatch result{.dropout_key = seed};
    RandomStream stream(seed, "test batch");
    result.images.resize(static_cast<size_t>(batch * input.channels * input.height * input.width));
    for (float& value : result.images) value = stream.normal();
    const auto classes = static_cast<uint64_t>(class_count(graph));
    for (int image = 0; image < batch; ++image) result.labels.push_back(static_cast<int32_t>(stream.below(classes)));
    return result;
}

namespace {

std::unique_ptr<Backend> backend_for(const TestNetworkOptions& options) {
    auto backend =
        make_backend(options.backend, {.threads = options.threads,
                                       .fusion = options.fusion,
                                       .autotune = options.convolutions.codes.empty() ? Autotune::heuristic : Autotune::measure,
                                       .exact_convolution = options.exact,
                                       .recompute = options.recompute});
    backend->use_convolutions(options.convolutions);
    return backend;
}

}  // namespace

TestNetwork::TestNetwork(Graph graph, const TestNetworkOptions& options)
    : graph_(std::move(graph)),
      backend_(backend_for(options)),
      arena_(backend_->plan_parameters(graph_, options.batch), pool_, pool_, options.state_buffers),
      training_(backend_->compile(graph_, options.batch, Phase::training, arena_)),
      batch_(random_batch(graph_, options.batch, options.seed)) {
    randomise_parameters(options.seed);
}

std::vector<float> TestNetwork::plain(std::string_view parameter, std::span<float> buffer) const {
    const std::optional<size_t> entry = arena_.find(parameter);
    check(entry.has_value(), "no such parameter");
    const ParameterEntry& place = arena_.entries()[*entry];
    std::vector<float> result(static_cast<size_t>(element_count(place.spec.shape)));
    backend_->to_plain(place, buffer.subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.physical_count)), result);
    return result;
}

std::vector<float> TestNetwork::value(std::string_view parameter) const { return plain(parameter, arena_.values()); }

std::vector<float> TestNetwork::gradient(std::string_view parameter) const { return plain(parameter, arena_.gradients()); }

void TestNetwork::set_value(std::string_view parameter, const std::vector<float>& plain_values) {
    const std::optional<size_t> entry = arena_.find(parameter);
    check(entry.has_value(), "no such parameter");
    backend_->from_plain(arena_.entries()[*entry], plain_values, arena_.value(*entry));
}

void TestNetwork::randomise_parameters(uint64_t seed) {
    for (const std::string& name : parameter_names()) {
        const ParameterSpec& spec = arena_.entries()[*arena_.find(name)].spec;
        RandomStream stream(seed, "test parameter", hash_text(name));
        std::vector<float> plain_values(static_cast<size_t>(element_count(spec.shape)));
        for (float& element : plain_values) element = random_value(spec, stream);
        set_value(name, plain_values);
    }
}

std::vector<std::string> TestNetwork::parameter_names(bool with_statistics) const {
    std::vector<std::string> names;
    for (const ParameterEntry& entry : arena_.entries()) {
        const ParameterKind kind = entry.spec.kind;
        if (is_trainable(kind) || (with_statistics && is_statistic(kind))) names.push_back(entry.spec.name);
    }
    return names;
}

double norm(const std::vector<float>& values) {
    double squares = 0.0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    return std::sqrt(squares);
}

double distance(const std::vector<float>& left, const std::vector<float>& right) {
    check(left.size() == right.size(), "distance: sizes differ");
    double squares = 0.0;
    for (size_t element = 0; element < left.size(); ++element) {
        const double difference = static_cast<double>(left[element]) - right[element];
        squares += difference * difference;
    }
    return std::sqrt(squares);
}

double relative_error(const std::vector<float>& left, const std::vector<float>& right) {
    const double scale = norm(right);
    return distance(left, right) / (scale > 0.0 ? scale : 1.0);
}

}  // namespace lockstep::testing_support
