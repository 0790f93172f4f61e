// Our batch norm against the formulas: the vector loops against the plain ones, whole tensors against sums in double, and the same
// bits on any number of threads.
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "core/random.h"
#include "nn/onednn/kernels/batch_norm.h"
#include "nn/onednn/kernels/batch_norm_pieces.h"

namespace lockstep::onednn {
namespace {

std::vector<float> random_values(size_t count, uint64_t key, float mean = 0.0F) {
    RandomStream random(key, "batch norm");
    std::vector<float> values(count);
    for (float& value : values) value = mean + random.normal();
    return values;
}

// Values as a tensor of `type`; in bf16 cut to its 8 bits.
struct Stored {
    DataType type;
    std::vector<float> wide;
    std::vector<uint16_t> narrow;

    Stored(DataType stored_type, std::vector<float> values) : type(stored_type), wide(std::move(values)), narrow(wide.size()) {
        for (size_t i = 0; i < wide.size(); ++i) {
            uint32_t bits = 0;
            std::memcpy(&bits, &wide[i], sizeof bits);
            narrow[i] = static_cast<uint16_t>(bits >> 16);
        }
        if (type == DataType::bf16) wide = values_of_narrow();
    }
    void* data() { return type == DataType::f32 ? static_cast<void*>(wide.data()) : narrow.data(); }
    std::vector<float> values() const { return type == DataType::f32 ? wide : values_of_narrow(); }

private:
    std::vector<float> values_of_narrow() const {
        std::vector<float> values(narrow.size());
        for (size_t i = 0; i < narrow.size(); ++i) {
            const uint32_t bits = static_cast<uint32_t>(narrow[i]) << 16;
            std::memcpy(&values[i], &bits, sizeof bits);
        }
        return values;
    }
};

// fp32: sums of a few thousand terms in another order. bf16: one rounding of the result to 8 bits.
void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, DataType type, const char* what) {
    const double tolerance = type == DataType::f32 ? 2e-5 : 1.0 / 128.0;
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], tolerance * (1.0 + std::abs(expected[i]))) << what << " at " << i;
    }
}

struct PieceCase {
    int64_t block = 8, planes = 1, pixels = 1;
    DataType type = DataType::f32;
    bool other = false, mask = false, passed = false, sigmoid = false;
};

// One piece's operands, so that the same piece can be done twice.
class PieceData {
public:
    explicit PieceData(const PieceCase& c)
        : count_(static_cast<size_t>(c.planes * stride(c))),
          source_(c.type, random_values(count_, 1)),
          other_(c.type, random_values(count_, 2)),
          gradient_(c.type, random_values(count_, 3)),
          result_(c.type, std::vector<float>(count_, 0.0F)),
          passed_(c.type, std::vector<float>(count_, 0.0F)),
          activated_(c.type, std::vector<float>(count_, 0.0F)),
          mask_(count_ / 8),
          mean_(random_values(16, 4)),
          gain_(random_values(16, 5)),
          shift_(random_values(16, 6)),
          slope_(random_values(16, 7)),
          sums_(32) {
        std::vector<float> activated(count_);
        RandomStream uniform(9, "sigmoid");
        for (float& value : activated) value = uniform.uniform();
        activated_ = Stored(c.type, activated);
        RandomStream random(8, "mask");
        for (uint8_t& bits : mask_) bits = static_cast<uint8_t>(random.below(256));
        piece = {.type = c.type,
                 .block = c.block,
                 .planes = c.planes,
                 .plane_stride = stride(c),
                 .pixels = c.pixels,
                 .source = source_.data(),
                 .other = c.other ? other_.data() : nullptr,
                 .gradient = gradient_.data(),
                 .result = result_.data(),
                 .passed = c.passed ? passed_.data() : nullptr,
                 .mask = c.mask ? mask_.data() : nullptr,
                 .sigmoid = c.sigmoid,
                 .activated = c.sigmoid ? activated_.data() : nullptr,
                 .mean = mean_.data(),
                 .gain = gain_.data(),
                 .shift = shift_.data(),
                 .slope = slope_.data(),
                 .sums = sums_.data()};
    }
    static int64_t stride(const PieceCase& c) { return (c.pixels + 3) * c.block; }  // something else lies between the planes

    void expect_equal(const PieceData& expected) {
        expect_near(result_.values(), expected.result_.values(), piece.type, "result");
        expect_near(passed_.values(), expected.passed_.values(), piece.type, "passed");
        expect_near(sums_, expected.sums_, DataType::f32, "sums");
        EXPECT_EQ(mask_, expected.mask_);
    }

    norm_pieces::Piece piece;

private:
    size_t count_;
    Stored source_, other_, gradient_, result_, passed_, activated_;
    std::vector<uint8_t> mask_;
    std::vector<float> mean_, gain_, shift_, slope_, sums_;
};

void expect_same_work(const PieceCase& c, void (*vector)(const norm_pieces::Piece&), void (*plain)(const norm_pieces::Piece&)) {
    PieceData fast(c), slow(c);
    vector(fast.piece);
    plain(slow.piece);
    fast.expect_equal(slow);
}

TEST(BatchNormPieces, VectorLoopsEqualThePlainOnes) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
        for (const int64_t block : {8, 16}) {
            for (const auto& [planes, pixels] :
                 {std::pair{1, 1}, std::pair{1, 4}, std::pair{3, 7}, std::pair{2, 49}, std::pair{1, 512}}) {
                for (int form = 0; form < 9; ++form) {
                    const PieceCase c{block, planes, pixels, type, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0, form == 8};
                    SCOPED_TRACE(::testing::Message() << to_string(type) << " block " << block << " planes " << planes << " pixels "
                                                      << pixels << " form " << form);
                    expect_same_work(c, norm_pieces::statistics, norm_pieces::plain::statistics);
                    expect_same_work(c, norm_pieces::normalise, norm_pieces::plain::normalise);
                    expect_same_work(c, norm_pieces::reduce, norm_pieces::plain::reduce);
                    expect_same_work(c, norm_pieces::differentiate, norm_pieces::plain::differentiate);
                }
            }
        }
    }
}

// A whole tensor: everything that forward and backward read and write.
struct Tensors {
    NormShape shape;
    std::vector<float> source, addend, result, gradient, second, passed, source_gradient;
    std::vector<float> scale, shift, mean, variance, scale_gradient, shift_gradient, scratch;
    std::vector<uint8_t> mask;
    float epsilon = 1e-3F;

    Tensors(int64_t images, int64_t channels, int64_t pixels, int64_t block, float source_mean = 0.5F)
        : shape{images, channels, pixels, block, DataType::f32} {
        const auto count = static_cast<size_t>(shape.element_count());
        const auto c = static_cast<size_t>(channels);
        source = random_values(count, 1, source_mean);
        addend = random_values(count, 2);
        gradient = random_values(count, 3);
        second = random_values(count, 4);
        scale = random_values(c, 5, 1.0F);
        shift = random_values(c, 6);
        for (std::vector<float>* values : {&result, &passed, &source_gradient}) values->assign(count, 0.0F);
        for (std::vector<float>* values : {&mean, &variance, &scale_gradient, &shift_gradient}) values->assign(c, 0.0F);
        scratch.resize(shape.scratch_floats());
        mask.resize(shape.mask_bytes());
    }

    void forward(bool add, bool relu) {
        norm_forward(shape, {.source = source.data(),
                             .addend = add ? addend.data() : nullptr,
                             .result = result.data(),
                             .mask = relu ? mask.data() : nullptr,
                             .scale = scale.data(),
                             .shift = shift.data(),
                             .mean = mean.data(),
                             .variance = variance.data(),
                             .epsilon = epsilon,
                             .scratch = scratch.data()});
    }
    void backward(bool two, bool relu, bool pass, bool accumulate = false) {
        norm_backward(shape, {.source = source.data(),
                              .gradient = gradient.data(),
                              .second_gradient = two ? second.data() : nullptr,
                              .mask = relu ? mask.data() : nullptr,
                              .passed = pass ? passed.data() : nullptr,
                              .source_gradient = source_gradient.data(),
                              .scale = scale.data(),
                              .mean = mean.data(),
                              .variance = variance.data(),
                              .scale_gradient = scale_gradient.data(),
                              .shift_gradient = shift_gradient.data(),
                              .accumulate = accumulate,
                              .epsilon = epsilon,
                              .scratch = scratch.data()});
    }
    // Calls work(element) for all elements of a channel.
    template <typename Work>
    void for_channel(int64_t channel, const Work& work) const {
        for (int64_t image = 0; image < shape.images; ++image) {
            for (int64_t pixel = 0; pixel < shape.pixels; ++pixel) {
                work(static_cast<size_t>(((image * shape.channels / shape.block + channel / shape.block) * shape.pixels + pixel) *
                                             shape.block +
                                         channel % shape.block));
            }
        }
    }
    double count() const { return static_cast<double>(shape.images * shape.pixels); }
};

void expect_forward(const Tensors& t, bool add, bool relu) {
    for (int64_t c = 0; c < t.shape.channels; ++c) {
        const auto channel = static_cast<size_t>(c);
        double mean = 0.0, variance = 0.0;
        t.for_channel(c, [&](size_t i) { mean += t.source[i] / t.count(); });
        t.for_channel(c, [&](size_t i) { variance += (t.source[i] - mean) * (t.source[i] - mean) / t.count(); });
        ASSERT_NEAR(t.mean[channel], mean, 1e-6 * (1.0 + std::abs(mean)));
        ASSERT_NEAR(t.variance[channel], variance, 1e-5 * (1e-3 + variance));
        const double gain = t.scale[channel] / std::sqrt(variance + t.epsilon);
        t.for_channel(c, [&](size_t i) {
            double value = (t.source[i] - mean) * gain + t.shift[channel] + (add ? t.addend[i] : 0.0F);
            const bool passes = value > 0.0;
            if (relu && !passes) value = 0.0;
            ASSERT_NEAR(t.result[i], value, 1e-4);
            if (relu && std::abs(value) > 1e-4) {
                ASSERT_EQ((t.mask[i / 8] >> (i % 8)) & 1, passes ? 1 : 0);
            }
        });
    }
}

void expect_backward(const Tensors& t, bool two, bool relu, bool pass) {
    const auto gradient_at = [&](size_t i) {
        const bool passes = !relu || ((t.mask[i / 8] >> (i % 8)) & 1) != 0;
        return passes ? static_cast<double>(t.gradient[i]) + (two ? t.second[i] : 0.0F) : 0.0;
    };
    for (int64_t c = 0; c < t.shape.channels; ++c) {
        const auto channel = static_cast<size_t>(c);
        double sum = 0.0, product = 0.0;
        const double inverse = 1.0 / std::sqrt(static_cast<double>(t.variance[channel]) + t.epsilon);
        t.for_channel(c, [&](size_t i) {
            sum += gradient_at(i);
            product += gradient_at(i) * (t.source[i] - t.mean[channel]) * inverse;
        });
        ASSERT_NEAR(t.shift_gradient[channel], sum, 1e-4 * (1.0 + std::abs(sum)));
        ASSERT_NEAR(t.scale_gradient[channel], product, 1e-4 * (1.0 + std::abs(product)));
        t.for_channel(c, [&](size_t i) {
            const double normalised = (t.source[i] - t.mean[channel]) * inverse;
            const double expected =
                t.scale[channel] * inverse * (gradient_at(i) - sum / t.count() - normalised * product / t.count());
            ASSERT_NEAR(t.source_gradient[i], expected, 1e-4);
            if (pass) {
                ASSERT_EQ(t.passed[i], static_cast<float>(gradient_at(i)));
            }
        });
    }
}

struct ShapeCase {
    int64_t images, channels, pixels, block;
};
class BatchNormKernel : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(BatchNormKernel, IsWhatTheFormulasSay) {
    const auto [images, channels, pixels, block] = GetParam();
    for (int form = 0; form < 8; ++form) {
        SCOPED_TRACE(form);
        const bool add = (form & 1) != 0, relu = (form & 2) != 0, pass = (form & 4) != 0;
        Tensors tensors(images, channels, pixels, block);
        tensors.forward(add, relu);
        expect_forward(tensors, add, relu);
        tensors.backward(add, relu, pass);
        expect_backward(tensors, add, relu, pass);
    }
}

TEST_P(BatchNormKernel, GivesTheSameBitsOnAnyNumberOfThreads) {
    const auto [images, channels, pixels, block] = GetParam();
    const int threads_before = omp_get_max_threads();
    Tensors one(images, channels, pixels, block);
    omp_set_num_threads(1);
    one.forward(true, true);
    one.backward(true, true, true);
    for (const int threads : {2, 3}) {
        Tensors several(images, channels, pixels, block);
        omp_set_num_threads(threads);
        several.forward(true, true);
        several.backward(true, true, true);
        EXPECT_EQ(several.result, one.result);
        EXPECT_EQ(several.mask, one.mask);
        EXPECT_EQ(several.source_gradient, one.source_gradient);
        EXPECT_EQ(several.scale_gradient, one.scale_gradient);
        EXPECT_EQ(several.variance, one.variance);
    }
    omp_set_num_threads(threads_before);
}

TEST_P(BatchNormKernel, MayWriteOverItsGradients) {
    const auto [images, channels, pixels, block] = GetParam();
    Tensors apart(images, channels, pixels, block), over = apart;
    apart.forward(true, true);
    apart.backward(true, true, true);
    over.forward(true, true);
    norm_backward(over.shape, {.source = over.source.data(),
                               .gradient = over.gradient.data(),
                               .second_gradient = over.second.data(),
                               .mask = over.mask.data(),
                               .passed = over.gradient.data(),
                               .source_gradient = over.second.data(),
                               .scale = over.scale.data(),
                               .mean = over.mean.data(),
                               .variance = over.variance.data(),
                               .scale_gradient = over.scale_gradient.data(),
                               .shift_gradient = over.shift_gradient.data(),
                               .epsilon = over.epsilon,
                               .scratch = over.scratch.data()});
    EXPECT_EQ(over.gradient, apart.passed);
    EXPECT_EQ(over.second, apart.source_gradient);
}

// No scale and shift are a scale of one and a shift of zero.
TEST_P(BatchNormKernel, WithASigmoidItDoesWhatTwoPassesDo) {
    const auto [images, channels, pixels, block] = GetParam();
    Tensors apart(images, channels, pixels, block), fused = apart;
    std::fill(apart.scale.begin(), apart.scale.end(), 1.0F);
    std::fill(apart.shift.begin(), apart.shift.end(), 0.0F);
    apart.forward(false, false);
    for (size_t i = 0; i < apart.result.size(); ++i) {
        const float y = apart.result[i] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(apart.result[i]))));
        apart.gradient[i] *= y * (1.0F - y);
    }
    apart.backward(false, false, false);

    norm_forward(fused.shape, {.source = fused.source.data(),
                               .result = fused.result.data(),
                               .sigmoid = true,
                               .mean = fused.mean.data(),
                               .variance = fused.variance.data(),
                               .epsilon = fused.epsilon,
                               .scratch = fused.scratch.data()});
    norm_backward(fused.shape, {.source = fused.source.data(),
                                .gradient = fused.gradient.data(),
                                .activated = fused.result.data(),
                                .source_gradient = fused.source_gradient.data(),
                                .mean = fused.mean.data(),
                                .variance = fused.variance.data(),
                                .epsilon = fused.epsilon,
                                .scratch = fused.scratch.data()});
    for (size_t i = 0; i < apart.result.size(); ++i) {
        ASSERT_NEAR(fused.result[i], apart.result[i], 1e-6);  // a few units of the last place
        ASSERT_NEAR(fused.source_gradient[i], apart.source_gradient[i], 2e-5 * (1.0 + std::abs(apart.source_gradient[i])));
    }
}

TEST(BatchNorm, TheSigmoidSaturatesAndKeepsNan) {
    Tensors tensors(1, 8, 8, 8);
    std::fill(tensors.source.begin(), tensors.source.end(), 0.0F);
    std::fill_n(tensors.source.begin(), 8, 1.0F);
    tensors.source[1] = NAN;
    tensors.scale.assign(8, 1000.0F);
    tensors.shift.assign(8, 0.0F);
    norm_forward(tensors.shape, {.source = tensors.source.data(),
                                 .result = tensors.result.data(),
                                 .sigmoid = true,
                                 .scale = tensors.scale.data(),
                                 .shift = tensors.shift.data(),
                                 .mean = tensors.mean.data(),
                                 .variance = tensors.variance.data(),
                                 .epsilon = tensors.epsilon,
                                 .scratch = tensors.scratch.data()});
    EXPECT_NEAR(tensors.result[0], 1.0F, 1e-6F);   // sigmoid(2600)
    EXPECT_NEAR(tensors.result[8], 0.0F, 1e-37F);  // sigmoid(-370)
    EXPECT_TRUE(std::isnan(tensors.result[1]));
}

// One pixel; planes of many images in one piece; planes of several pieces; fewer blocks than threads and no multiple of them.
INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormKernel,
                         ::testing::Values(ShapeCase{1, 8, 1, 8}, ShapeCase{3, 8, 5, 8}, ShapeCase{5, 32, 49, 16},
                                           ShapeCase{2, 8, 1500, 8}, ShapeCase{9, 24, 100, 8}, ShapeCase{2, 16, 600, 16}));

TEST(BatchNorm, AccumulatesParameterGradients) {
    Tensors tensors(2, 8, 9, 8);
    tensors.forward(false, false);
    tensors.backward(false, false, false);
    const std::vector<float> once = tensors.scale_gradient;
    tensors.backward(false, false, false, true);
    for (size_t c = 0; c < once.size(); ++c) EXPECT_FLOAT_EQ(tensors.scale_gradient[c], 2.0F * once[c]);
}

TEST(BatchNorm, AMeanFarFromZeroDoesNotSpoilTheVariance) {
    Tensors tensors(4, 8, 300, 8, 1000.0F);
    tensors.forward(false, false);
    for (const float variance : tensors.variance) EXPECT_NEAR(variance, 1.0F, 0.15F);
    double squares = 0.0;
    for (size_t i = 0; i < tensors.result.size(); ++i) squares += static_cast<double>(tensors.result[i]) * tensors.result[i];
    EXPECT_TRUE(std::isfinite(squares));
}

TEST(BatchNorm, ReluDoesNotHideNan) {
    Tensors tensors(1, 8, 4, 8);
    tensors.addend[3] = NAN;
    tensors.forward(true, true);
    EXPECT_TRUE(std::isnan(tensors.result[3]));
}

}  // namespace
}  // namespace lockstep::onednn
