#include "data_loader/decoder.h"

#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/random.h"
#include "data_loader/jpeg_encoder.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

using Pixel = std::array<int, 3>;

// One decoded file.
struct Decoded {
    explicit Decoded(const std::string& name) : Decoded(record_of(case_file("img/" + name))) {}
    explicit Decoded(const Record& record) {
        Decoder decoder;
        const ImageSize size = decoder.open(record);
        view = decoder.decode_all(size, image);
        warnings = decoder.warnings();
    }
    Pixel at(int x, int y) const {
        const uint8_t* pixel = view.row(y) + x * view.bytes_per_pixel;
        if (view.bytes_per_pixel == 1) return {pixel[0], pixel[0], pixel[0]};
        return {pixel[0], pixel[1], pixel[2]};
    }
    Image image;
    ImageView view;
    int64_t warnings = 0;
};

void expect_near(const Pixel& found, const Pixel& expected, int tolerance, const std::string& what) {
    for (size_t channel = 0; channel < 3; ++channel) EXPECT_NEAR(found[channel], expected[channel], tolerance) << what;
}

void expect_quarters(const std::string& name, int full, int tolerance) {
    const Decoded image(name);
    ASSERT_EQ(image.view.width, 64) << name;
    ASSERT_EQ(image.view.height, 48) << name;
    expect_near(image.at(8, 8), {full, 0, 0}, tolerance, name);
    expect_near(image.at(56, 8), {0, full, 0}, tolerance, name);
    expect_near(image.at(8, 40), {0, 0, full}, tolerance, name);
    expect_near(image.at(56, 40), {full, full, full}, tolerance, name);
}

TEST(Decode, InvertedInksComeOutAsTheRightColours) {
    expect_quarters("cmyk_adobe.jpg", 255, 3);
    expect_quarters("cmyk_adobe_halfblack.jpg", 128, 3);
}

TEST(Decode, KindIsJudgedByContentWhateverTheName) {
    for (const char* name : {"ref_rgb.jpg", "ref_rgb.png", "png_named.jpg", "jpeg_named.png", "UPPER.JPG"})
        expect_quarters(name, 255, 3);
}

TEST(Decode, GreyAndTransparentImagesBecomeEightBitColours) {
    for (const char* name : {"gray.jpg", "gray.png", "gray_alpha.png"}) {
        const Decoded image(name);
        expect_near(image.at(4, 4), {90, 90, 90}, 1, name);
        expect_near(image.at(60, 4), {200, 200, 200}, 1, name);
    }
    // Transparency is dropped: the stored colour stays.
    const Decoded grey("gray_alpha.png");
    expect_near(grey.at(60, 44), {200, 200, 200}, 0, "gray_alpha.png");
    for (const char* name : {"rgba.png", "palette_trns.png"}) expect_quarters(name, 255, 0);
    EXPECT_EQ(Decoded("bilevel_1bit.png").at(4, 4), (Pixel{255, 255, 255}));
}

TEST(Decode, DamagedFilesAreDataErrorsWithPathAndReason) {
    for (const char* name : {"truncated_half.jpg", "truncated_half.png", "truncated_header.jpg", "bad_crc.png", "zero_byte.jpg"}) {
        const std::string error = data_error_of([&] { Decoded image{std::string(name)}; });
        EXPECT_NE(error.find(name), std::string::npos) << "no error for " << name << ": " << error;
    }
}

TEST(Decode, OtherKindsAreNamed) {
    const std::pair<const char*, const char*> cases[] = {
        {"bmp_named.jpg", "BMP"}, {"html_named.jpg", "HTML"}, {"gzip_of_jpeg.JPEG", "gzip"}, {"zero_byte.jpg", "empty"}};
    for (const auto& [name, kind] : cases) {
        const std::string error = data_error_of([&] { Decoded image{std::string(name)}; });
        EXPECT_NE(error.find(kind), std::string::npos) << error;
    }
    for (const auto& [bytes, kind] :
         {std::pair{"GIF89a", "GIF"}, std::pair{"RIFF0000WEBPVP8 ", "WebP"}, std::pair{"zzzz", "unknown"}}) {
        const Record record{.key = "x.jpg", .bytes = std::as_bytes(std::span(bytes, std::strlen(bytes)))};
        EXPECT_NE(data_error_of([&] { Decoded image(record); }).find(kind), std::string::npos);
    }
}

TEST(Decode, AFileThatLacksOnlyItsEndMarkerIsWhole) { expect_quarters("truncated_no_eoi.jpg", 255, 3); }

TEST(Decode, ProgressiveFilesCutInTheMiddleAreBad) {
    const Decoded original("ref_rgb.jpg");
    std::vector<uint8_t> file;
    encode_jpeg(original.view, {.progressive = true}, file);
    for (size_t kept = file.size() / 2; kept < file.size(); kept += 7) {
        const bool whole = kept >= file.size() - 2;
        const Record record{.key = "cut.jpg", .bytes = std::as_bytes(std::span(file).first(kept))};
        EXPECT_EQ(data_error_of([&] { Decoded image(record); }).empty(), whole) << kept << " of " << file.size();
    }
}

ImageView stripes(int width, int height, Image& image) {
    const ImageView pixels = image.reshape(width, height, 4);
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < 4 * width; ++x) pixels.row(y)[x] = static_cast<uint8_t>(x * 5 + y * 3 + (x * y) % 61);
    }
    return pixels;
}

TEST(Decode, ACutFileIsBadWhicheverPartIsWanted) {
    const Record record = record_of(case_file("img/truncated_half.jpg"));
    Decoder decoder;
    Image image;
    for (const CropBox& box : {CropBox{0, 0, 8, 1}, CropBox{40, 2, 5, 5}, CropBox{0, 40, 64, 8}}) {
        for (const bool everything : {false, true}) {
            decoder.open(record);
            EXPECT_NE(data_error_of([&] { decoder.decode({.box = box, .everything = everything}, image); }), "") << box.y;
        }
    }
}

TEST(Decode, DamageBelowTheBoxIsMetWhenEverythingIsAskedFor) {
    Image source;
    std::vector<uint8_t> file;
    encode_jpeg(stripes(160, 160, source), {}, file);
    file[file.size() * 3 / 4] ^= 0x55U;
    file.erase(file.end() - static_cast<ptrdiff_t>(file.size() / 8), file.end() - 2);  // the end marker stays
    const Record record{.key = "below.jpg", .bytes = std::as_bytes(std::span(file))};
    Decoder decoder;
    Image image;
    for (const bool everything : {false, true}) {
        decoder.open(record);
        decoder.decode({.box = {0, 0, 160, 8}, .everything = everything}, image);
        EXPECT_EQ(decoder.warnings() > 0, everything);
    }
}

TEST(Decode, ScansWithoutEndAreRefused) {
    Image source;
    std::vector<uint8_t> file;
    encode_jpeg(stripes(16, 16, source), {.progressive = true}, file);
    std::string text(file.begin(), file.end());
    const std::string scan = text.substr(text.rfind("\xFF\xDA"), text.size() - 2 - text.rfind("\xFF\xDA"));
    const auto error_with = [&](int more) {
        std::string longer = text.substr(0, text.size() - 2);
        for (int copy = 0; copy < more; ++copy) longer += scan;
        longer += "\xFF\xD9";
        const Record record{.key = "scans.jpg", .bytes = bytes_of(longer)};
        return data_error_of([&] { Decoded image(record); });
    };
    EXPECT_EQ(error_with(400), "");
    EXPECT_NE(error_with(600).find("more than 500 scans"), std::string::npos);
}

TEST(Decode, HugeDeclaredSizesAreRefusedBeforeMemoryIsTaken) {
    std::string jpeg = read_file(case_file("img/ref_rgb.jpg"));
    const size_t frame = jpeg.find("\xFF\xC0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, "\x4E\x20\x4E\x20");  // 20,000 x 20,000
    const Record record{.key = "bomb.jpg", .bytes = bytes_of(jpeg)};
    EXPECT_NE(data_error_of([&] { Decoded image(record); }).find("20000x20000"), std::string::npos);
}

TEST(Decode, JunkBeforeTheEndMarkerIsCountedAndPixelsKept) {
    std::string jpeg = read_file(case_file("img/ref_rgb.jpg"));
    const Decoded clean("ref_rgb.jpg");
    EXPECT_EQ(clean.warnings, 0);
    jpeg[jpeg.size() - 20] = static_cast<char>(jpeg[jpeg.size() - 20] ^ 0x10);
    Decoder decoder;
    Image image;
    const Record record{.key = "junk.jpg", .bytes = bytes_of(jpeg)};
    const ImageSize size = decoder.open(record);
    EXPECT_EQ(decoder.decode_all(size, image).height, 48);
}

void expect_equal_rows(const ImageView& view, const ImageView& expected, const std::string& what) {
    ASSERT_EQ(view.width, expected.width) << what;
    ASSERT_EQ(view.height, expected.height) << what;
    for (int y = 0; y < view.height; ++y) {
        const size_t bytes = static_cast<size_t>(view.width * view.bytes_per_pixel);
        ASSERT_EQ(std::memcmp(view.row(y), expected.row(y), bytes), 0) << what << " row " << y;
    }
}

TEST(Decode, ABoxHasThePixelsOfTheWholeImage) {
    RandomStream random(3, "boxes");
    Image source;
    const ImageView pixels = stripes(141, 77, source);
    for (const auto& [half_chroma, progressive] : {std::pair(true, false), std::pair(false, false), std::pair(true, true)}) {
        std::vector<uint8_t> file;
        encode_jpeg(pixels, {.half_chroma = half_chroma, .progressive = progressive}, file);
        const Record record{.key = "boxes.jpg", .bytes = std::as_bytes(std::span(file))};
        const Decoded whole(record);
        Decoder decoder;
        Image image;
        for (int round = 0; round < 150; ++round) {
            CropBox box;
            box.width = 1 + static_cast<int>(random.below(round % 3 == 0 ? 5 : 141));
            box.height = 1 + static_cast<int>(random.below(round % 3 == 1 ? 5 : 77));
            box.x = static_cast<int>(random.below(static_cast<uint64_t>(142 - box.width)));
            box.y = static_cast<int>(random.below(static_cast<uint64_t>(78 - box.height)));
            decoder.open(record);
            const ImageView part = decoder.decode({.box = box, .everything = round % 7 == 0}, image);
            expect_equal_rows(part, whole.view.crop(box), fmt::format("{}x{} at {},{}", box.width, box.height, box.x, box.y));
        }
    }
}

TEST(Decode, FilesOfEveryKindGiveBoxes) {
    const CropBox box{13, 7, 30, 21};
    for (const char* name : {"ref_rgb.jpg", "cmyk_adobe.jpg", "gray.jpg", "ref_rgb.png"}) {
        const Record record = record_of(case_file(std::string("img/") + name));
        const Decoded whole(record);
        Decoder decoder;
        Image image;
        decoder.open(record);
        expect_equal_rows(decoder.decode({.box = box}, image), whole.view.crop(box), name);
    }
}

TEST(Decode, AShrunkImageCoversTheBoxAndLooksAlike) {
    Image source;
    const ImageView smooth = source.reshape(160, 120, 4);
    for (int y = 0; y < 120; ++y) {
        for (int x = 0; x < 160; ++x) std::memset(smooth.row(y) + 4 * x, x + y / 2, 4);
    }
    std::vector<uint8_t> file;
    encode_jpeg(smooth, {.quality = 95}, file);
    const Record record{.key = "smooth.jpg", .bytes = std::as_bytes(std::span(file))};
    Decoder decoder;
    Image image;
    for (const int shrink : {2, 4, 8}) {
        const CropBox box{17, 11, 101, 83};
        decoder.open(record);
        const ImageView small = decoder.decode({.box = box, .shrink = shrink}, image);
        const int left = 17 / shrink, top = 11 / shrink;
        ASSERT_EQ(small.width, (118 + shrink - 1) / shrink - left);
        ASSERT_EQ(small.height, (94 + shrink - 1) / shrink - top);
        for (int y = 0; y < small.height; ++y) {
            for (int x = 0; x < small.width; ++x) {
                const double centre = (left + x + 0.5) * shrink - 0.5 + ((top + y + 0.5) * shrink - 0.5) / 2;
                ASSERT_NEAR(small.row(y)[4 * x], centre, 3.0) << shrink << ": " << x << "," << y;
            }
        }
    }
}

TEST(Decode, ADecoderServesOnAfterABadImage) {
    Decoder decoder;
    Image image;
    for (const char* name : {"truncated_half.jpg", "ref_rgb.jpg", "bad_crc.png", "ref_rgb.png", "zero_byte.jpg", "gray.jpg"}) {
        const Record record = record_of(case_file(std::string("img/") + name));
        const bool bad = std::string_view(name).find("rgb") == std::string_view::npos && std::string_view(name) != "gray.jpg";
        const std::string error = data_error_of([&] { decoder.decode_all(decoder.open(record), image); });
        EXPECT_EQ(error.empty(), !bad) << name;
    }
}

}  // namespace
}  // namespace lockstep
