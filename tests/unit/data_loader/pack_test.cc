// Packed shards: what is in them, that they read back as the original, and that an interrupted run goes on to the same bytes.
#include "data_loader/pack.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "core/hash.h"
#include "data_loader/joined_source.h"
#include "data_loader/jpeg_encoder.h"
#include "data_loader/repack.h"
#include "data_loader/shapes.h"
#include "data_loader/shard_index.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class PackTest : public ScratchTest {
protected:
    PackOptions options(const std::string& out) const { return {.out = folder_ / out}; }
    std::unique_ptr<Source> original() const { return open_source({.path = case_file("sets/set101/train").string()}); }
    std::unique_ptr<Source> packed(const std::string& out) const { return open_source({.path = (folder_ / out).string()}); }
    // All files of a folder by name.
    std::map<std::string, std::string> files(const std::string& out) const {
        std::map<std::string, std::string> all;
        for (const auto& entry : fs::directory_iterator(folder_ / out)) all[entry.path().filename()] = read_file(entry.path());
        return all;
    }
    static std::pair<std::string, int32_t> sample(const Source& source, int64_t index) {
        Record record;
        source.read(index, record);
        return {text_of(record.bytes), record.label};
    }
    // 3 pictures of `width` x 40 in one class.
    std::unique_ptr<Source> drawn(const std::string& name, int width, const JpegEncoding& encoding) const {
        for (int index = 0; index < 3; ++index) {
            Image image;
            draw_shape(1, "train", index, ShapeSize::medium, image);
            std::vector<uint8_t> file;
            encode_jpeg(image.view().crop(0, 0, width, 40), encoding, file);
            write(name + "/a/" + std::to_string(index) + ".jpg", {reinterpret_cast<const char*>(file.data()), file.size()});
        }
        return open_source({.path = (folder_ / name).string()});
    }
};

TEST_F(PackTest, FilesAreCopiedByteForByteAndReadBackAsTheFolder) {
    const auto source = original();
    const PackResult result = pack(*source, options("out"));
    EXPECT_EQ(result.copied, source->size());
    EXPECT_EQ(result.encoded, 0);
    const auto back = packed("out");
    ASSERT_EQ(back->size(), source->size());
    EXPECT_EQ(back->class_names(), source->class_names());
    EXPECT_THAT(back->description(), HasSubstr("1 with a side index"));
    for (int64_t index = 0; index < source->size(); ++index) {
        EXPECT_EQ(sample(*back, index), sample(*source, index));
        EXPECT_EQ(back->declared(index)->hash, hash_text(sample(*source, index).first));
    }
}

TEST_F(PackTest, AClassNameWithALineBreakStaysOneClass) {
    for (const char* name : {"a", "new\nline", "z"}) {
        write(std::string("set/") + name + "/0.jpg", sample(*original(), 0).first);
    }
    const auto source = open_source({.path = (folder_ / "set").string()});
    pack(*source, options("out"));
    EXPECT_EQ(packed("out")->class_names(), source->class_names());
    EXPECT_EQ(packed("out")->class_total(), 3);
}

TEST_F(PackTest, TheSameSetIsReadWithAndWithoutTheSideIndex) {
    PackOptions small = options("out");
    small.shard_bytes = 40'000;
    const PackResult result = pack(*original(), small);
    ASSERT_GT(result.shards, 3);
    ASSERT_LT(result.shards, 10);
    const auto indexed = packed("out");
    EXPECT_EQ(open_source({.path = shard_pattern(small, result.shards)})->fingerprint(), indexed->fingerprint());
    for (int64_t shard = 0; shard < result.shards; ++shard) {
        const fs::path path = folder_ / "out" / ("shard-00000" + std::to_string(shard) + ".tar");
        EXPECT_LE(fs::file_size(path), small.shard_bytes + 1024);
        fs::remove(shard_index_path(path));
    }
    const auto scanned = packed("out");
    EXPECT_FALSE(scanned->declared(0));
    EXPECT_EQ(scanned->fingerprint(), indexed->fingerprint());
    for (int64_t index = 0; index < indexed->size(); ++index) EXPECT_EQ(sample(*scanned, index), sample(*indexed, index));
}

TEST_F(PackTest, TheBytesAreTheSameForAnyThreadCountAndAfterAnInterruption) {
    PackOptions first = options("first");
    first.shard_bytes = 40'000;
    first.shuffle_seed = 5;
    pack(*original(), first);
    const auto wanted = files("first");
    PackOptions second = first;
    second.out = folder_ / "second";
    second.threads = 4;
    pack(*original(), second);
    EXPECT_EQ(files("second"), wanted);
    // As an interrupted run leaves it: the last shards are not there, one is half written.
    for (const auto& [name, content] : wanted) {
        if (name >= "shard-000002" && name < "shard.") fs::remove(folder_ / "second" / name);
    }
    write("second/shard-000002.tar.tmp", "half");
    EXPECT_THROW(pack(*original(), second), ConfigError);
    second.resume = true;
    const PackResult result = pack(*original(), second);
    EXPECT_EQ(files("second"), wanted);
    EXPECT_EQ(result.images, 101);
    EXPECT_GT(result.resumed, 0);
    EXPECT_EQ(pack(*original(), second).resumed, 101) << "nothing is left to do";
}

TEST_F(PackTest, OnlyTheSameOptionsGoOnWithAnEarlierRun) {
    const PackOptions first = options("out");
    pack(*original(), first);
    const auto error = [&](auto change) -> std::string {
        PackOptions other = first;
        other.resume = true;
        change(other);
        try {
            pack(*original(), other);
            return "";
        } catch (const ConfigError& refused) {
            return refused.what();
        }
    };
    EXPECT_EQ(error([](PackOptions& other) { other.threads = 3; }), "") << "changes no byte";
    EXPECT_THAT(error([](PackOptions& other) { other.shard_bytes = 50'000; }), HasSubstr("this run says \"shard_bytes 50000\""));
    EXPECT_THAT(error([](PackOptions& other) { other.max_side = 99; }), HasSubstr("this run says \"max_side 99\""));
    EXPECT_THAT(error([](PackOptions& other) { other.quality = 80; }), HasSubstr("packed with \"quality 90\""));
    EXPECT_THAT(error([](PackOptions& other) { other.subsampling = Subsampling::half; }), HasSubstr("subsampling"));
    EXPECT_THAT(error([](PackOptions& other) { other.shuffle_seed = 1; }),
                testing::AllOf(HasSubstr("packed with \"shuffle none\""), HasSubstr("this run says \"shuffle 1\"")));
    EXPECT_THAT(error([](PackOptions& other) { other.skip_bad = true; }), HasSubstr("skip_bad"));
}

TEST_F(PackTest, AShuffledSetHoldsEveryPictureOnce) {
    PackOptions shuffled = options("out");
    shuffled.shuffle_seed = 3;
    const auto source = original();
    pack(*source, shuffled);
    const auto back = packed("out");
    std::multiset<std::pair<std::string, int32_t>> before, after;
    int same_place = 0;
    for (int64_t index = 0; index < source->size(); ++index) {
        before.insert(sample(*source, index));
        after.insert(sample(*back, index));
        same_place += sample(*source, index) == sample(*back, index) ? 1 : 0;
    }
    EXPECT_EQ(before, after);
    EXPECT_LT(same_place, 30);
}

TEST_F(PackTest, LongSidesAreReducedAndShortOnesCopied) {
    EXPECT_EQ(limited_to({500, 375}, 256), (ImageSize{256, 192}));
    EXPECT_EQ(limited_to({375, 500}, 0), (ImageSize{375, 500}));
    EXPECT_EQ(limited_to({4000, 3}, 256), (ImageSize{256, 1}));
    PackOptions reduced = options("out");
    reduced.max_side = 64;
    const auto wide = drawn("wide", 100, {}), narrow = drawn("narrow", 60, {});
    EXPECT_EQ(pack(*narrow, reduced).copied, 3);
    reduced.out = folder_ / "wide_out";
    EXPECT_EQ(pack(*wide, reduced).encoded, 3);
    const auto back = packed("wide_out");
    Decoder decoder;
    Record record;
    back->read(2, record);
    EXPECT_EQ(decoder.open(record), (ImageSize{64, 26}));
    EXPECT_EQ(decoder.chroma(), Chroma::half);
    EXPECT_EQ(back->declared(2)->width, 64);
}

TEST_F(PackTest, ColourIsEncodedAnewOnlyWhereItDiffers) {
    PackOptions half = options("out");
    half.subsampling = Subsampling::half;
    EXPECT_EQ(pack(*drawn("half", 60, {.half_chroma = true}), half).copied, 3);
    half.out = folder_ / "out2";
    EXPECT_EQ(pack(*drawn("full", 60, {.half_chroma = false}), half).encoded, 3);
    Decoder decoder;
    Record record;
    const auto back = packed("out2");
    back->read(0, record);
    decoder.open(record);
    EXPECT_EQ(decoder.chroma(), Chroma::half);
}

TEST_F(PackTest, RawPixelsBecomePngWithoutALoss) {
    const auto source = open_source({.kind = "synthetic", .num_classes = 3, .synthetic_size = 5, .image_size = 9, .seed = 3});
    pack(*source, options("out"));
    const auto back = packed("out");
    Decoder decoder;
    Image a, b;
    Record before, after;
    for (int64_t index = 0; index < 5; ++index) {
        source->read(index, before);
        back->read(index, after);
        EXPECT_EQ(before.label, after.label);
        ASSERT_EQ(decoder.open(before), decoder.open(after));
        decoder.open(before);
        const ImageView left = decoder.decode_all({9, 9}, a);
        decoder.open(after);
        const ImageView right = decoder.decode_all({9, 9}, b);
        for (int y = 0; y < 9; ++y) {
            for (int x = 0; x < 9; ++x) EXPECT_EQ(std::memcmp(left.row(y) + 4 * x, right.row(y) + 4 * x, 3), 0);
        }
    }
}

TEST_F(PackTest, ABadPictureIsAnErrorOrLeftOutAndListed) {
    write("set/a/0.jpg", read_file(case_file("img/ref_rgb.jpg")));
    write("set/a/1.jpg", read_file(case_file("img/html_named.jpg")));
    write("set/b/2.jpg", read_file(case_file("img/ref_rgb.jpg")));
    const auto source = open_source({.path = (folder_ / "set").string()});
    EXPECT_THAT(data_error_of([&] { pack(*source, options("out")); }), HasSubstr("a/1.jpg"));
    PackOptions skipping = options("skipped");
    skipping.skip_bad = true;
    const PackResult result = pack(*source, skipping);
    EXPECT_EQ(result.images, 2);
    ASSERT_EQ(result.bad.size(), 1U);
    EXPECT_THAT(result.bad[0], HasSubstr("HTML"));
    Record record;
    packed("skipped")->read(1, record);
    EXPECT_THAT(record.key, testing::EndsWith("00000002.jpg"));
    EXPECT_EQ(record.label, 1);
}

TEST_F(PackTest, SeveralSourcesFollowOneAnother) {
    std::vector<std::unique_ptr<Source>> two;
    two.push_back(drawn("one", 60, {}));
    two.push_back(drawn("two", 50, {}));
    const auto joined = join_sources(std::move(two));
    pack(*joined, options("out"));
    ASSERT_EQ(packed("out")->size(), 6);
    EXPECT_EQ(sample(*packed("out"), 5), sample(*joined, 5));
    EXPECT_NE(sample(*joined, 2), sample(*joined, 5));
}

TEST_F(PackTest, ValidationShardsAreNumberedAsTheClassesOfTraining) {
    write("val/dog/0.jpg", read_file(case_file("img/ref_rgb.jpg")));
    pack(*open_source({.path = (folder_ / "val").string()}), options("out"));
    const SourceOptions as_training{.path = (folder_ / "out").string(), .class_names = {"cat", "dog"}};
    EXPECT_EQ(open_source(as_training)->label(0), 1);
    EXPECT_THAT(data_error_of([&] { open_source({.path = (folder_ / "out").string(), .class_names = {"cat"}}); }),
                HasSubstr("dog"));
}

TEST_F(PackTest, AnotherProgramReadsTheShards) {
    pack(*drawn("set", 60, {}), options("out"));
    const std::string tar = (folder_ / "out/shard-000000.tar").string();
    EXPECT_EQ(
        std::system(("tar -tf " + tar + " > " + (folder_ / "list").string() + " 2> " + (folder_ / "errors").string()).c_str()), 0);
    EXPECT_EQ(read_file(folder_ / "list"), "00000000.jpg\n00000000.cls\n00000001.jpg\n00000001.cls\n00000002.jpg\n00000002.cls\n");
    EXPECT_EQ(read_file(folder_ / "errors"), "");
}

class ShardIndexTest : public PackTest {
protected:
    void SetUp() override {
        PackTest::SetUp();
        pack(*drawn("set", 60, {}), options("out"));
        shard_ = folder_ / "out/shard-000000.tar";
        index_ = shard_index_path(shard_);
    }
    bool is_used() const { return packed("out")->declared(0).has_value(); }
    void replace(const fs::path& path, const std::string& content) const {
        const auto time = fs::last_write_time(path);
        write_file_atomically(path, content);
        fs::last_write_time(path, time);
    }
    fs::path shard_, index_;
};

TEST_F(ShardIndexTest, EqualsTheOneMadeFromTheShard) {
    const MappedFile shard(shard_);
    ShardIndex scanned = scan_shard(shard.bytes(), shard_);
    read_contents(shard.bytes(), shard_, scanned);
    EXPECT_EQ(encode(scanned), read_file(index_));
    EXPECT_TRUE(is_used());
}

TEST_F(ShardIndexTest, IsNotUsedWhenItBelongsToAnotherShard) {
    std::string tar = read_file(shard_);
    replace(shard_, tar + std::string(512, '\0'));
    EXPECT_FALSE(is_used()) << "another length";
    EXPECT_EQ(packed("out")->size(), 3) << "the shard is read instead";
    replace(shard_, tar);
    EXPECT_TRUE(is_used());
    fs::last_write_time(index_, fs::last_write_time(shard_) - std::chrono::seconds(1));
    EXPECT_FALSE(is_used()) << "older than its shard";
    fs::last_write_time(index_, fs::last_write_time(shard_));
    ShardIndex other = parse_shard_index(bytes_of(read_file(index_)), index_);
    other.entries()[1].offset += 512;
    replace(index_, encode(other));
    EXPECT_FALSE(is_used()) << "other offsets";
}

TEST_F(ShardIndexTest, EveryFlippedByteAndEveryCutIsNoticed) {
    const std::string whole = read_file(index_);
    const auto error = [&](const std::string& bytes) {
        return data_error_of([&] { parse_shard_index(bytes_of(bytes), "x.idx"); });
    };
    EXPECT_EQ(error(whole), "");
    for (size_t place = 0; place < whole.size(); ++place) {
        std::string flipped = whole;
        flipped[place] = static_cast<char>(flipped[place] ^ 4);
        EXPECT_THAT(error(flipped), HasSubstr("x.idx")) << place;
        EXPECT_THAT(error(whole.substr(0, place)), HasSubstr("x.idx")) << place;
    }
}

TEST_F(ShardIndexTest, ImpossibleEntriesAreRefusedWhateverTheChecksum) {
    const ShardIndex good = parse_shard_index(bytes_of(read_file(index_)), index_);
    const auto error = [&](auto change) {
        ShardIndex bad = good;
        change(bad.entries()[1]);
        return data_error_of([&] { parse_shard_index(bytes_of(encode(bad)), "x.idx"); });
    };
    EXPECT_EQ(error([](ShardEntry&) {}), "");
    EXPECT_THAT(error([](ShardEntry& entry) { entry.offset = 1U << 30; }), HasSubstr("entry 1"));
    EXPECT_THAT(error([](ShardEntry& entry) { entry.bytes = ~uint64_t{0}; }), HasSubstr("entry 1"));
    EXPECT_THAT(error([](ShardEntry& entry) { entry.label = -1; }), HasSubstr("entry 1"));
    EXPECT_THAT(error([](ShardEntry& entry) { entry.name_end = 1000; }), HasSubstr("entry 1"));
}

TEST_F(ShardIndexTest, ASetOpensWithoutReadingItsShards) {
    // Only the headers that the check looks at exist; anything else of the shard would be an error.
    std::string tar = read_file(shard_);
    ShardIndex index = parse_shard_index(bytes_of(read_file(index_)), index_);
    for (const ShardEntry& entry : index.entries()) {
        std::fill_n(tar.begin() + static_cast<ptrdiff_t>(entry.offset), entry.bytes + 512, 'x');
    }
    replace(shard_, tar);
    EXPECT_TRUE(is_used());
    fs::remove(index_);
    EXPECT_NE(data_error_of([&] { packed("out"); }), "");
}

}  // namespace
}  // namespace lockstep
