// Every format holds the same pictures and labels as the class folders it was made from, and every source gives one global order.
// The files are put together here, byte by byte, from the published descriptions of their formats.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "core/hash.h"
#include "data_loader/crc32c.h"
#include "data_loader/loader.h"
#include "data_loader/mds.h"
#include "data_loader/pack.h"
#include "data_loader/shard_index.h"
#include "data_loader/sources/sources.h"
#include "data_loader/statistics.h"
#include "data_loader/tfrecord.h"
#include "data_loader/verify.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/format_writers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// tf.train.Example with an image, a label (packed or not) and a feature that nobody asked for.
std::string tf_example(const std::string& image, uint64_t label, bool packed = true) {
    const auto entry = [](const std::string& key, const std::string& feature) {
        return bytes_field(1, bytes_field(1, key) + bytes_field(2, feature));
    };
    const std::string number = packed ? bytes_field(1, varint(label)) : varint(1 << 3) + varint(label);
    return bytes_field(1, entry("image/class/text", bytes_field(1, bytes_field(1, "cat"))) +
                              entry("image/class/label", bytes_field(3, number)) +
                              entry("image/encoded", bytes_field(1, bytes_field(1, image))));
}
std::string tf_record(const std::string& data) {
    const std::string size = little_endian(uint64_t{data.size()});
    return size + little_endian(masked_crc32c(bytes_of(size))) + data + little_endian(masked_crc32c(bytes_of(data)));
}

// As MosaicML's writer does it: columns in the order of their names; "jpeg" varies, "int" has 8 bytes.
struct MdsFiles {
    std::string index, shard;
};
MdsFiles mds_files(const std::vector<std::pair<std::string, int64_t>>& samples) {
    const std::string description = R"({"column_encodings": ["jpeg", "int"]})";
    std::string data, offsets;
    const uint32_t begin = static_cast<uint32_t>(4 + 4 * (samples.size() + 1) + description.size());
    for (const auto& [image, label] : samples) {
        offsets += little_endian(static_cast<uint32_t>(begin + data.size()));
        data += little_endian(static_cast<uint32_t>(image.size())) + image + little_endian(label);
    }
    offsets += little_endian(static_cast<uint32_t>(begin + data.size()));
    MdsFiles files;
    files.shard = little_endian(static_cast<uint32_t>(samples.size())) + offsets + description + data;
    files.index = R"({"version":2,"shards":[{"column_encodings":["jpeg","int"],"column_names":["image","label"],)"
                  R"("column_sizes":[null,8],"compression":null,"format":"mds","hashes":[],"raw_data":{"basename":)"
                  R"("shard.00000.mds","bytes":)" +
                  std::to_string(files.shard.size()) + R"(,"hashes":{}},"samples":)" + std::to_string(samples.size()) +
                  R"(,"size_limit":67108864,"version":2,"zip_data":null}]})";
    return files;
}

class FormatsTest : public ScratchTest {
protected:
    void SetUp() override {
        ScratchTest::SetUp();
        original_ = open_source({.path = case_file("sets/set101/train").string()});
        Record record;
        for (int64_t index = 0; index < original_->size(); ++index) {
            original_->read(index, record);
            samples_.emplace_back(std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()),
                                  record.label);
        }
    }
    SourceOptions tfrecord(int first_label = 0) const {
        std::string files[2];
        for (size_t index = 0; index < samples_.size(); ++index) {
            const uint64_t label = static_cast<uint64_t>(samples_[index].second + first_label);
            files[index < 50 ? 0 : 1] += tf_record(tf_example(samples_[index].first, label, index % 2 == 0));
        }
        const std::string name = "tfrecord" + std::to_string(first_label);
        write(name + "/train-00000-of-00002", files[0]);
        write(name + "/train-00001-of-00002", files[1]);
        write(name + "/validation-00000-of-00001", tf_record(tf_example(samples_[7].first, 1)));
        return {.path = (folder_ / name).string(), .first_label = first_label};
    }
    SourceOptions mds() const {
        const MdsFiles files = mds_files({samples_.begin(), samples_.end()});
        write("mds/index.json", files.index);
        write("mds/shard.00000.mds", files.shard);
        return {.path = (folder_ / "mds").string()};
    }
    SourceOptions lmdb() const {
        std::vector<std::string> datums;
        for (const auto& [image, label] : samples_) datums.push_back(encoded_datum(image, static_cast<uint64_t>(label)));
        write("lmdb/data.mdb", lmdb_file(datums));
        return {.path = (folder_ / "lmdb").string()};
    }
    SourceOptions beton() const {
        std::vector<BetonInput> inputs;
        for (const auto& [image, label] : samples_) inputs.push_back({.data = image, .width = 32, .height = 32, .label = label});
        return {.path = write("set.beton", beton_file(inputs)).string()};
    }
    SourceOptions flat() const {
        std::string lines;
        for (size_t index = 0; index < samples_.size(); ++index) {
            char name[32];
            std::snprintf(name, sizeof name, "val_%04zu.jpg", index);
            write("flat/" + std::string(name), samples_[index].first);
            lines += name + std::string(" ") + std::to_string(samples_[index].second) + "\n";
        }
        return {.kind = "flat", .path = (folder_ / "flat").string(), .labels_path = write("labels.txt", lines).string()};
    }
    SourceOptions list() const {
        flat();
        return {.path = write("flat/list.txt", read_file(folder_ / "labels.txt")).string()};
    }
    SourceOptions tar() const {
        TarWriter writer;
        for (size_t index = 0; index < samples_.size(); ++index) {
            char name[32];
            std::snprintf(name, sizeof name, "class%d/%04zu.jpg", samples_[index].second, index);
            writer.add(name, samples_[index].first);
        }
        return {.path = write("set.tar", writer.finish()).string()};
    }
    SourceOptions packed(bool with_index) const {
        const fs::path out = folder_ / "packed";
        pack(*original_, {.out = out, .shard_bytes = 50'000});
        for (const std::string& shard : webdataset_shards(out.string())) {
            if (!with_index) fs::remove(shard_index_path(shard));
        }
        return {.path = out.string()};
    }
    SourceOptions cifar() const {
        std::string file;
        for (int record = 0; record < 50; ++record) {
            file += static_cast<char>(record % 10) + std::string(3072, static_cast<char>(record));
        }
        write("cifar/data_batch_1.bin", file);
        write("cifar/data_batch_2.bin", file);
        return {.path = (folder_ / "cifar").string()};
    }
    SourceOptions mnist() const {
        std::string images("\0\0\x08\3\0\0\0\x37\0\0\0\4\0\0\0\4", 16), labels("\0\0\x08\1\0\0\0\x37", 8);
        for (int record = 0; record < 55; ++record) {
            images += std::string(16, static_cast<char>(record));
            labels += static_cast<char>(record % 10);
        }
        write("mnist/train-images-idx3-ubyte", images);
        write("mnist/train-labels-idx1-ubyte", labels);
        return {.path = (folder_ / "mnist").string()};
    }
    void expect_original(const SourceOptions& options) const {
        const auto source = open_source(options);
        ASSERT_EQ(source->size(), std::ssize(samples_));
        EXPECT_EQ(source->class_total(), original_->class_total());
        Record record;
        for (int64_t index = 0; index < source->size(); ++index) {
            source->read(index, record);
            const auto& [bytes, label] = samples_[static_cast<size_t>(index)];
            EXPECT_EQ(std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()), bytes) << record.key;
            EXPECT_EQ(record.label, label);
            EXPECT_EQ(source->label(index), label);
        }
    }
    static std::string error_of(const SourceOptions& options) {
        return data_error_of([&] { open_source(options); });
    }

    std::unique_ptr<Source> original_;
    std::vector<std::pair<std::string, int32_t>> samples_;
};

TEST_F(FormatsTest, EveryFormatOfFilesReadsBackAsTheClassFolders) {
    for (const SourceOptions& options : {tar(), list(), flat(), packed(true), tfrecord(), tfrecord(1), mds(), lmdb(), beton()}) {
        SCOPED_TRACE(options.path);
        expect_original(options);
    }
    const auto validation = open_source({.path = tfrecord().path, .train = false});
    EXPECT_EQ(validation->size(), 1);
}

// (step, place in the step) -> sample, over all ranks.
using Order = std::map<std::pair<int64_t, int64_t>, int64_t>;
Order order_of(const Source& source, int world_size, int threads) {
    const SamplerOptions sampler{.sample_count = source.size(), .batch_global = 21, .per_replica = 3, .seed = 7};
    const int64_t steps = Sampler(sampler).steps_per_epoch();
    PipelineOptions pipeline{.transforms = {{.kind = Transform::Kind::resize, .height = 4, .width = 4}}, .height = 4, .width = 4};
    Order order;
    for (int rank = 0; rank < world_size; ++rank) {
        const auto loader = make_train_loader(
            source, {.sampler = sampler, .rank = rank, .world_size = world_size, .start_step = 0, .stop_step = steps},
            {.pipeline = pipeline, .worker_threads = threads});
        while (const std::optional<Batch> batch = loader->next()) {
            for (int place = 0; place < batch->count; ++place) {
                const auto at = std::pair(batch->step_in_epoch, 3 * batch->worker + place);
                EXPECT_TRUE(order.emplace(at, batch->samples[static_cast<size_t>(place)]).second) << "a place is taken twice";
                EXPECT_EQ(batch->labels[static_cast<size_t>(place)], source.label(batch->samples[static_cast<size_t>(place)]));
            }
        }
    }
    return order;
}

TEST_F(FormatsTest, EverySourceGivesOneGlobalOrderOnAnyNumberOfRanksAndThreads) {
    const SourceOptions synthetic{.kind = "synthetic", .num_classes = 3, .synthetic_size = 50, .image_size = 5};
    const SourceOptions drawn{.kind = "synthetic_jpeg", .synthetic_size = 70, .image_size = 32};
    for (const SourceOptions& options : {SourceOptions{.path = case_file("sets/set101/train").string()}, tar(), list(), flat(),
                                         packed(true), tfrecord(), mds(), lmdb(), beton(), cifar(), mnist(), synthetic, drawn}) {
        SCOPED_TRACE(options.path);
        const auto source = open_source(options);
        const Order reference = order_of(*source, 1, 1);
        std::set<int64_t> seen;
        for (const auto& [place, sample] : reference) seen.insert(sample);
        EXPECT_EQ(std::ssize(seen), source->size()) << "every image once";
        EXPECT_EQ(std::ssize(reference), source->size());
        for (const int world_size : {2, 3, 4, 7}) EXPECT_EQ(order_of(*source, world_size, 1 + world_size % 3), reference);
    }
}

TEST(Crc32c, EqualsItsSlowTwinAndThePublishedValues) {
    const std::string digits = "123456789";
    EXPECT_EQ(crc32c(bytes_of(digits)), 0xE3069283U);
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43U);
    std::string text;
    for (int length = 0; length < 100; ++length) {
        EXPECT_EQ(crc32c(bytes_of(text)), crc32c_reference(bytes_of(text))) << length;
        text += static_cast<char>(length * 37 + 1);
    }
}

TEST_F(FormatsTest, DamagedTfRecordsAreErrorsWithRecordAndOffset) {
    const std::string one = tf_record(tf_example(samples_[0].first, 0)), two = tf_record(tf_example(samples_[1].first, 1));
    const auto open = [&](const std::string& bytes) { return error_of({.path = write("x.tfrecord", bytes).string()}); };
    EXPECT_EQ(open(one + two), "");
    const std::string second = "record 1 at offset " + std::to_string(one.size());
    EXPECT_THAT(open((one + two).substr(0, one.size() + 7)), HasSubstr(second));
    EXPECT_THAT(open((one + two).substr(0, one.size() + two.size() - 1)), HasSubstr(second + ": it claims"));
    std::string flipped = one + two;
    flipped[one.size() + 1] = static_cast<char>(flipped[one.size() + 1] ^ 1);
    EXPECT_THAT(open(flipped), HasSubstr(second + ": wrong checksum of the length"));
    EXPECT_THAT(open(""), HasSubstr("empty file"));
    EXPECT_THAT(open(one + tf_record("abc")), HasSubstr("no tf.train.Example"));
    // A flipped pixel is met when the picture is read.
    flipped = one + two;
    flipped[one.size() + two.size() - 40] = static_cast<char>(flipped[one.size() + two.size() - 40] ^ 1);
    const auto source = open_source({.path = write("x.tfrecord", flipped).string()});
    Record record;
    source->read(0, record);
    EXPECT_THAT(data_error_of([&] { source->read(1, record); }), HasSubstr(second + ": wrong checksum of the data"));
}

TEST_F(FormatsTest, DamagedMdsSetsAreErrorsWithRecordAndOffset) {
    const MdsFiles whole = mds_files({{"abc", 0}, {"defg", 2}});
    const auto open = [&](const std::string& index, const std::string& shard, int64_t classes = 0) {
        write("bad/shard.00000.mds", shard);
        return error_of({.path = write("bad/index.json", index).parent_path().string(), .num_classes = classes});
    };
    EXPECT_EQ(open(whole.index, whole.shard), "");
    EXPECT_THAT(open(whole.index, whole.shard, 2),
                testing::AllOf(HasSubstr("record 1"), HasSubstr("label 2"), HasSubstr("[0, 1]")));
    EXPECT_THAT(open(whole.index, whole.shard + "x"), HasSubstr("the index says"));
    EXPECT_THAT(open("{}", whole.shard), HasSubstr("no index of an MDS set"));
    EXPECT_THAT(open("[1", whole.shard), HasSubstr("index.json"));
    std::string changed = whole.shard;
    changed[8] = '\xFF';  // the second sample's begin
    EXPECT_THAT(open(whole.index, changed), HasSubstr("at offset"));
    changed = whole.shard;
    const size_t size_of_first = whole.shard.find("abc") - 4;
    changed[size_of_first] = 100;
    EXPECT_THAT(open(whole.index, changed), HasSubstr("record 0 at offset " + std::to_string(size_of_first)));
    changed[size_of_first] = 2;
    EXPECT_THAT(open(whole.index, changed), HasSubstr("do not fill it"));
    fs::remove(folder_ / "bad/shard.00000.mds");
    EXPECT_THAT(error_of({.kind = "mds", .path = (folder_ / "bad").string()}), HasSubstr("not there"));
}

TEST_F(FormatsTest, FlatFoldersTakeNamesNumbersAndBareLabels) {
    write("v/b.jpg", samples_[0].first);
    write("v/a.JPEG", samples_[1].first);
    const auto open = [&](const std::string& lines, int first_label = 0) -> SourceOptions {
        return {.kind = "flat",
                .path = (folder_ / "v").string(),
                .labels_path = write("l.txt", lines).string(),
                .class_names = {"cat", "dog", "cow"},
                .first_label = first_label};
    };
    const auto labels = [](const SourceOptions& options) {
        const auto source = open_source(options);
        return std::vector<int32_t>{source->label(0), source->label(1)};  // a, b
    };
    EXPECT_EQ(labels(open("b.jpg 2\na.JPEG 0\n")), (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(labels(open("b.jpg dog\na.JPEG cow\n")), (std::vector<int32_t>{2, 1}));
    EXPECT_EQ(labels(open("1\n2\n")), (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(labels(open("1\n3\n", 1)), (std::vector<int32_t>{0, 2}));
    EXPECT_THAT(error_of(open("0\n3\n", 1)), testing::AllOf(HasSubstr("line 1"), HasSubstr("[1, 3]")));
    EXPECT_THAT(error_of(open("1\n")), HasSubstr("1 labels for 2 pictures"));
    EXPECT_THAT(error_of(open("b.jpg 2\n")), HasSubstr("a.JPEG"));
    EXPECT_THAT(error_of(open("b.jpg 2\nc.jpg 1\na.JPEG 1\n")), HasSubstr("c.jpg"));
    EXPECT_THAT(error_of(open("b.jpg horse\na.JPEG cow\n")), HasSubstr("horse"));
}

TEST_F(FormatsTest, Cifar100GivesFineOrCoarseLabels) {
    const std::string file = std::string("\x03\x44") + std::string(3072, 'x');
    const std::string path = write("train.bin", file).string();
    EXPECT_EQ(open_source({.path = path})->label(0), 0x44);
    const auto coarse = open_source({.path = path, .coarse_labels = true});
    EXPECT_EQ(coarse->label(0), 3);
    EXPECT_EQ(coarse->class_total(), 20);
    EXPECT_THROW(open_source({.path = cifar().path, .coarse_labels = true}), ConfigError) << "CIFAR-10 has none";
}

TEST_F(FormatsTest, AFirstLabelIsRefusedWhereLabelsAreNoIntegers) {
    EXPECT_THROW(open_source({.path = case_file("sets/set101/train").string(), .first_label = 1}), ConfigError);
    write("one.tfrecord", tf_record(tf_example(samples_[0].first, 0)));
    EXPECT_THAT(error_of({.path = (folder_ / "one.tfrecord").string(), .first_label = 1}), HasSubstr("label 0"));
}

TEST_F(FormatsTest, VerifyNamesWhatTheIndexContradicts) {
    packed(true);
    const std::string shard = webdataset_shards((folder_ / "packed").string()).front();
    const VerifyOptions options{.threads = 2, .find_duplicates = false};
    const auto findings = [&] {
        const auto source = open_source({.path = (folder_ / "packed").string()});
        std::vector<std::string> kinds;
        for (const Finding& finding : verify_images(*source, options).findings) kinds.emplace_back(finding.kind);
        return kinds;
    };
    EXPECT_EQ(findings(), std::vector<std::string>{});
    const auto time = fs::last_write_time(shard_index_path(shard));
    std::string tar = read_file(shard);
    ShardIndex index = parse_shard_index(bytes_of(read_file(shard_index_path(shard))), shard);
    const auto change = [&](auto edit) {
        std::string bytes = tar;
        ShardIndex changed = index;
        edit(bytes, changed);
        write_file_atomically(shard, bytes);
        write_file_atomically(shard_index_path(shard), encode(changed));
        fs::last_write_time(shard, time);
        return findings();
    };
    EXPECT_EQ(change([](std::string&, ShardIndex& changed) { changed.entries()[1].width = 7; }),
              std::vector<std::string>{"dimensions"});
    EXPECT_EQ(change([](std::string&, ShardIndex& changed) { changed.entries()[1].hash = 7; }),
              std::vector<std::string>{"checksum"});
    EXPECT_EQ(change([](std::string&, ShardIndex& changed) { changed.entries()[1].label ^= 1; }),
              std::vector<std::string>{"index"});
    EXPECT_EQ(change([&](std::string& bytes, ShardIndex&) { bytes[index.entries()[2].offset] = 'x'; }),
              (std::vector<std::string>{"checksum", "unreadable"}));
}

TEST_F(FormatsTest, VerifyFindsDuplicatesAndTheirOtherLabels) {
    for (const char* name : {"a/0.jpg", "a/1.jpg", "b/2.jpg"}) write(std::string("set/") + name, samples_[0].first);
    write("set/b/3.jpg", samples_[1].first);
    const auto source = open_source({.path = (folder_ / "set").string()});
    const VerifyResult result = verify_images(*source, {.threads = 2});
    ASSERT_EQ(result.findings.size(), 2U);
    EXPECT_THAT(result.findings[0].text, testing::AllOf(HasSubstr("a/1.jpg: the same bytes as"), HasSubstr("a/0.jpg")));
    EXPECT_THAT(result.findings[1].text, HasSubstr("but label 1 instead of 0"));
}

TEST_F(FormatsTest, StatisticsAreThoseOfThePixelsForAnyThreadCount) {
    const auto source = open_source(cifar());  // record k is flat colour k, twice 0 to 49
    const SetStatistics one = statistics_of(*source, 1), three = statistics_of(*source, 3);
    EXPECT_EQ(one.mean, three.mean);
    EXPECT_EQ(one.stddev, three.stddev);
    EXPECT_NEAR(one.mean[1], 24.5 / 255.0, 1e-12);
    EXPECT_NEAR(one.stddev[2], std::sqrt((50.0 * 50.0 - 1.0) / 12.0) / 255.0, 1e-12);
    EXPECT_EQ(one.shorter_sides, (std::map<int, int64_t>{{32, 100}}));
    EXPECT_EQ(one.images_of_class.at(3), 10);
    const auto sets = statistics_of(*open_source(mnist()), 2);
    EXPECT_EQ(sets.shorter_sides, (std::map<int, int64_t>{{4, 55}}));
    EXPECT_EQ(sets.mean[0], sets.mean[2]);
}

}  // namespace
}  // namespace lockstep
