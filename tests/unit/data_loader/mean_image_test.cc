// Caffe's mean image: what is read, what damaged ones are told, and that the pipeline subtracts it as Caffe does.
#include "data_loader/mean_image.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "core/random.h"
#include "data_loader/pipeline.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/format_writers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `protoc --encode=BlobProto` with caffe.proto's fields made them of the values 10, 20, 30, 40, 50, 60.5.
const std::string kOlder(
    "\x08\x01\x10\x03\x18\x01\x20\x02\x2a\x18\0\0\x20\x41\0\0\xa0\x41\0\0\xf0\x41\0\0\x20\x42\0\0\x48\x42\0\0\x72\x42", 34);
const std::string kNewer(
    "\x2a\x18\0\0\x20\x41\0\0\xa0\x41\0\0\xf0\x41\0\0\x20\x42\0\0\x48\x42\0\0\x72\x42\x3a\x06\x0a\x04\x01\x03\x01\x02", 34);

std::string error_of(const std::string& file) {
    return data_error_of([&] { parse_mean_image(bytes_of(file), "mean.binaryproto"); });
}

std::string blob(const std::vector<uint64_t>& sizes, const std::vector<float>& values) {
    std::string data;
    for (const float value : values) data += little_endian(value);
    return number_field(1, sizes[0]) + number_field(2, sizes[1]) + number_field(3, sizes[2]) + number_field(4, sizes[3]) +
           bytes_field(5, data);
}

TEST(MeanImage, BothFormsOfCaffesMessageAreReadRedFirst) {
    for (const std::string& file : {kOlder, kNewer}) {
        const MeanImage mean = parse_mean_image(bytes_of(file), "mean.binaryproto");
        EXPECT_EQ((std::vector<int>{mean.channels, mean.height, mean.width}), (std::vector<int>{3, 1, 2}));
        EXPECT_THAT(mean.values, ElementsAre(50.0F / 255, 60.5F / 255, 30.0F / 255, 40.0F / 255, 10.0F / 255, 20.0F / 255));
    }
}

TEST(MeanImage, NumbersWrittenOneByOneAreTheSame) {
    std::string file = number_field(1, 1) + number_field(2, 1) + number_field(3, 1) + number_field(4, 2);
    for (const float value : {51.0F, 255.0F}) file += varint(5 << 3 | 5) + little_endian(value);
    EXPECT_THAT(parse_mean_image(bytes_of(file), "x").values, ElementsAre(51.0F / 255, 1.0F));
}

TEST(MeanImage, WhatIsNoImageIsNamed) {
    const auto named = AllOf(HasSubstr("mean.binaryproto"), HasSubstr("data.mean_file"));
    EXPECT_THAT(error_of(""), AllOf(named, HasSubstr("sizes")));
    EXPECT_THAT(error_of("no message"), AllOf(named, HasSubstr("damaged")));
    EXPECT_THAT(error_of(blob({1, 3, 1, 2}, {1, 2, 3, 4, 5})), AllOf(named, HasSubstr("3x1x2 values and holds 5")));
    EXPECT_THAT(error_of(blob({1, 3, 1, 1}, {1, 2, 3, 4, 5})), AllOf(named, HasSubstr("holds 5")));
    EXPECT_THAT(error_of(blob({2, 1, 1, 1}, {1, 2})), HasSubstr("sizes"));
    EXPECT_THAT(error_of(blob({1, 2, 1, 1}, {1, 2})), HasSubstr("sizes"));
    EXPECT_THAT(error_of(blob({1, 3, 1 << 15, 1}, {})), HasSubstr("sizes"));
    EXPECT_THAT(error_of(blob({1, 1, 1, 2}, {1, std::numeric_limits<float>::infinity()})), HasSubstr("value 1 is no number"));
    EXPECT_THAT(error_of(number_field(2, 1) + bytes_field(8, "12345678")), HasSubstr("sizes"));
    EXPECT_THAT(error_of(blob({1, 1, 1, 1}, {1}) + bytes_field(8, "12345678")), HasSubstr("double"));
}

TEST(MeanImage, EveryCutIsAnError) {
    for (size_t length = 0; length < kOlder.size(); ++length) EXPECT_NE(error_of(kOlder.substr(0, length)), "") << length;
}

// ((pixel / 255) - mean) / stddev of the stored pixel, then mirrored: what Caffe's DataTransformer does.
TEST(MeanImage, ThePipelineSubtractsItFromTheStoredPixel) {
    constexpr int kSide = 8;
    RandomStream random(5, "mean image");
    std::string pixels;
    for (int index = 0; index < 3 * kSide * kSide; ++index) pixels += static_cast<char>(random.below(256));
    std::vector<float> values;
    for (size_t index = 0; index < pixels.size(); ++index) values.push_back(static_cast<float>(random.below(2550)) / 10.0F);
    const MeanImage mean = parse_mean_image(bytes_of(blob({1, 3, kSide, kSide}, values)), "x");
    PipelineOptions options{.transforms = {{.kind = Transform::Kind::horizontal_flip}},
                            .height = kSide,
                            .width = kSide,
                            .stddev = {1.0F / 255, 0.5F, 0.25F},
                            .mean_image = std::make_shared<MeanImage>(mean)};
    Pipeline pipeline(options);
    const Record record{
        .key = "x", .bytes = bytes_of(pixels), .encoding = Encoding::raw, .channels = 3, .height = kSide, .width = kSide};
    std::vector<float> out(pixels.size());
    int flips = 0;
    for (int64_t sample = 0; sample < 20; ++sample) {
        pipeline.run(record, 0, sample, out);
        const bool flipped = pipeline.choices().flipped;
        flips += flipped ? 1 : 0;
        for (int place = 0; place < 3 * kSide * kSide; ++place) {
            const int x = place % kSide, to = flipped ? place - x + (kSide - 1 - x) : place;
            const float pixel = static_cast<float>(static_cast<uint8_t>(pixels[static_cast<size_t>(place)])) / 255.0F;
            const float expected =
                (pixel - mean.values[static_cast<size_t>(place)]) / options.stddev[static_cast<size_t>(place / (kSide * kSide))];
            ASSERT_EQ(out[static_cast<size_t>(to)], expected) << sample << " " << place;
        }
    }
    EXPECT_GT(flips, 2);
    EXPECT_LT(flips, 18);
    options.height = 7;
    EXPECT_THROW(Pipeline{options}, ConfigError);
}

}  // namespace
}  // namespace lockstep
