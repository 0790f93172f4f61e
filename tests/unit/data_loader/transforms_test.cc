#include <cstring>
#include <fstream>
#include <utility>

#include "core/random.h"
#include "data_loader/geometry.h"
#include "data_loader/jpeg_encoder.h"
#include "data_loader/loader.h"
#include "data_loader/pipeline.h"
#include "data_loader/resample.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/made_up_pictures.h"

namespace lockstep {
namespace {

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

Filter filter_named(const std::string& name) {
    return name == "bicubic" ? Filter::bicubic : name == "nearest" ? Filter::nearest : Filter::bilinear;
}

TEST(Resize, FiltersAndBoxesEqualPillows) {
    std::ifstream golden(golden_file("resize_filters.txt"));
    Resampler resampler;
    Image in, out;
    int cases = 0;
    std::string name;
    int width, height, new_width, new_height;
    AxisRange columns, rows;
    for (uint64_t expected; golden >> name >> width >> height >> new_width >> new_height >> columns.begin >> rows.begin >>
                            columns.end >> rows.end >> expected;
         ++cases) {
        const ResizeOptions options{.filter = filter_named(name), .columns = columns, .rows = rows};
        EXPECT_EQ(checksum(resampler.resize(picture(width, height, 4, in), new_width, new_height, out, options)), expected)
            << name << " " << width << "x" << height << " to " << new_width << "x" << new_height << " from " << columns.begin;
    }
    EXPECT_EQ(cases, 50);
}

TEST(Resize, AreaIsTheMeanOfWhatIsCovered) {
    Image in, out;
    const ImageView view = picture(12, 9, 1, in);
    const ImageView third = Resampler().resize(view, 4, 3, out, {.filter = Filter::area});
    for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 4; ++x) {
            int sum = 0;
            for (int place = 0; place < 9; ++place) sum += view.row(3 * y + place / 3)[3 * x + place % 3];
            EXPECT_NEAR(third.row(y)[x], sum / 9.0, 1.0);  // two roundings
        }
    }
}

TEST(Resize, PlainBilinearTakesTheTwoNearestHoweverFarApart) {
    Image in, out;
    const ImageView view = picture(40, 1, 1, in);
    const ImageView few = Resampler().resize(view, 4, 1, out, {.filter = Filter::bilinear_plain});
    for (int x = 0; x < 4; ++x) EXPECT_NEAR(few.row(0)[x], (view.row(0)[10 * x + 4] + view.row(0)[10 * x + 5]) / 2.0, 0.5);
}

TEST(Resize, RoundedOnceStaysWithinTwoRoundingsOfPillows) {
    Resampler resampler;
    Image in, once, twice;
    for (const Filter filter : {Filter::bilinear, Filter::bicubic}) {
        const ImageView view = picture(150, 100, 4, in);
        const ImageView a = resampler.resize(view, 64, 80, once, {.filter = filter, .rounding = Rounding::once});
        const ImageView b = resampler.resize(view, 64, 80, twice, {.filter = filter});
        int different = 0;
        for (int y = 0; y < 80; ++y) {
            for (int x = 0; x < 256; ++x) {
                ASSERT_NEAR(a.row(y)[x], b.row(y)[x], 1.0 + (filter == Filter::bicubic));
                different += a.row(y)[x] != b.row(y)[x];
            }
        }
        EXPECT_GT(different, 0);
    }
}

TEST(Resize, FastPassesEqualPlainLoopsOnCropsOfAnySize) {
    Resampler resampler;
    RandomStream random(1, "test");
    Image in, fast, slow;
    for (int attempt = 0; attempt < 100; ++attempt) {
        const auto side = [&](uint64_t most) { return 1 + static_cast<int>(random.below(most)); };
        const int bytes = attempt % 3 == 0 ? 1 : 4;
        const ImageView whole = picture(80, 70, bytes, in);
        const int width = side(60), height = side(60);
        const ImageView crop = whole.crop(side(80 - width) - 1, side(70 - height) - 1, width, height);
        const int new_width = side(90), new_height = side(90);
        const ResizeOptions options{.filter = static_cast<Filter>(attempt % 5)};
        const ImageView result = resampler.resize(crop, new_width, new_height, fast, options);
        Resampler::resize_reference(crop, new_width, new_height, slow, options);
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

TEST(Pipeline, FastNormaliseIsExactForEveryPixelValue) {
    Image in;
    const ImageView all = in.reshape(256, 1, 1);
    for (int value = 0; value < 256; ++value) all.row(0)[value] = static_cast<uint8_t>(value);
    std::vector<float> out(256);
    pixel_kernels::normalise(all, {.channels = 1, .mean = {0.485F}, .stddev = {0.229F}}, false, out.data());
    for (size_t value = 0; value < 256; ++value) EXPECT_EQ(out[value], (static_cast<float>(value) / 255.0F - 0.485F) / 0.229F);
}

TEST(Pipeline, FastNormaliseEqualsPlainLoops) {
    Image in;
    const pixel_kernels::Normalisation colours{
        .shift = {0.1F, 0.0F, -0.2F}, .mean = {0.485F, 0.456F, 0.406F}, .stddev = {0.2F, 0.3F, 0.4F}};
    for (const int width : {1, 7, 8, 9, 31, 64}) {
        for (const auto& [bytes, channels] : {std::pair(4, 3), std::pair(1, 3), std::pair(1, 1)}) {
            const ImageView view = picture(70, 9, bytes, in).crop(3, 2, width, 5);
            pixel_kernels::Normalisation how = colours;
            how.channels = channels;
            for (const bool mirrored : {false, true}) {
                std::vector<float> fast(static_cast<size_t>(channels * 5 * width)), slow(fast.size());
                pixel_kernels::normalise(view, how, mirrored, fast.data());
                pixel_kernels::plain::normalise(view, how, mirrored, slow.data());
                EXPECT_EQ(fast, slow) << width << " " << bytes << " " << channels << " " << mirrored;
            }
        }
    }
}

TEST(Pipeline, ExtremeImagesGoThroughTheFallback) {
    Pipeline crops(pipeline({{.kind = Transform::Kind::random_resized_crop, .height = 8, .width = 8}}, 8, 8));
    std::vector<float> out(64);
    for (const RawImage& raw : {RawImage(33, 500), RawImage(500, 33), RawImage(1, 1), RawImage(1, 900)}) {
        for (int64_t sample = 0; sample < 20; ++sample) crops.run(raw.record, 0, sample, out);
    }
}

// A slope of one grey level a pixel: what lies a pixel off is a level off. At the edges, a shrunk pixel also sees what lies
// outside.
TEST(Pipeline, EveryDecodeModeTakesTheSameCrop) {
    Image in;
    const ImageView slope = in.reshape(200, 160, 1);
    for (int y = 0; y < 160; ++y) {
        for (int x = 0; x < 200; ++x) slope.row(y)[x] = static_cast<uint8_t>(x + y / 4);
    }
    std::vector<uint8_t> file;
    encode_jpeg(slope, {.quality = 98}, file);
    const Record record{.key = "slope.jpg", .bytes = std::as_bytes(std::span(file))};
    PipelineOptions how =
        pipeline({{.kind = Transform::Kind::random_resized_crop, .height = 10, .width = 12, .scale_min = 0.2}}, 10, 12);
    Pipeline exact(how);
    how.decode = DecodeMode::full;
    Pipeline full(how);
    how.decode = DecodeMode::fast;
    Pipeline fast(how);
    std::vector<float> a(120), b(120), c(120);
    double off = 0.0;
    for (int64_t sample = 0; sample < 50; ++sample) {
        exact.run(record, 0, sample, a);
        full.run(record, 0, sample, b);
        fast.run(record, 0, sample, c);
        EXPECT_EQ(b, a) << sample;
        EXPECT_EQ(fast.choices().crops, exact.choices().crops);
        for (size_t place = 0; place < 120; ++place) {
            const bool edge = place % 12 % 11 == 0 || place / 12 % 9 == 0;
            ASSERT_NEAR(c[place], a[place], edge ? 4.0F : 2.5F) << sample << " at " << place;
            off += static_cast<double>(c[place] - a[place]);
        }
    }
    EXPECT_NEAR(off / (50 * 120), 0.0, 0.2) << "no mode is to one side of the other";
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
