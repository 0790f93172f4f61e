// LMDB with Caffe's Datums, and FFCV's .beton: what they hold, and what damaged ones are told.
#include <gmock/gmock.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>

#include <zlib.h>

#include "core/hash.h"
#include "core/random.h"
#include "data_loader/beton.h"
#include "data_loader/datum.h"
#include "data_loader/lmdb_file.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/format_writers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class DatabasesTest : public ScratchTest {
protected:
    SourceOptions lmdb(const std::vector<std::string>& datums) const {
        return {.kind = "lmdb", .path = write("data.mdb", lmdb_file(datums)).string()};
    }
    static std::string error_of(const SourceOptions& options) {
        return data_error_of([&] { open_source(options); });
    }
    static Record read(const Source& source, int64_t index) {
        Record record;
        source.read(index, record);
        return record;
    }
};

TEST_F(DatabasesTest, RawDatumsAreBlueFirstUnlessRedIsSaid) {
    const std::string pixels = "BBBBBBGGGGGGRRRRRR";  // 3 x 2 pixels
    SourceOptions options = lmdb({raw_datum(3, 3, 2, pixels, 4), raw_datum(1, 2, 2, "grey", 1)});
    Record record = read(*open_source(options), 0);
    EXPECT_EQ(text_of(record.bytes), "RRRRRRGGGGGGBBBBBB");
    EXPECT_EQ(record.encoding, Encoding::raw);
    EXPECT_EQ((std::vector<int>{record.channels, record.height, record.width, record.label}), (std::vector<int>{3, 3, 2, 4}));
    options.raw_colour = "rgb";
    EXPECT_EQ(text_of(read(*open_source(options), 0).bytes), pixels);
    EXPECT_EQ(text_of(read(*open_source(options), 1).bytes), "grey");
    EXPECT_THAT(open_source(options)->description(), HasSubstr("2 raw as RGB"));
    EXPECT_THROW(open_source({.path = case_file("sets/set101/train").string(), .raw_colour = "rgb"}), ConfigError);
}

TEST_F(DatabasesTest, AnLmdbKeepsTheOrderOfItsKeysOverManyPagesAndLargeValues) {
    std::vector<std::string> datums;
    for (size_t index = 0; index < 300; ++index) {
        datums.push_back(encoded_datum(std::string(1 + index * 37 % 9000, static_cast<char>('a' + index % 26)), index));
    }
    const auto source = open_source(lmdb(datums));
    ASSERT_EQ(source->size(), 300);
    for (int64_t index = 0; index < 300; ++index) {
        EXPECT_EQ(source->label(index), index);
        EXPECT_EQ(read(*source, index).bytes.size(), static_cast<size_t>(1 + index * 37 % 9000));
    }
    EXPECT_EQ(source->class_total(), 300);
}

// Written by other programs: the script beside the golden files says how.
TEST_F(DatabasesTest, AnLmdbOfThePublicLibraryReadsAsTheFolderItWasMadeFrom) {
    const auto folder = open_source({.path = case_file("sets/set101/train").string()});
    const auto source = open_source({.path = golden_file("datum_lmdb").string()});
    EXPECT_THAT(source->description(), HasSubstr("(20 encoded, 20 raw as BGR)"));
    ASSERT_EQ(source->size(), 40);
    Decoder decoder;
    Image a, b;
    for (int64_t index = 0; index < source->size(); ++index) {
        SCOPED_TRACE(index);
        const Record ours = read(*source, index), original = read(*folder, index * 2);
        EXPECT_EQ(ours.label, original.label);
        const bool raw = index % 2 == 1;
        EXPECT_EQ(ours.encoding, raw ? Encoding::raw : Encoding::detect);
        EXPECT_EQ(text_of(ours.bytes) == text_of(original.bytes), !raw);
        const ImageSize size = decoder.open(original);
        const ImageView right = decoder.decode_all(size, b);
        ASSERT_EQ(decoder.open(ours), size);
        const ImageView left = decoder.decode_all(size, a);
        for (int y = 0; y < size.height; ++y) {
            for (int x = 0; x < size.width; ++x) EXPECT_EQ(std::memcmp(left.row(y) + 4 * x, right.row(y) + 4 * x, 3), 0);
        }
    }
}

TEST_F(DatabasesTest, ValuesThatAreNoDatumsAreNamed) {
    const std::string good = encoded_datum("picture", 0);
    EXPECT_THAT(error_of(lmdb({good, "no datum"})), AllOf(HasSubstr("data.mdb"), HasSubstr("record 1"), HasSubstr("offset")));
    EXPECT_EQ(error_of(lmdb({bytes_field(4, "picture") + number_field(5, 1) + number_field(7, 1)})), "");
    EXPECT_NE(error_of(lmdb({bytes_field(4, "no label") + number_field(7, 1)})), "");
    EXPECT_NE(error_of(lmdb({raw_datum(3, 2, 2, "too short", 0)})), "");
    EXPECT_NE(error_of(lmdb({raw_datum(2, 1, 1, "xx", 0)})), "") << "two channels";
    EXPECT_NE(error_of(lmdb({raw_datum(uint64_t{1} << 63, 2, 1, "", 0)})), "") << "sizes that wrap around";
    EXPECT_NE(error_of(lmdb({bytes_field(6, "floats") + number_field(5, 1)})), "");
    EXPECT_THAT(error_of(lmdb({encoded_datum("x", uint64_t{1} << 32)})), HasSubstr("label 4294967296"));
    EXPECT_THAT(error_of(lmdb({encoded_datum("x", ~uint64_t{0})})), HasSubstr("label -1"));
    EXPECT_THAT(error_of(lmdb({})), HasSubstr("empty"));
}

TEST_F(DatabasesTest, DamagedLmdbFilesAreErrorsWithPageAndOffset) {
    const std::string whole = lmdb_file({encoded_datum(std::string(1000, 'a'), 0), encoded_datum(std::string(5000, 'b'), 1),
                                         encoded_datum(std::string(1000, 'c'), 2), encoded_datum(std::string(1000, 'd'), 3),
                                         encoded_datum(std::string(1000, 'e'), 4)});
    const size_t page = LmdbWriter::kPage, root = whole.size() - page;  // pages: 2 overflow, leaf, leaf, branch
    ASSERT_EQ(whole.size(), 7 * page);
    const auto error = [&](const std::function<void(std::string&)>& change) {
        std::string bytes = whole;
        change(bytes);
        return data_error_of([&] { read_lmdb_values(bytes_of(bytes), "x.mdb"); });
    };
    EXPECT_EQ(error([](std::string&) {}), "");
    const auto put_at = [&](size_t offset, auto number) { return error([&](std::string& bytes) { put(bytes, offset, number); }); };
    EXPECT_THAT(put_at(16, uint32_t{7}), HasSubstr("no LMDB file"));
    EXPECT_THAT(put_at(20, uint32_t{2}), HasSubstr("version 2"));
    EXPECT_THAT(put_at(40, uint32_t{4097}), HasSubstr("pages of 4097 bytes"));
    EXPECT_THAT(put_at(page + 16, uint32_t{7}), HasSubstr("second description"));
    EXPECT_THAT(put_at(page + 120, ~uint64_t{0}), HasSubstr("do not fit"));
    EXPECT_THAT(put_at(page + 120, uint64_t{4}), AllOf(HasSubstr("more values than the 4"), HasSubstr("page 5")));
    EXPECT_THAT(put_at(page + 120, uint64_t{6}), HasSubstr("5 values found, the file says 6"));
    EXPECT_THAT(put_at(page + 128, uint64_t{7}), HasSubstr("it names page 7 of 7"));
    EXPECT_THAT(put_at(root + 10, uint16_t{0x40}), AllOf(HasSubstr("page 6"), HasSubstr("0x40")));
    EXPECT_THAT(put_at(root + 12, uint16_t{16}), HasSubstr("holds no node"));
    EXPECT_THAT(put_at(root + 16, uint16_t{4090}), HasSubstr("a node at 4090"));
    const size_t child = root + page - 8;  // the first node of the branch
    EXPECT_THAT(put_at(child, uint32_t{6}), AllOf(HasSubstr("page 6"), HasSubstr("two places")));
    EXPECT_THAT(put_at(child, uint32_t{5}), AllOf(HasSubstr("page 5"), HasSubstr("two places")));
    const auto first = [&](size_t leaf) { return leaf + *reinterpret_cast<const uint16_t*>(whole.data() + leaf + 16); };
    const size_t node = first(4 * page);
    EXPECT_THAT(put_at(node, uint32_t{5000}), HasSubstr("5000 bytes ends outside"));
    EXPECT_THAT(put_at(node + 4, uint16_t{2}), HasSubstr("named databases"));
    EXPECT_THAT(put_at(node + 4, uint16_t{1}), HasSubstr("it names page"));
    EXPECT_THAT(put_at(2 * page + 10, uint16_t{2}), HasSubstr("a large value should begin here"));
    for (const size_t size : {size_t{0}, size_t{100}, page, 3 * page, whole.size() - 1}) {
        EXPECT_NE(error([&](std::string& bytes) { bytes.resize(size); }), "") << size;
    }
}

TEST_F(DatabasesTest, NoSampleOfAnLmdbComesTwiceThoughTheCountFits) {
    // Three large values in a leaf; the second is said to lie where the first does.
    std::vector<std::string> datums;
    for (uint64_t index = 0; index < 3; ++index) datums.push_back(raw_datum(1, 1, 3000, std::string(3000, 'x'), index));
    std::string bytes = lmdb_file(datums);
    EXPECT_EQ(read_lmdb_values(bytes_of(bytes), "x.mdb").size(), 3U);
    const size_t leaf = bytes.size() - LmdbWriter::kPage;
    const auto node = [&](size_t place) { return leaf + *reinterpret_cast<const uint16_t*>(bytes.data() + leaf + 16 + 2 * place); };
    const size_t where = 8 + 8;  // after the head of the node and the key
    bytes.replace(node(1) + where, 8, bytes.substr(node(0) + where, 8));
    EXPECT_THAT(data_error_of([&] { read_lmdb_values(bytes_of(bytes), "x.mdb"); }), HasSubstr("two places"));
}

TEST_F(DatabasesTest, AnLmdbDeeperThanAnyRealOneIsAnError) {
    // A chain of branches, each with the one before as its only child.
    std::string bytes = lmdb_file({encoded_datum("x", 0)});
    const size_t leaf = bytes.size() / LmdbWriter::kPage - 1;
    const auto with_branches = [&](size_t count) {
        std::string longer = bytes;
        for (size_t level = 0; level < count; ++level) {
            std::string page(LmdbWriter::kPage, '\0');
            put(page, 0, uint64_t{leaf + 1 + level});
            put(page, 10, uint16_t{1});
            put(page, 12, uint16_t{18});
            put(page, 14, uint16_t{4088});
            put(page, 16, uint16_t{4088});
            put(page, 4088, static_cast<uint32_t>(leaf + level));
            longer += page;
        }
        put(longer, LmdbWriter::kPage + 128, uint64_t{leaf + count});
        return data_error_of([&] { read_lmdb_values(bytes_of(longer), "x.mdb"); });
    };
    EXPECT_EQ(with_branches(31), "");
    EXPECT_THAT(with_branches(32), HasSubstr("deeper than 32 pages"));
}

TEST_F(DatabasesTest, AnyDamageToAnLmdbIsAnErrorOrAnAnswer) {
    std::vector<std::string> datums;
    for (size_t index = 0; index < 30; ++index) datums.push_back(encoded_datum(std::string(10 + 90 * index, 'x'), index));
    const std::string whole = lmdb_file(datums);
    RandomStream random(3, "damage");
    for (int round = 0; round < 5000; ++round) {
        std::string bytes = whole;
        for (int change = 0; change < 3; ++change) {
            // Mostly where the structure is: heads of pages, and anywhere.
            const size_t page = random.below(bytes.size() / LmdbWriter::kPage) * LmdbWriter::kPage;
            const size_t place = change == 2 ? random.below(bytes.size()) : page + random.below(80);
            bytes[place] = static_cast<char>(random.next_u32());
        }
        data_error_of([&] {
            for (const auto value : read_lmdb_values(bytes_of(bytes), "x.mdb")) {
                EXPECT_LE(value.data() + value.size(), bytes_of(bytes).data() + bytes.size());
            }
        });
    }
}

std::string unpacked(const fs::path& path) {
    std::string content(8 << 20, '\0');
    const gzFile file = gzopen(path.c_str(), "rb");
    const int bytes = gzread(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    content.resize(static_cast<size_t>(std::max(bytes, 0)));
    return content;
}

// Written by FFCV itself, with what its own decoder reads from them: the script beside the golden files says how.
TEST_F(DatabasesTest, BetonsOfFfcvReadAsFfcvReadsThem) {
    std::ifstream lines(golden_file("ffcv.txt"));
    std::map<std::string, std::unique_ptr<Source>> sources;
    for (const std::string mode : {"jpg", "raw"}) {
        const fs::path path = write(mode + ".beton", unpacked(golden_file("ffcv_" + mode + ".beton.gz")));
        sources[mode] = open_source({.path = path.string()});
        ASSERT_EQ(sources[mode]->size(), 21);
    }
    Decoder decoder;
    Image image;
    std::string mode;
    int compared = 0;
    for (int64_t index = 0, label = 0; lines >> mode >> index >> label; ++compared) {
        SCOPED_TRACE(mode + " " + std::to_string(index));
        const Record record = read(*sources.at(mode), index);
        EXPECT_EQ(record.label, label);
        const ImageView pixels = decoder.decode_all(decoder.open(record), image);
        ASSERT_EQ(pixels.width, 32);
        ASSERT_EQ(pixels.height, 32);
        // FFCV decodes JPEG with the library's fast inverse transform: values differ by a few.
        const int64_t tolerance = mode == "raw" ? 0 : 3;
        for (int channel = 0; channel < 3; ++channel) {
            int64_t wanted = 0, sum = 0;
            lines >> wanted;
            for (int y = 0; y < 32; ++y) {
                for (int x = 0; x < 32; ++x) sum += pixels.row(y)[4 * x + channel];
            }
            EXPECT_LE(std::abs(sum - wanted), tolerance * 32 * 32) << channel;
        }
        for (int channel = 0; channel < 3; ++channel) {
            int64_t wanted = 0;
            lines >> wanted;
            EXPECT_LE(std::abs(pixels.row(5)[4 * 3 + channel] - wanted), tolerance) << channel;
        }
    }
    EXPECT_EQ(compared, 42);
}

TEST_F(DatabasesTest, RawPicturesOfABetonAreTheSamePixels) {
    const std::string rows = "RGBrgb123XYZxyz789";  // 2 rows of 3 pixels
    const auto source =
        open_source({.path = write("set.beton", beton_file({{rows, 3, 2, 7, true}, {"jpeg", 9, 8, 5, false}})).string()});
    const Record record = read(*source, 0);
    EXPECT_EQ(text_of(record.bytes), "Rr1Xx7Gg2Yy8Bb3Zz9");
    EXPECT_EQ((std::vector<int>{record.channels, record.height, record.width, record.label}), (std::vector<int>{3, 2, 3, 7}));
    EXPECT_EQ(text_of(read(*source, 1).bytes), "jpeg");
    EXPECT_EQ(source->label(1), 5);
    EXPECT_THAT(source->description(), HasSubstr("2 images (1 raw), 8 classes"));
}

TEST_F(DatabasesTest, DamagedBetonFilesAreErrorsWithRecordAndOffset) {
    const std::string whole = beton_file({{"first", 3, 2, 0, false}, {"RGBRGB", 2, 1, 1, true}});
    const size_t rows = 24 + 3 * 1041, table = whole.size() - 48;
    const auto error = [&](const std::function<void(std::string&)>& change) {
        std::string bytes = whole;
        change(bytes);
        return data_error_of([&] { read_beton(bytes_of(bytes), "x.beton"); });
    };
    EXPECT_EQ(error([](std::string&) {}), "");
    const auto put_at = [&](size_t offset, auto number) { return error([&](std::string& bytes) { put(bytes, offset, number); }); };
    EXPECT_THAT(put_at(0, uint16_t{1}), HasSubstr("version 1"));
    EXPECT_THAT(put_at(2, uint16_t{0}), HasSubstr("0 fields"));
    EXPECT_THAT(put_at(2, uint16_t{60'000}), HasSubstr("60000 fields"));
    EXPECT_THAT(put_at(8, ~uint64_t{0}), HasSubstr("do not fit"));
    EXPECT_THAT(put_at(16, ~uint64_t{0}), HasSubstr("allocation table lies at"));
    EXPECT_THAT(put_at(16, uint64_t{24}), HasSubstr("allocation table lies at"));
    EXPECT_THAT(put_at(16, uint64_t{table + 1}), HasSubstr("47 bytes are no allocation table"));
    EXPECT_THAT(put_at(24, uint8_t{9}), HasSubstr("unknown type 9"));
    EXPECT_THAT(put_at(24, uint8_t{255}), HasSubstr("of a kind of its own"));
    EXPECT_THAT(put_at(24, uint8_t{1}), HasSubstr("cannot tell which field is the picture"));
    EXPECT_THAT(put_at(rows, uint8_t{2}), AllOf(HasSubstr("record 0"), HasSubstr("mode 2")));
    EXPECT_THAT(put_at(rows + 32 + 5, uint64_t{99}), AllOf(HasSubstr("record 1"), HasSubstr("nothing at 99")));
    EXPECT_THAT(put_at(rows + 32 + 1, uint16_t{3}), HasSubstr("3x1 pixels in 6 bytes"));
    EXPECT_THAT(put_at(table + 16, ~uint64_t{0}), HasSubstr("the table names"));
    EXPECT_THAT(put_at(table + 8, uint64_t{5}), HasSubstr("the table names 6 bytes at 5"));
    for (const size_t size : {size_t{0}, size_t{23}, size_t{2000}, rows + 10, whole.size() - 1}) {
        EXPECT_NE(error([&](std::string& bytes) { bytes.resize(size); }), "") << size;
    }
}

}  // namespace
}  // namespace lockstep
