// Every format holds the same pictures and labels as the class folders it was made from, and every source gives one global order.
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
#include "tests/unit/data_loader/formats_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST_F(FormatsTest, EveryFormatOfFilesReadsBackAsTheClassFolders) {
    for (const SourceOptions& options : {tar(), list(), flat(), packed(true), shards(), tfrecord(), mds(), lmdb(), beton()}) {
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
    changed = whole.shard;
    changed[0] = 3;
    EXPECT_THAT(open(whole.index, changed), HasSubstr("another number of samples"));
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
    EXPECT_THAT(error_of(open("b.jpg 2\na.JPEG 1\nb.jpg 1\n")), HasSubstr("line 3: \"b.jpg\" has a label in line 1"));
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

TEST_F(FormatsTest, StatisticsAreOfEachChannelAndOfGoodPicturesAlone) {
    // A red, a green, and a blue that is off in one half and full in the other.
    write("colours/data_batch_1.bin",
          '\0' + std::string(1024, '\x33') + std::string(1024, '\x66') + std::string(512, '\x00') + std::string(512, '\xFF'));
    const SetStatistics colours = statistics_of(*open_source({.path = (folder_ / "colours").string()}), 1);
    const double means[3] = {0.2, 0.4, 0.5}, deviations[3] = {0.0, 0.0, 0.5};
    for (size_t channel = 0; channel < 3; ++channel) {
        EXPECT_NEAR(colours.mean[channel], means[channel], 1e-12);
        EXPECT_NEAR(colours.stddev[channel], deviations[channel], 1e-7);
    }
    write("mixed/a/0.jpg", samples_[0].first);
    const SetStatistics alone = statistics_of(*open_source({.path = (folder_ / "mixed").string()}), 1);
    for (const char* name : {"mixed/a/1.jpg", "mixed/a/2.jpg"}) write(name, "no picture");
    const SetStatistics mixed = statistics_of(*open_source({.path = (folder_ / "mixed").string()}), 2);
    EXPECT_EQ(mixed.images, 3);
    EXPECT_EQ(mixed.bad, 2);
    EXPECT_EQ(mixed.mean, alone.mean);
    EXPECT_EQ(mixed.stddev, alone.stddev);
    EXPECT_EQ(mixed.smallest, (ImageSize{32, 32}));
}

}  // namespace
}  // namespace lockstep
