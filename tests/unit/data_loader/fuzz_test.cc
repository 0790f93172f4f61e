// Every reader on thousands of damaged inputs: it may answer or throw a DataError, nothing else (run under the sanitizers too).
#include <functional>

#include "core/random.h"
#include "data_loader/exif.h"
#include "data_loader/idx.h"
#include "data_loader/image_list.h"
#include "data_loader/tar.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

std::string mutated(std::string text, RandomStream& random) {
    const uint64_t changes = 1 + random.below(6);
    for (uint64_t change = 0; change < changes && !text.empty(); ++change) {
        const size_t place = random.below(text.size());
        switch (random.below(5)) {
            case 0:
                text[place] = static_cast<char>(random.next_u32());
                break;
            case 1:
                text[place] = static_cast<char>(text[place] ^ (1 << random.below(8)));
                break;
            case 2:
                text.resize(place);
                break;
            case 3:
                text.insert(place, text.substr(random.below(text.size()), random.below(40)));
                break;
            default:
                text.erase(place, random.below(40));
                break;
        }
    }
    return text;
}

void survive(const std::string& seed_text, int rounds, const std::function<void(const std::string&)>& read) {
    RandomStream random(11, "fuzz");
    int errors = 0;
    for (int round = 0; round < rounds; ++round) errors += data_error_of([&] { read(mutated(seed_text, random)); }).empty() ? 0 : 1;
    EXPECT_GT(errors, 0);
}

void decode(const std::string& bytes, Decoder& decoder) {
    const Record record{.key = "fuzz", .bytes = bytes_of(bytes)};
    Image image;
    const ImageSize size = decoder.open(record);
    if (int64_t{size.width} * size.height > 1 << 22) return;  // keeps the test quick
    const CropBox box{size.width / 4, size.height / 3, size.width - size.width / 4, size.height - size.height / 3};
    decoder.decode({.box = box, .shrink = decoder.kind() == ContentKind::jpeg ? 1 + static_cast<int>(bytes.size() % 2) : 1}, image);
    exif_orientation(record.bytes);
}

TEST(Fuzz, TarIndex) {
    const std::string tar = TarWriter()
                                .add("././@LongLink", std::string(120, 'n'), 'L')
                                .add("a/1.jpg", "abc")
                                .add("p", "15 path=b/2.jpg\n", 'x')
                                .add("q", "d")
                                .finish();
    survive(tar, 4000, [](const std::string& bytes) { read_tar_index(bytes_of(bytes), "fuzz.tar"); });
}

TEST(Fuzz, Idx) {
    survive(std::string("\0\0\x08\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefghijkl", 28), 4000,
            [](const std::string& bytes) { parse_idx(bytes_of(bytes), "fuzz"); });
}

TEST(Fuzz, ImageList) {
    survive("im0.jpg 0\nim1.jpg 1\nsome folder/im2.jpg\t0\n", 4000,
            [](const std::string& text) { parse_image_list(text, "fuzz", 2); });
}

TEST(Fuzz, Images) {
    Decoder decoder;
    for (const char* name : {"ref_rgb.jpg", "cmyk_adobe.jpg", "gray.jpg", "ref_rgb.png", "palette_trns.png", "bilevel_1bit.png"}) {
        survive(read_file(case_file(std::string("img/") + name)), 1000, [&](const std::string& bytes) { decode(bytes, decoder); });
    }
}

}  // namespace
}  // namespace lockstep
