#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "core/random.h"
#include "data_loader/color_ops.h"
#include "data_loader/exif.h"
#include "data_loader/pipeline.h"
#include "data_loader/rand_augment.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/made_up_pictures.h"

namespace lockstep {
namespace {

// The images of tests/golden/make_augment_golden.py.
ImageView golden_image(const std::string& name, Image& image) {
    std::istringstream text(name);
    std::string kind;
    std::getline(text, kind, ':');
    int width, height, channels;
    char colon;
    text >> width >> colon >> height >> colon >> channels;
    const ImageView view = picture(width, height, channels == 1 ? 1 : 4, image);
    for (int y = 0; y < height; ++y) {
        uint8_t* row = view.row(y);
        for (int index = 0; kind == "gradient" && index < width * view.bytes_per_pixel; ++index) {
            row[index] = static_cast<uint8_t>(row[index] / 3 + 60);
        }
        for (int x = 0; kind == "colours" && x < width; ++x) {
            const int shades[3] = {y, x / 33, x % 33};
            for (int c = 0; c < 3; ++c) row[4 * x + c] = static_cast<uint8_t>(std::min(8 * shades[c], 255));
        }
    }
    return view;
}

const std::map<std::string, AugmentOperation> kOperations{
    {"identity", AugmentOperation::identity},         {"shear_x", AugmentOperation::shear_x},
    {"shear_y", AugmentOperation::shear_y},           {"translate_x", AugmentOperation::translate_x},
    {"translate_y", AugmentOperation::translate_y},   {"rotate", AugmentOperation::rotate},
    {"brightness", AugmentOperation::brightness},     {"color", AugmentOperation::color},
    {"contrast", AugmentOperation::contrast},         {"sharpness", AugmentOperation::sharpness},
    {"posterize", AugmentOperation::posterize},       {"solarize", AugmentOperation::solarize},
    {"autocontrast", AugmentOperation::autocontrast}, {"equalize", AugmentOperation::equalize},
};

ImageView make(const std::string& name, double value, const ImageView& image, Image& other) {
    if (const auto found = kOperations.find(name); found != kOperations.end()) return apply(found->second, value, image, other);
    if (name == "jitter_brightness") adjust_brightness(image, value);
    if (name == "jitter_contrast") adjust_contrast(image, value);
    if (name == "jitter_saturation") adjust_saturation(image, value);
    if (name == "jitter_hue") adjust_hue(image, value);
    return image;
}

TEST(Augment, OperationsEqualTorchvisionsByteForByte) {
    std::ifstream golden(golden_file("augment.txt"));
    Image in, other;
    int cases = 0;
    std::string name, image;
    double value;
    for (uint64_t expected; golden >> name >> value >> image >> expected; ++cases) {
        EXPECT_EQ(checksum(make(name, value, golden_image(image, in), other)), expected) << name << " " << value << " of " << image;
    }
    EXPECT_EQ(cases, 5 * 22 + 4 * 43);
}

TEST(Augment, MagnitudesEqualTorchvisions) {
    std::ifstream golden(golden_file("augment_magnitudes.txt"));
    int cases = 0, bins, magnitude;
    bool has_sign;
    std::string name;
    for (double expected; golden >> name >> bins >> magnitude >> has_sign >> expected; ++cases) {
        const AugmentOperation operation = kOperations.at(name);
        // Not to the last bit: torch.linspace itself rounds differently from one vector width to another.
        EXPECT_FLOAT_EQ(static_cast<float>(augment_magnitude(operation, magnitude, bins, {224, 57})), static_cast<float>(expected))
            << name << " " << magnitude << " of " << bins;
        EXPECT_EQ(is_signed(operation), has_sign) << name;
    }
    EXPECT_EQ(cases, 14 * 41);
}

struct Picture {
    Picture() : pixels(3 * 40 * 50) {
        for (size_t index = 0; index < pixels.size(); ++index) pixels[index] = static_cast<uint8_t>(index * 7 + index / 50);
        record = {.key = "raw",
                  .bytes = std::as_bytes(std::span(pixels)),
                  .encoding = Encoding::raw,
                  .channels = 3,
                  .height = 40,
                  .width = 50};
    }
    std::vector<uint8_t> pixels;
    Record record;
};

PipelineOptions options(std::vector<Transform> transforms) {
    return {.transforms = std::move(transforms), .height = 40, .width = 50, .seed = 9};
}

std::vector<float> run(Pipeline& pipeline, const Record& record, int64_t epoch, int64_t sample) {
    std::vector<float> out(3 * 40 * 50);
    pipeline.run(record, epoch, sample, out);
    return out;
}

TEST(Augment, ChoicesAreAFunctionOfSeedEpochAndSample) {
    const Picture picture;
    const std::vector<Transform> transforms{
        {.kind = Transform::Kind::random_resized_crop, .height = 40, .width = 50, .filter = Filter::bicubic},
        {.kind = Transform::Kind::rand_augment},
        {.kind = Transform::Kind::horizontal_flip},
        {.kind = Transform::Kind::color_jitter, .brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1},
        {.kind = Transform::Kind::pca_lighting},
        {.kind = Transform::Kind::random_erasing,
         .scale_min = 0.02,
         .scale_max = 0.33,
         .ratio_min = 0.3,
         .ratio_max = 3.3,
         .random_values = true}};
    Pipeline one(options(transforms)), other(options(transforms));
    std::map<std::pair<int64_t, int64_t>, std::vector<float>> seen;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
        for (int64_t sample = 0; sample < 20; ++sample) seen[{epoch, sample}] = run(one, picture.record, epoch, sample);
    }
    for (auto item = seen.rbegin(); item != seen.rend(); ++item) {
        EXPECT_EQ(run(other, picture.record, item->first.first, item->first.second), item->second);
    }
    EXPECT_NE((seen[{0, 3}]), (seen[{1, 3}]));
    EXPECT_NE((seen[{0, 3}]), (seen[{0, 4}]));
}

TEST(Augment, AFlipLeftToTheCopyEqualsOneMadeAtOnce) {
    const Picture picture;
    const Transform flip{.kind = Transform::Kind::horizontal_flip, .probability = 1.0};
    const Transform jitter{.kind = Transform::Kind::color_jitter, .contrast = 0.5};
    const Transform whole{.kind = Transform::Kind::center_crop, .height = 40, .width = 50};
    Pipeline late(options({whole, flip, jitter})), early(options({flip, whole, jitter}));  // a crop cannot wait for the flip
    EXPECT_EQ(run(late, picture.record, 0, 1), run(early, picture.record, 0, 1));
    EXPECT_TRUE(late.choices().flipped);
    const ImageView a = late.pixels(picture.record, 0, 1);
    EXPECT_EQ(a.row(0)[0], early.pixels(picture.record, 0, 1).row(0)[0]);
}

TEST(Augment, JitterUsesEveryOrderOfItsOperations) {
    const Picture picture;
    Pipeline pipeline(
        options({{.kind = Transform::Kind::color_jitter, .brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}}));
    std::map<std::string, int> orders;
    for (int64_t sample = 0; sample < 480; ++sample) {
        run(pipeline, picture.record, 0, sample);
        std::string order;
        for (const auto& operation : pipeline.choices().operations) {
            order += operation.name.substr(0, 1);
            if (operation.name == "hue") {
                EXPECT_LE(std::abs(operation.value), 0.1);
            } else {
                EXPECT_NEAR(operation.value, 1.0, 0.4);
            }
        }
        ++orders[order];
    }
    EXPECT_EQ(orders.size(), 24U);
}

TEST(Augment, RandAugmentTakesEveryOperationWithBothSigns) {
    const Picture picture;
    Pipeline pipeline(options({{.kind = Transform::Kind::rand_augment}}));
    std::map<std::pair<std::string_view, bool>, int> seen;
    for (int64_t sample = 0; sample < 700; ++sample) {
        run(pipeline, picture.record, 0, sample);
        ASSERT_EQ(pipeline.choices().operations.size(), 2U);
        for (const auto& operation : pipeline.choices().operations) ++seen[{operation.name, std::signbit(operation.value)}];
    }
    EXPECT_EQ(seen.size(), 14U + 9U);
    for (const auto& [what, count] : seen) EXPECT_GT(count, 20) << what.first;
}

TEST(Augment, LightingAddsOneColourAlongTheAxes) {
    const Picture picture;
    PipelineOptions dark = options({{.kind = Transform::Kind::pca_lighting}});
    Pipeline lit(dark), plain(options({}));
    double squares = 0.0;
    for (int64_t sample = 0; sample < 500; ++sample) {
        const std::vector<float> with = run(lit, picture.record, 0, sample), without = run(plain, picture.record, 0, sample);
        const float first = (with[0] - without[0]) * 0.229F;
        for (size_t place = 1; place < 2000; place += 333) EXPECT_NEAR((with[place] - without[place]) * 0.229F, first, 1e-6F);
        squares += static_cast<double>(first) * first;
    }
    // The sum of three independent parts, each a vector's element times its value times 0.1.
    const double expected =
        0.1 * std::sqrt(std::pow(0.5675 * 0.2175, 2) + std::pow(0.7192 * 0.0188, 2) + std::pow(0.4009 * 0.0045, 2));
    EXPECT_NEAR(std::sqrt(squares / 500), expected, 0.16 * expected);  // five standard deviations
}

TEST(Augment, ErasingClearsOneBoxInHalfOfTheImages) {
    const Picture picture;
    Transform erasing{
        .kind = Transform::Kind::random_erasing, .scale_min = 0.02, .scale_max = 0.33, .ratio_min = 0.3, .ratio_max = 3.3};
    Pipeline pipeline(options({erasing})), plain(options({}));
    int erased = 0;
    for (int64_t sample = 0; sample < 400; ++sample) {
        const std::vector<float> out = run(pipeline, picture.record, 0, sample), whole = run(plain, picture.record, 0, sample);
        const CropBox box = pipeline.choices().erased;
        erased += box.width > 0;
        for (int place = 0; place < 2000; place += 7) {
            const int x = place % 50, y = place / 50;
            const bool inside = x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
            ASSERT_EQ(out[static_cast<size_t>(place)], inside ? 0.0F : whole[static_cast<size_t>(place)]);
        }
        const double share = box.width * box.height / 2000.0;
        EXPECT_TRUE(box.width == 0 || (share > 0.01 && share < 0.36)) << share;
    }
    EXPECT_NEAR(erased, 200, 55);
}

TEST(Augment, WhatCannotWorkIsRefused) {
    const Transform erasing{.kind = Transform::Kind::random_erasing};
    EXPECT_THROW(Pipeline(options({erasing, {.kind = Transform::Kind::horizontal_flip}})), ConfigError);
    EXPECT_THROW(Pipeline(options({{.kind = Transform::Kind::rand_augment, .magnitude = 31}})), ConfigError);
    EXPECT_THROW(Pipeline(options({{.kind = Transform::Kind::color_jitter, .hue = 0.6}})), ConfigError);
    EXPECT_THROW(
        Pipeline(options(
            {{.kind = Transform::Kind::resize, .height = 40, .width = 50, .filter = Filter::area, .rounding = Rounding::once}})),
        ConfigError);
}

TEST(Crop, LbannDrawsKeepTheRangesAndExchangeSides) {
    const Transform lbann{.kind = Transform::Kind::random_resized_crop, .height = 9, .width = 9, .draws = CropDraws::lbann};
    RandomStream random(4, "boxes");
    int wide = 0;
    for (int draw = 0; draw < 1000; ++draw) {
        const CropBox box = random_resized_box(
            {400, 400}, lbann, [&] { return random.uniform_double(); }, [&](uint64_t bound) { return random.below(bound); });
        EXPECT_GE(box.width * 4 + 4, box.height * 3);
        EXPECT_GE(box.height * 4 + 4, box.width * 3);
        wide += box.width > box.height;
    }
    EXPECT_NEAR(wide, 500, 85);
}

// A JPEG file whose header notes an orientation.
std::string with_orientation(int orientation, bool little) {
    const std::string number =
        little ? std::string{static_cast<char>(orientation), 0} : std::string{0, static_cast<char>(orientation)};
    const std::string tiff = little
                                 ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) + number + std::string(6, '\0')
                                 : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18) + number + std::string(6, '\0');
    const std::string segment = std::string("Exif\0\0", 6) + tiff;
    const std::string length{static_cast<char>((segment.size() + 2) >> 8), static_cast<char>((segment.size() + 2) & 0xFF)};
    std::string file = read_file(case_file("img/ref_rgb.jpg"));
    return file.insert(2, "\xFF\xE1" + length + segment);
}

TEST(Exif, OrientationIsReadInBothByteOrders) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
        EXPECT_EQ(exif_orientation(bytes_of(with_orientation(orientation, true))), orientation);
        EXPECT_EQ(exif_orientation(bytes_of(with_orientation(orientation, false))), orientation);
    }
    EXPECT_EQ(exif_orientation(bytes_of(with_orientation(9, true))), 1);
    EXPECT_EQ(exif_orientation(bytes_of(read_file(case_file("img/ref_rgb.jpg")))), 1);
    EXPECT_EQ(exif_orientation(bytes_of(std::string("\xFF\xD8", 2))), 1);
}

// ref_rgb: red and green above blue and white, 64 x 48. Which corners are red and green when the picture is seen.
TEST(Exif, PicturesAreTurnedByOptionOnly) {
    const std::map<int, std::string> corners{{1, "rgbw"}, {2, "grwb"}, {3, "wbgr"}, {4, "bwrg"},
                                             {5, "rbgw"}, {6, "brwg"}, {7, "wgbr"}, {8, "gwrb"}};
    for (const auto& [orientation, expected] : corners) {
        const std::string file = with_orientation(orientation, true);
        const Record record{.key = "turned.jpg", .bytes = bytes_of(file)};
        const bool turned = orientation >= 5;
        PipelineOptions how{.height = turned ? 64 : 48, .width = turned ? 48 : 64, .apply_exif_orientation = true};
        Pipeline whole(how);
        how.transforms = {{.kind = Transform::Kind::random_resized_crop,
                           .height = how.height,
                           .width = how.width,
                           .scale_min = 1.0,
                           .ratio_min = how.width * 1.0 / how.height,
                           .ratio_max = how.width * 1.0 / how.height}};
        Pipeline crop(how);
        for (Pipeline* pipeline : {&whole, &crop}) {
            const ImageView view = pipeline->pixels(record, 0, 0);
            std::string seen;
            for (const auto& [x, y] : {std::pair(5, 5), std::pair(view.width - 6, 5), std::pair(5, view.height - 6),
                                       std::pair(view.width - 6, view.height - 6)}) {
                const uint8_t* p = view.row(y) + 4 * x;
                seen += p[0] > 128 ? (p[1] > 128 ? 'w' : 'r') : (p[1] > 128 ? 'g' : 'b');
            }
            EXPECT_EQ(seen, expected) << orientation;
        }
        EXPECT_EQ(Pipeline(PipelineOptions{.height = 48, .width = 64}).pixels(record, 0, 0).width, 64);
    }
}

// A leading crop is made by the decoder, which sees stored pixels; behind another transform it is made of the turned picture.
TEST(Exif, ACropOfTheFileEqualsOneOfTheTurnedPicture) {
    const Transform crop{.kind = Transform::Kind::random_resized_crop, .height = 20, .width = 30};
    for (int orientation = 1; orientation <= 8; ++orientation) {
        const std::string file = with_orientation(orientation, false);
        const Record record{.key = "turned.jpg", .bytes = bytes_of(file)};
        const bool turned = orientation >= 5;
        const Transform whole{
            .kind = Transform::Kind::center_crop, .height = turned ? 64 : 48, .width = turned ? 48 : 64};  // all of it
        PipelineOptions how{.transforms = {crop}, .height = 20, .width = 30, .apply_exif_orientation = true, .seed = 4};
        Pipeline early(how);
        how.transforms = {whole, crop};
        Pipeline late(how);
        std::vector<float> a(3 * 20 * 30), b(a.size());
        for (int64_t sample = 0; sample < 20; ++sample) {
            early.run(record, 0, sample, a);
            late.run(record, 0, sample, b);
            EXPECT_EQ(a, b) << orientation << " sample " << sample;
        }
    }
}

}  // namespace
}  // namespace lockstep
