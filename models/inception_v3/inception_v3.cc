#include "models/inception_v3/inception_v3.h"

#include <algorithm>

#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr float kDropout = 0.5F;
constexpr float kStddev = 0.1F;
constexpr float kAuxiliaryWeight = 0.4F;

struct Conv {
    int64_t out_channels;
    int64_t height = 1, width = 1;  // of the kernel
    int64_t stride = 1;
    bool same = true;  // padded to keep the size; false: no padding
    float stddev = kStddev;
};

class InceptionBuilder {
public:
    explicit InceptionBuilder(const ModelOptions& options)
        : builder_(options, {.epsilon = 1e-3F}), classes_(options.num_classes), has_head_(options.variant != "no_aux") {}

    Graph build() {
        int top = stem();
        top = block_a("Mixed_5b", top, 32);
        top = block_a("Mixed_5c", top, 64);
        top = block_a("Mixed_5d", top, 64);
        top = block_b("Mixed_6a", top);
        top = block_c("Mixed_6b", top, 128);
        top = block_c("Mixed_6c", top, 160);
        top = block_c("Mixed_6d", top, 160);
        top = block_c("Mixed_6e", top, 192);
        if (has_head_) head("AuxLogits", top);
        top = block_d("Mixed_7a", top);
        top = block_e("Mixed_7b", top);
        top = block_e("Mixed_7c", top);
        top = builder_.global_average_pool("avgpool", top);
        top = builder_.own_dropout("dropout", top, kDropout);
        return builder_.finish(builder_.fully_connected("fc", top, classes_, kStddev));
    }

private:
    int stem() {
        int top = conv("Conv2d_1a_3x3", 0, {32, 3, 3, 2, false});
        top = conv("Conv2d_2a_3x3", top, {32, 3, 3, 1, false});
        top = conv("Conv2d_2b_3x3", top, {64, 3, 3});
        top = builder_.max_pool("maxpool1", top, 3, 2);
        top = conv("Conv2d_3b_1x1", top, {80});
        top = conv("Conv2d_4a_3x3", top, {192, 3, 3, 1, false});
        return builder_.max_pool("maxpool2", top, 3, 2);
    }

    int conv(const std::string& name, int from, const Conv& conv) {
        const ConvOp op{.out_channels = conv.out_channels,
                        .kernel_h = conv.height,
                        .kernel_w = conv.width,
                        .stride_h = conv.stride,
                        .stride_w = conv.stride,
                        .pad_h = conv.same ? conv.height / 2 : 0,
                        .pad_w = conv.same ? conv.width / 2 : 0,
                        .weight_init = gaussian_init(conv.stddev)};
        const int top = builder_.batch_norm(name + ".bn", builder_.convolution(name + ".conv", from, op));
        return builder_.relu(name + ".relu", top);
    }

    int pooled(const std::string& name, int from, int64_t channels) {
        const int pool = builder_.pool(name + ".pool", from,
                                       {.kind = PoolOp::Kind::average,
                                        .kernel_h = 3,
                                        .kernel_w = 3,
                                        .stride_h = 1,
                                        .stride_w = 1,
                                        .pad_h = 1,
                                        .pad_w = 1,
                                        .count_padding = true});
        return conv(name + ".branch_pool", pool, {channels});
    }

    int block_a(const std::string& name, int from, int64_t pool_channels) {
        const int one = conv(name + ".branch1x1", from, {64});
        int five = conv(name + ".branch5x5_1", from, {48});
        five = conv(name + ".branch5x5_2", five, {64, 5, 5});
        int three = conv(name + ".branch3x3dbl_1", from, {64});
        three = conv(name + ".branch3x3dbl_2", three, {96, 3, 3});
        three = conv(name + ".branch3x3dbl_3", three, {96, 3, 3});
        return builder_.concat(name, {one, five, three, pooled(name, from, pool_channels)});
    }

    int block_b(const std::string& name, int from) {
        const int three = conv(name + ".branch3x3", from, {384, 3, 3, 2, false});
        int twice = conv(name + ".branch3x3dbl_1", from, {64});
        twice = conv(name + ".branch3x3dbl_2", twice, {96, 3, 3});
        twice = conv(name + ".branch3x3dbl_3", twice, {96, 3, 3, 2, false});
        return builder_.concat(name, {three, twice, builder_.max_pool(name + ".pool", from, 3, 2)});
    }

    int block_c(const std::string& name, int from, int64_t width) {
        const int one = conv(name + ".branch1x1", from, {192});
        int seven = conv(name + ".branch7x7_1", from, {width});
        seven = conv(name + ".branch7x7_2", seven, {width, 1, 7});
        seven = conv(name + ".branch7x7_3", seven, {192, 7, 1});
        int twice = conv(name + ".branch7x7dbl_1", from, {width});
        twice = conv(name + ".branch7x7dbl_2", twice, {width, 7, 1});
        twice = conv(name + ".branch7x7dbl_3", twice, {width, 1, 7});
        twice = conv(name + ".branch7x7dbl_4", twice, {width, 7, 1});
        twice = conv(name + ".branch7x7dbl_5", twice, {192, 1, 7});
        return builder_.concat(name, {one, seven, twice, pooled(name, from, 192)});
    }

    int block_d(const std::string& name, int from) {
        int three = conv(name + ".branch3x3_1", from, {192});
        three = conv(name + ".branch3x3_2", three, {320, 3, 3, 2, false});
        int seven = conv(name + ".branch7x7x3_1", from, {192});
        seven = conv(name + ".branch7x7x3_2", seven, {192, 1, 7});
        seven = conv(name + ".branch7x7x3_3", seven, {192, 7, 1});
        seven = conv(name + ".branch7x7x3_4", seven, {192, 3, 3, 2, false});
        return builder_.concat(name, {three, seven, builder_.max_pool(name + ".pool", from, 3, 2)});
    }

    int block_e(const std::string& name, int from) {
        const int one = conv(name + ".branch1x1", from, {320});
        const int three = conv(name + ".branch3x3_1", from, {384});
        const int three_wide = conv(name + ".branch3x3_2a", three, {384, 1, 3});
        const int three_tall = conv(name + ".branch3x3_2b", three, {384, 3, 1});
        int twice = conv(name + ".branch3x3dbl_1", from, {448});
        twice = conv(name + ".branch3x3dbl_2", twice, {384, 3, 3});
        const int twice_wide = conv(name + ".branch3x3dbl_3a", twice, {384, 1, 3});
        const int twice_tall = conv(name + ".branch3x3dbl_3b", twice, {384, 3, 1});
        return builder_.concat(name, {one, three_wide, three_tall, twice_wide, twice_tall, pooled(name, from, 192)});
    }

    // 17x17 at the usual size: pooled to 5x5, then one pixel. Smaller maps take the kernels that fit.
    void head(const std::string& name, int from) {
        const FeatureShape map = builder_.shape(from);
        const int64_t window = std::min<int64_t>(5, std::min(map.height, map.width));
        int top =
            builder_.pool(name + ".pool", from,
                          {.kind = PoolOp::Kind::average, .kernel_h = window, .kernel_w = window, .stride_h = 3, .stride_w = 3});
        top = conv(name + ".conv0", top, {128});
        const FeatureShape pooled = builder_.shape(top);
        top = conv(name + ".conv1", top,
                   {768, std::min<int64_t>(5, pooled.height), std::min<int64_t>(5, pooled.width), 1, false, 0.01F});
        top = builder_.global_average_pool(name + ".avgpool", top);
        builder_.auxiliary_loss(name + ".loss", builder_.fully_connected(name + ".fc", top, classes_, 0.001F), kAuxiliaryWeight);
    }

    GraphBuilder builder_;
    int64_t classes_;
    bool has_head_;
};

}  // namespace

Graph build_inception_v3(const ModelOptions& options) { return InceptionBuilder(options).build(); }

}  // namespace lockstep
