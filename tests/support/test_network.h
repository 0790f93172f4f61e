// A graph made ready to run on a named backend, with random parameters, images and labels, and access to parameters by name in
// plain layout. Everything random is a function of the seed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/executor.h"

namespace lockstep::testing_support {

struct TestNetworkOptions {
    std::string backend = "reference";
    int batch = 2;
    int threads = 1;
    uint64_t seed = 1;
    int state_buffers = 0;  // of an optimizer
    Fusion fusion = Fusion::all;
    bool exact = false;  // compute.exact_convolution
    Recompute recompute = Recompute::off;
    ConvolutionTable convolutions;  // not empty: followed, as if measured
};

struct TestBatch {
    std::vector<float> images;
    std::vector<int32_t> labels;
    uint64_t dropout_key = 0;

    ForwardInput input() const { return {.images = images, .labels = labels, .dropout_key = dropout_key}; }
};
TestBatch random_batch(const Graph& graph, int batch, uint64_t seed);

class TestNetwork {
public:
    TestNetwork(Graph graph, const TestNetworkOptions& options);

    std::unique_ptr<Executor> compile(int batch, Phase phase) { return backend_->compile(graph_, batch, phase, arena_); }

    // One pass of the training executor over the network's own batch.
    double forward() { return training_->forward(batch_.input()); }
    void backward(bool accumulate = false, GradientSink* sink = nullptr) { training_->backward(accumulate, sink); }

    std::vector<float> value(std::string_view parameter) const;
    std::vector<float> gradient(std::string_view parameter) const;
    void set_value(std::string_view parameter, const std::vector<float>& plain);
    // Weights scaled by fan-in, scales near 1, shifts near 0, running variances positive: activations stay near 1.
    void randomise_parameters(uint64_t seed);
    std::vector<std::string> parameter_names(bool with_statistics = true) const;

    const Graph& graph() const { return graph_; }
    Backend& backend() { return *backend_; }
    ParameterArena& arena() { return arena_; }
    Executor& training() { return *training_; }
    TestBatch& batch() { return batch_; }

private:
    std::vector<float> plain(std::string_view parameter, std::span<float> buffer) const;

    Graph graph_;
    std::unique_ptr<Backend> backend_;
    HeapPool pool_;
    ParameterArena arena_;
    std::unique_ptr<Executor> training_;
    TestBatch batch_;
};

double norm(const std::vector<float>& values);  // Euclidean
double distance(const std::vector<float>& left, const std::vector<float>& right);
// distance / || right ||; the bare distance when right is zero.
double relative_error(const std::vector<float>& left, const std::vector<float>& right);

}  // namespace lockstep::testing_support
