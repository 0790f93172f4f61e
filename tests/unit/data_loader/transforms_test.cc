#include <cstring>
#include <fstream>

#include "core/random.h"
#include "data_loader/geometry.h"
#include "data_loader/pipeline.h"
#include "data_loader/resample.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

// The picture of tests/golden/make_resize_golden.py.
ImageView picture(int width, int height, int bytes_per_pixel, Image& image) {
    const ImageView view = image.reshape(width, height, bytes_per_pixel);
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (int c = 0; c < bytes_per_pixel; ++c) {
                view.row(y)[x * bytes_per_pixel + c] = static_cast<uint8_t>(x * 7 + y * 13 + c * 31 + int64_t{x} * y % 251);
            }
        }
    }
    return view;
}

class Checksum {
public:
    void add(uint64_t value) { sum_ += value * ++count_; }
    uint64_t sum() const { return sum_; }

private:
    uint64_t sum_ = 0, count_ = 0;
};

uint64_t checksum(const ImageView& view) {
    Checksum sum;
    for (int y = 0; y < view.height; ++y) {
        for (int x = 0; x < view.width; ++x) {
            for (int c = 0; c < (view.bytes_per_pixel == 1 ? 1 : 3); ++c) sum.add(view.row(y)[x * view.bytes_per_pixel + c]);
        }
    }
    return sum.sum();
}

TEST(Resize, EqualsPillowByteForByte) {
    std::ifstream golden(golden_file("resize.txt"));
    Resampler resampler;
    Image in, out;
    int cases = 0;
    int width, height, channels, new_width, new_height;
    for (uint64_t expected; golden >> width >> height >> channels >> new_width >> new_height >> expected; ++cases) {
        const ImageView view = picture(width, height, channels == 1 ? 1 : 4, in);
        EXPECT_EQ(checksum(resampler.resize(view, new_width, new_height, out)), expected)
            << width << "x" << height << "x" << channels << " to " << new_width << "x" << new_height;
    }
    EXPECT_EQ(cases, 34);
}

TEST(Resize, FastPassesEqualPlainLoopsOnCropsOfAnySize) {
    Resampler resampler;
    RandomStream random(1, "test");
    Image in, fast, slow;
    for (int attempt = 0; attempt < 60; ++attempt) {
        const auto side = [&](uint64_t most) { return 1 + static_cast<int>(random.below(most)); };
        const int bytes = attempt % 3 == 0 ? 1 : 4;
        const ImageView whole = picture(80, 70, bytes, in);
        const int width = side(60), height = side(60);
        const ImageView crop = whole.crop(side(80 - width) - 1, side(70 - height) - 1, width, height);
        const int new_width = side(90), new_height = side(90);
        const ImageView result = resampler.resize(crop, new_width, new_height, fast);
        Resampler::resize_reference(crop, new_width, new_height, slow);
        for (int y = 0; y < new_height; ++y) {
            ASSERT_EQ(std::memcmp(result.row(y), slow.view().row(y), result.stride_bytes), 0)
                << width << "x" << height << " to " << new_width << "x" << new_height << " row " << y;
        }
    }
}

TEST(Crop, RandomResizedBoxesEqualTorchvisions) {
    std::ifstream golden(golden_file("random_resized_crop.txt"));
    const Transform transform{.kind = Transform::Kind::random_resized_crop, .height = 224, .width = 224};
    int cases = 0;
    ImageSize size;
    uint64_t state, expected;
    for (CropBox first;
         golden >> size.width >> size.height >> state >> first.x >> first.y >> first.width >> first.height >> expected; ++cases) {
        const auto next = [&] { return state = state * 6364136223846793005U + 1442695040888963407U; };
        Checksum sum;
        for (int draw = 0; draw < 500; ++draw) {
            const CropBox box = random_resized_box(
                size, transform, [&] { return static_cast<double>(next() >> 11) * 0x1.0p-53; },
                [&](uint64_t bound) { return (next() >> 33) % bound; });
            if (draw == 0) {
                EXPECT_EQ(box, first) << size.width << "x" << size.height;
            }
            for (const int value : {box.x, box.y, box.width, box.height}) sum.add(static_cast<uint64_t>(value));
        }
        EXPECT_EQ(sum.sum(), expected) << size.width << "x" << size.height;
    }
    EXPECT_EQ(cases, 20);
}

TEST(Crop, HalvesRoundToEven) {
    EXPECT_EQ(round_half_even(0.5), 0);
    EXPECT_EQ(round_half_even(1.5), 2);
    EXPECT_EQ(round_half_even(2.5), 2);
    EXPECT_EQ(round_half_even(-0.5), 0);
    EXPECT_EQ(round_half_even(2.51), 3);
}

TEST(Crop, ShorterSideIsExactAndTheOtherTruncated) {
    EXPECT_EQ(shorter_side_to({500, 375}, 256), (ImageSize{341, 256}));
    EXPECT_EQ(shorter_side_to({375, 500}, 256), (ImageSize{256, 341}));
    EXPECT_EQ(center_box({341, 256}, 224, 224), (CropBox{58, 16, 224, 224}));  // 58.5 rounds to even
}

PipelineOptions pipeline(std::vector<Transform> transforms, int height, int width) {
    return {.transforms = std::move(transforms),
            .channels = 1,
            .height = height,
            .width = width,
            .mean = {0, 0, 0},
            .stddev = {1.0F / 255, 1.0F / 255, 1.0F / 255},  // values come out as pixels
            .seed = 5};
}

struct RawImage {
    RawImage(int height, int width) : pixels(static_cast<size_t>(height * width)) {
        for (size_t index = 0; index < pixels.size(); ++index) pixels[index] = static_cast<uint8_t>(index + 1);
        record = {.key = "raw",
                  .bytes = std::as_bytes(std::span(pixels)),
                  .encoding = Encoding::raw,
                  .channels = 1,
                  .height = height,
                  .width = width};
    }
    std::vector<uint8_t> pixels;
    Record record;
};

TEST(Pipeline, PaddedCropsReachEveryOffsetAndPadWithZeros) {
    const RawImage raw(3, 3);
    Pipeline crops(pipeline({{.kind = Transform::Kind::random_crop, .height = 3, .width = 3, .pad = 1}}, 3, 3));
    std::vector<int> seen(9);
    for (int64_t sample = 0; sample < 300; ++sample) {
        std::vector<float> out(9);
        crops.run(raw.record, 0, sample, out);
        const int centre = static_cast<int>(std::lround(out[4]));
        ASSERT_GE(centre, 1);
        ++seen[static_cast<size_t>(centre - 1)];
        const bool top_row_is_padding = centre <= 3;
        EXPECT_EQ(out[1] == 0.0F, top_row_is_padding);
    }
    for (const int count : seen) EXPECT_GT(count, 10);
}

TEST(Pipeline, FlipsMirrorHalfOfTheSamples) {
    const RawImage raw(1, 4);
    Pipeline flips(pipeline({{.kind = Transform::Kind::horizontal_flip}}, 1, 4));
    int mirrored = 0;
    for (int64_t sample = 0; sample < 400; ++sample) {
        std::vector<float> out(4);
        flips.run(raw.record, 0, sample, out);
        const bool is_mirrored = std::lround(out[0]) == 4;
        for (int x = 0; x < 4; ++x) EXPECT_EQ(std::lround(out[static_cast<size_t>(x)]), is_mirrored ? 4 - x : x + 1);
        mirrored += is_mirrored;
    }
    EXPECT_NEAR(mirrored, 200, 50);  // five standard deviations
}

TEST(Pipeline, CentreCropPadsSmallImages) {
    const RawImage raw(1, 1);
    std::vector<float> out(9);
    Pipeline(pipeline({{.kind = Transform::Kind::center_crop, .height = 3, .width = 3}}, 3, 3)).run(raw.record, 0, 0, out);
    for (size_t index = 0; index < 9; ++index) EXPECT_EQ(std::lround(out[index]), index == 4 ? 1 : 0);
}

TEST(Pipeline, NormalisesAsTorchvision) {
    const RawImage raw(1, 2);
    const Record grey = raw.record;
    const PipelineOptions options{.channels = 3, .height = 1, .width = 2};
    std::vector<float> out(6);
    load_image(grey, options, 0, 0, out);
    EXPECT_EQ(out[0], (1.0F / 255.0F - 0.485F) / 0.229F);
    EXPECT_EQ(out[3], (2.0F / 255.0F - 0.456F) / 0.224F);
}

TEST(Pipeline, ExtremeImagesGoThroughTheFallback) {
    Pipeline crops(pipeline({{.kind = Transform::Kind::random_resized_crop, .height = 8, .width = 8}}, 8, 8));
    std::vector<float> out(64);
    for (const RawImage& raw : {RawImage(33, 500), RawImage(500, 33), RawImage(1, 1), RawImage(1, 900)}) {
        for (int64_t sample = 0; sample < 20; ++sample) crops.run(raw.record, 0, sample, out);
    }
}

TEST(Pipeline, AColourImageBecomesGreyForAOneChannelNetwork) {
    PipelineOptions options = pipeline({}, 48, 64);
    std::vector<float> out(64 * 48);
    load_image(record_of(case_file("img/ref_rgb.png")), options, 0, 0, out);
    EXPECT_EQ(std::lround(out[0]), 76);  // red, ITU-R 601-2
    EXPECT_EQ(std::lround(out[63]), 150);
}

TEST(Pipeline, ImpossibleOptionsAreRefusedBeforeTheFirstImage) {
    EXPECT_THROW(Pipeline(pipeline({{.kind = Transform::Kind::center_crop, .height = 8, .width = 8}}, 9, 9)), ConfigError);
    EXPECT_THROW(Pipeline(pipeline({{.kind = Transform::Kind::horizontal_flip, .probability = 1.5}}, 9, 9)), ConfigError);
    PipelineOptions two_channels = pipeline({}, 9, 9);
    two_channels.channels = 2;
    EXPECT_THROW(Pipeline{two_channels}, ConfigError);
    const RawImage raw(2, 2);
    std::vector<float> out(81);
    EXPECT_THROW(load_image(raw.record, pipeline({}, 9, 9), 0, 0, out), DataError);
}

}  // namespace
}  // namespace lockstep
