#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <gmock/gmock.h>

#include "data_loader/shapes.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tar.h"
#include "data_loader/verify.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

class SourcesTest : public ScratchTest {
protected:
    std::string jpeg() const { return read_file(case_file("img/ref_rgb.jpg")); }
    static std::string idx(const std::vector<uint32_t>& dimensions, const std::string& values) {
        std::string text("\0\0\x08", 3);
        text += static_cast<char>(dimensions.size());
        for (const uint32_t length : dimensions) {
            for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(length >> shift & 0xFFU);
        }
        return text + values;
    }
    static std::string error_of(const SourceOptions& options) {
        return data_error_of([&] { open_source(options); });
    }
    static void expect_all(const std::string& text, const std::vector<std::string>& parts) {
        for (const std::string& part : parts)
            EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" not in: " << text;
    }
};

TEST_F(SourcesTest, ClassFoldersIgnoreHiddenAndStrayFilesAndCountThem) {
    const auto source = open_source({.path = case_file("sets/folders/train").string()});
    EXPECT_EQ(source->size(), 10);
    EXPECT_EQ(source->class_names(), (std::vector<std::string>{"a_red", "b_green", "c_blue", "d_yellow"}));
    expect_all(source->description(), {"10 images", "4 classes", "4 other files ignored"});
    Record record;
    source->read(2, record);
    EXPECT_TRUE(record.key.ends_with("a_red/s010.JPEG")) << record.key;
    EXPECT_EQ(record.label, 0);
    EXPECT_TRUE(verify_images(*source, {.threads = 2, .find_duplicates = false}).findings.empty());
}

TEST_F(SourcesTest, ValidationUsesTheClassMapOfTraining) {
    const auto train = open_source({.path = case_file("sets/folders/train").string()});
    const auto val = open_source({.path = case_file("sets/folders/val").string(), .class_names = train->class_names()});
    EXPECT_EQ(val->class_total(), 4);
    EXPECT_EQ(count_labels(*val), (std::map<int32_t, int64_t>{{0, 2}, {2, 2}, {3, 2}}));
}

TEST_F(SourcesTest, ClassNamesThatAreNoTextAreSpelledOut) {
    write("set/c\xe9t/0.jpg", jpeg());
    write("set/new\nline/0.jpg", jpeg());
    const auto train = open_source({.path = (folder_ / "set").string()});
    EXPECT_EQ(train->class_names(), (std::vector<std::string>{"c\\xE9t", "new\\x0Aline"}));
    Record record;
    train->read(0, record);
    EXPECT_EQ(record.bytes.size(), jpeg().size());
    const auto again = open_source({.path = (folder_ / "set").string(), .class_names = train->class_names()});
    EXPECT_EQ(again->label(1), 1);
    write("alike/c\xE9t/0.jpg", jpeg());
    write("alike/c\\xE9t/0.jpg", jpeg());
    expect_all(error_of({.path = (folder_ / "alike").string()}), {"alike", "c\\xE9t", "rename one"});
}

TEST_F(SourcesTest, AClassOnlyInValidationIsNamed) {
    write("val/zebra/0.jpg", jpeg());
    expect_all(error_of({.path = (folder_ / "val").string(), .class_names = {"cat", "dog"}}), {"zebra", "val"});
}

TEST_F(SourcesTest, AnEmptyClassFolderKeepsItsNumberAndIsNamed) {
    write("set/a/0.jpg", jpeg());
    make_directories(folder_ / "set" / "b");
    write("set/c/0.PNG", jpeg());
    const auto source = open_source({.path = (folder_ / "set").string()});
    EXPECT_EQ(source->class_total(), 3);
    EXPECT_EQ(source->label(1), 2);
    expect_all(source->description(), {"class \"b\" is empty"});
}

TEST_F(SourcesTest, ALinkInACircleIsADataError) {
    write("circle/cat/a.jpg", jpeg());
    fs::create_directory_symlink("..", folder_ / "circle/cat/up");
    EXPECT_NE(error_of({.path = (folder_ / "circle").string()}).find("Too many levels of symbolic links"), std::string::npos);
}

TEST_F(SourcesTest, WrongClassCountsAndMissingFoldersAreErrors) {
    expect_all(error_of({.path = case_file("sets/folders/train").string(), .num_classes = 3}), {"4 classes", "3"});
    EXPECT_FALSE(error_of({.path = (folder_ / "absent").string()}).empty());
    EXPECT_FALSE(error_of({.kind = "folder", .path = folder_.string()}).empty());
}

TEST_F(SourcesTest, FingerprintSeesNamesSizesAndLabels) {
    write("set/a/0.jpg", "123");
    write("set/b/0.jpg", "123");
    const auto fingerprint = [&] { return open_source({.path = (folder_ / "set").string()})->fingerprint(); };
    const uint64_t before = fingerprint();
    EXPECT_EQ(fingerprint(), before);
    write("set/b/0.jpg", "1234");
    EXPECT_NE(fingerprint(), before);
    write("set/b/0.jpg", "123");
    fs::rename(folder_ / "set/b", folder_ / "set/c");
    EXPECT_NE(fingerprint(), before);
}

TEST_F(SourcesTest, ListsTrainWhenEveryLabelIsAllowed) {
    const auto source = open_source({.path = case_file("lists/ok_2classes.txt").string(), .num_classes = 2});
    EXPECT_EQ(source->size(), 4);
    EXPECT_EQ(source->label(3), 1);
    EXPECT_TRUE(verify_images(*source, {.find_duplicates = false}).findings.empty());
}

TEST_F(SourcesTest, ListErrorsNameLineTextAndRange) {
    const std::pair<const char*, std::vector<std::string>> cases[] = {
        {"label_2_of_2", {"line 4", "\"2\"", "[0, 1]"}},
        {"label_minus1", {"line 4", "\"-1\"", "[0, 1]"}},
        {"label_one_based", {"line 2", "\"2\"", "[0, 1]"}},
        {"label_word", {"line 4", "\"cat\"", "[0, 1]"}},
        {"label_float", {"line 4", "\"1.5\"", "[0, 1]"}},
        {"label_missing", {"line 4", "no label"}},
        {"label_2e32", {"line 4", "\"4294967297\"", "[0, 1]"}},
        {"file_missing", {"line 5", "nope.jpg"}},
        {"empty", {"no line"}},
    };
    for (const auto& [name, parts] : cases) {
        const fs::path path = case_file(std::string("lists/") + name + ".txt");
        const std::string error = error_of({.kind = "list", .path = path.string(), .num_classes = 2});
        expect_all(error, parts);
        expect_all(error, {name});
    }
    // Without a class count there is still no wrap-around.
    EXPECT_FALSE(error_of({.path = case_file("lists/label_2e32.txt").string()}).empty());
}

TEST_F(SourcesTest, ATarReadsAsItsFoldersWould) {
    const std::string tar = TarWriter()
                                .add("./", "", '5')
                                .add("./dog/2.jpg", jpeg())
                                .add("./dog/1.JPG", jpeg())
                                .add("./cat/1.png", "x")
                                .add("./cat/._1.png", "x")
                                .add("./README", "x")
                                .finish();
    const auto source = open_source({.path = write("set.tar", tar).string()});
    EXPECT_EQ(source->class_names(), (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(source->size(), 3);
    expect_all(source->description(), {"2 other members ignored"});
    Record record;
    source->read(1, record);
    EXPECT_TRUE(record.key.ends_with("set.tar:dog/1.JPG")) << record.key;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()), jpeg());
}

TEST_F(SourcesTest, TarsWithLongNamesOfBothKindsAreRead) {
    const std::string name = "cat/" + std::string(150, 'n') + ".jpg";
    const std::string pax_entry = " path=" + name + "\n";
    const std::string pax = std::to_string(pax_entry.size() + 3) + pax_entry;
    for (const std::string& tar : {TarWriter().add("././@LongLink", name + '\0', 'L').add("cat/short", "abc").finish(),
                                   TarWriter().add("pax", pax, 'x').add("cat/short", "abc").finish()}) {
        const TarIndex index = read_tar_index(bytes_of(tar), "x.tar");
        ASSERT_EQ(index.members.size(), 1U);
        EXPECT_EQ(index.members[0].name, name);
        EXPECT_EQ(index.members[0].size, 3U);
    }
}

TEST_F(SourcesTest, DamagedTarsAreErrorsWithRecordAndOffset) {
    const TarWriter writer = TarWriter().add("a/0.jpg", std::string(1000, 'x')).add("b/1.jpg", std::string(1000, 'y'));
    const std::string whole = writer.finish();
    const auto error = [](const std::string& bytes) { return data_error_of([&] { read_tar_index(bytes_of(bytes), "some.tar"); }); };
    EXPECT_EQ(error(whole), "");
    expect_all(error(""), {"some.tar", "empty"});
    expect_all(error(whole.substr(0, 1700)), {"some.tar", "record 1", "offset 1536"});  // inside a header
    expect_all(error(whole.substr(0, 2100)), {"record 1", "offset 1536", "claims 1000 bytes"});
    expect_all(error(writer.unfinished()), {"record 2", "offset 3072", "end mark"});  // no sample is lost in silence
    expect_all(error(whole + TarWriter().add("c/2.jpg", "z").finish()), {"after the end mark"});
    std::string flipped = whole;
    flipped[1536 + 5] = static_cast<char>(flipped[1536 + 5] ^ 1);
    expect_all(error(flipped), {"record 1", "offset 1536", "checksum"});
    std::string huge = whole.substr(1536, 512);
    huge.replace(124, 11, "77777777777");
    TarWriter::set_checksum(huge);
    expect_all(error(whole.substr(0, 1536) + huge + std::string(1024, '\0')), {"record 1", "claims 8589934591 bytes"});
    huge.replace(124, 12, std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
    TarWriter::set_checksum(huge);
    expect_all(error(whole.substr(0, 1536) + huge), {"record 1", "not a number"});
}

TEST_F(SourcesTest, WebDatasetGroupsMembersUpToTheFirstDot) {
    write("s-000.tar", TarWriter().add("x/0001.jpg", "abc").add("x/0001.cls", "1\n").add("x/0001.json", "{}").finish());
    write("s-001.tar",
          TarWriter().add("x/0001.cls", "0").add("x/0001.seg.png", "s").add("x/0001.JPG", "de").add("nosuffix", "").finish());
    const auto source = open_source({.path = (folder_ / "s-{000..001}.tar").string()});
    EXPECT_EQ(source->size(), 2);
    EXPECT_EQ(source->class_total(), 2);
    EXPECT_EQ(source->label(0), 1);
    EXPECT_EQ(source->label(1), 0);
    expect_all(source->description(), {"2 shards", "3 other members ignored"});
    EXPECT_EQ(open_source({.path = folder_.string()})->fingerprint(), source->fingerprint());
}

TEST_F(SourcesTest, WebDatasetSamplesNeverVanish) {
    const auto error = [&](const TarWriter& writer) {
        return error_of({.kind = "webdataset", .path = write("s.tar", writer.finish()).string(), .num_classes = 2});
    };
    expect_all(error(TarWriter().add("1.jpg", "a").add("2.jpg", "b").add("2.cls", "0")), {"1.jpg", "no cls"});
    expect_all(error(TarWriter().add("1.cls", "0")), {"1.cls", "no jpg"});
    expect_all(error(TarWriter().add("1.cls", "2").add("1.jpg", "a")), {"\"2\"", "[0, 1]"});
    expect_all(error(TarWriter().add("1.cls", "0").add("1.jpg", "a").add("1.png", "a")), {"already has"});
    expect_all(error(TarWriter().add("readme.txt", "0")), {"no sample"});
    EXPECT_FALSE(error_of({.path = (folder_ / "none-{0..3}.tar").string()}).empty());
}

TEST_F(SourcesTest, BracesExpandWithLeadingZeros) {
    EXPECT_EQ(expand_braces("a{08..10}{x,y}.tar"),
              (std::vector<std::string>{"a08x.tar", "a08y.tar", "a09x.tar", "a09y.tar", "a10x.tar", "a10y.tar"}));
    EXPECT_THROW(expand_braces("a{0..9"), ConfigError);
    EXPECT_THROW(expand_braces("a{9..0}"), ConfigError);
    EXPECT_THROW(expand_braces("a{0..99999999999}"), ConfigError);
}

TEST_F(SourcesTest, IdxFilesAreReadPlainAndGzipped) {
    const std::string images = idx({2, 2, 3}, "abcdefghijkl"), labels = idx({2}, std::string("\1\7", 2));
    write("train-images-idx3-ubyte", images);
    write("train-labels-idx1-ubyte", labels);
    gzFile gz = gzopen((folder_ / "t10k-images-idx3-ubyte.gz").c_str(), "wb");
    gzwrite(gz, images.data(), static_cast<unsigned>(images.size()));
    gzclose(gz);
    write("t10k-labels-idx1-ubyte", labels);
    for (const bool train : {true, false}) {
        const auto source = open_source({.path = folder_.string(), .train = train});
        Record record;
        source->read(1, record);
        EXPECT_EQ(record.label, 7);
        EXPECT_EQ(record.height, 2);
        EXPECT_EQ(record.width, 3);
        EXPECT_EQ(std::memcmp(record.bytes.data(), "ghijkl", 6), 0);
        EXPECT_EQ(source->class_total(), 10);
    }
}

TEST_F(SourcesTest, DamagedIdxFilesAreErrorsWithOffset) {
    write("train-labels-idx1-ubyte", idx({2}, std::string("\1\7", 2)));
    const auto error = [&](const std::string& images, int64_t classes = 0) {
        return error_of({.kind = "mnist", .path = write("train-images-idx3-ubyte", images).string(), .num_classes = classes});
    };
    const std::string whole = idx({2, 2, 3}, "abcdefghijkl");
    EXPECT_EQ(error(whole), "");
    expect_all(error(whole, 5), {"record 1", "label 7", "[0, 4]"});
    expect_all(error(whole.substr(0, 20)), {"claims 12 bytes", "only 4"});
    expect_all(error(whole + "m"), {"goes on"});
    expect_all(error(whole.substr(0, 6)), {"ends at offset 6"});
    expect_all(error(""), {"ends at offset 0"});
    expect_all(error(std::string("\0\0\x0d\3", 4) + whole.substr(4)), {"magic"});
    expect_all(error(idx({2000000000, 2000000000, 2000000000}, "")), {"impossible"});
    expect_all(error(idx({1 << 30, 2, 3}, "abc")), {"claims 6442450944 bytes"});
    expect_all(error(idx({3, 2, 2}, "abcdefghijkl")), {"2 labels", "3 images"});
}

TEST_F(SourcesTest, CifarBinariesOfBothKindsAreRead) {
    for (const size_t label_bytes : {size_t{1}, size_t{2}}) {
        std::string file;
        for (char record = 0; record < 3; ++record) file += std::string(label_bytes - 1, '\1') + record + std::string(3072, record);
        const fs::path path = write(label_bytes == 1 ? "ten/data_batch_1.bin" : "hundred/train.bin", file);
        for (const fs::path& where : {path, path.parent_path()}) {
            const auto source = open_source({.path = where.string()});
            EXPECT_EQ(source->size(), 3);
            EXPECT_EQ(source->class_total(), label_bytes == 1 ? 10 : 100);
            EXPECT_EQ(source->label(2), 2);
        }
        expect_all(error_of({.path = write("cut.bin", file.substr(0, 4000)).string()}), {"cut.bin", "record 1", "offset 307"});
    }
    expect_all(error_of({.path = write("bad.bin", std::string(3073, '\x0b')).string()}), {"record 0", "label 11", "[0, 9]"});
}

TEST_F(SourcesTest, SyntheticImagesAreAFunctionOfSeedAndIndex) {
    const SourceOptions options{.kind = "synthetic", .num_classes = 7, .synthetic_size = 50, .image_size = 9, .seed = 3};
    const auto source = open_source(options), again = open_source(options);
    Record a, b, c;
    source->read(11, a);
    source->read(12, b);
    again->read(11, c);
    EXPECT_EQ(a.storage, c.storage);
    EXPECT_NE(a.storage, b.storage);
    EXPECT_LT(a.label, 7);
    EXPECT_THROW(open_source({.kind = "nothing", .path = "x"}), ConfigError);
}

TEST_F(SourcesTest, SyntheticJpegsAreTheShapesOverAndOver) {
    const SourceOptions options{.kind = "synthetic_jpeg", .synthetic_size = 130, .image_size = 32, .seed = 3};
    const auto source = open_source(options);
    EXPECT_EQ(source->size(), 130);
    EXPECT_THAT(source->class_names(), ::testing::ElementsAreArray(kShapeNames));
    Record record, again;
    Image image;
    std::vector<uint8_t> file;
    for (const int64_t index : {0, 7, 59, 60, 129}) {
        source->read(index, record);
        EXPECT_EQ(record.label, draw_shape_file(3, "train", index % 60, ShapeSize::small, image, file));
        EXPECT_EQ(record.label, source->label(index));
        EXPECT_TRUE(std::ranges::equal(record.bytes, std::as_bytes(std::span(file)))) << index;
    }
    SourceOptions other = options;
    other.train = false;
    open_source(other)->read(129, again);
    EXPECT_FALSE(std::ranges::equal(record.bytes, again.bytes)) << "validation has pictures of its own";
    other.num_classes = 1000;
    EXPECT_EQ(open_source(other)->class_total(), 1000);
    other.num_classes = 9;
    EXPECT_THROW(open_source(other), ConfigError);
}

std::string real_data() {
    const char* path = std::getenv("LOCKSTEP_DATA");
    return path == nullptr ? "" : path;
}

TEST(RealData, CifarTarMnistAndImagenetSampleAreWhole) {
    if (real_data().empty()) GTEST_SKIP() << "LOCKSTEP_DATA is not set";
    const auto cifar = open_source({.path = real_data() + "/cifar10/test.tar"});
    EXPECT_EQ(cifar->size(), 10'000);
    EXPECT_EQ(cifar->class_total(), 10);
    EXPECT_TRUE(verify_images(*cifar, {.threads = 2, .find_duplicates = false}).findings.empty());
    const auto mnist = open_source({.path = real_data() + "/mnist"});
    EXPECT_EQ(mnist->size(), 60'000);
    EXPECT_EQ(mnist->label(0), 5);
    const auto imagenet = open_source({.path = real_data() + "/imagenet-sample/images.tar"});
    EXPECT_EQ(imagenet->size(), 500);
    EXPECT_TRUE(verify_images(*imagenet, {.threads = 2, .find_duplicates = false}).findings.empty());
}

}  // namespace
}  // namespace lockstep
