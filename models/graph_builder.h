// Verbs for writing networks down: each call appends one op after `from` and returns its index; channel counts follow by
// themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/models.h"
#include "nn/graph.h"

namespace lockstep {

class GraphBuilder {
public:
    // The network's own batch norms; the options may say otherwise.
    struct Norms {
        float epsilon = 1e-5F, keep = 0.9F;
    };
    // Starts the graph with op 0, the input, of the options' channels and image size.
    explicit GraphBuilder(const ModelOptions& options) : GraphBuilder(options, Norms{}) {}
    GraphBuilder(const ModelOptions& options, const Norms& norms);

    struct Conv {
        int64_t out_channels = 0;
        int64_t kernel = 1;  // square
        int64_t stride = 1;
        int64_t pad = 0;
        bool bias = false;
        int64_t groups = 1;
        ConvOp op() const;  // first weights are left to the caller
    };
    // Weights from MSRA over the fan-out, as torchvision's ResNets: normal, sqrt(2 / (kernel^2 * out_channels)) (arXiv:1502.01852).
    int conv(const std::string& name, int from, const Conv& conv);
    int convolution(const std::string& name, int from, const ConvOp& conv);  // everything said
    int batch_norm(const std::string& name, int from, float scale_init = 1.0F);
    int normalisation(const std::string& name, int from);  // batch norm without scale and shift
    int lrn(const std::string& name, int from, const LrnOp& lrn);
    int relu(const std::string& name, int from);
    int sigmoid(const std::string& name, int from);
    int max_pool(const std::string& name, int from, int64_t kernel, int64_t stride, int64_t pad = 0);
    int pool(const std::string& name, int from, const PoolOp& pool);
    int global_average_pool(const std::string& name, int from);
    int add(const std::string& name, int left, int right);
    int concat(const std::string& name, const std::vector<int>& from);
    int dropout(const std::string& name, int from, float probability);
    // With the options' probability, where they give one.
    int own_dropout(const std::string& name, int from, float own_probability);
    int pad_shortcut(const std::string& name, int from, int64_t out_channels, int64_t stride);
    // Gaussian weights, bias 0.
    int fully_connected(const std::string& name, int from, int64_t out_features, float weight_stddev);
    int fully_connected(const std::string& name, int from, const FullyConnectedOp& layer);

    void auxiliary_loss(const std::string& name, int logits, float weight);
    // Appends the loss and returns the validated graph.
    Graph finish(int logits);

    int64_t channels(int op) const;  // of the op's output
    FeatureShape shape(int op) const;

private:
    int append(const std::string& name, OpAttributes attributes, std::vector<int> inputs, int64_t channels);

    Graph graph_;
    std::vector<int64_t> channels_;  // by op
    float bn_epsilon_, bn_keep_;
    float label_smoothing_;
    float dropout_;
};

}  // namespace lockstep
