#include "models/cifar10_full/cifar10_full.h"

#include "models/graph_builder.h"

namespace lockstep {

namespace {

ConvOp conv_5x5(int64_t out_channels, float stddev) {
    return {
        .out_channels = out_channels, .kernel_h = 5, .kernel_w = 5, .pad_h = 2, .pad_w = 2, .weight_init = gaussian_init(stddev)};
}

PoolOp pool_3x3(PoolOp::Kind kind) {
    return {.kind = kind, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .ceil_mode = true};
}

}  // namespace

// The first block pools before it normalises, the others after the sigmoid.
Graph build_cifar10_full_sigmoid_bn(const ModelOptions& options) {
    GraphBuilder builder(options, {.epsilon = 1e-5F, .keep = 0.999F});
    int top = builder.convolution("conv1", 0, conv_5x5(32, 1e-4F));
    top = builder.pool("pool1", top, pool_3x3(PoolOp::Kind::max));
    top = builder.sigmoid("Sigmoid1", builder.normalisation("bn1", top));
    top = builder.convolution("conv2", top, conv_5x5(32, 0.01F));
    top = builder.sigmoid("Sigmoid2", builder.normalisation("bn2", top));
    top = builder.pool("pool2", top, pool_3x3(PoolOp::Kind::average));
    top = builder.convolution("conv3", top, conv_5x5(64, 0.01F));
    top = builder.sigmoid("Sigmoid3", builder.normalisation("bn3", top));
    top = builder.pool("pool3", top, pool_3x3(PoolOp::Kind::average));
    if (options.dropout > 0.0F) top = builder.dropout("dropout", top, options.dropout);
    return builder.finish(builder.fully_connected("ip1", top, options.num_classes, 0.01F));
}

}  // namespace lockstep
