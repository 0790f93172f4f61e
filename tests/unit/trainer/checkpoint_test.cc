#include "trainer/checkpoint.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/random.h"
#include "tests/unit/trainer/tiny_experiment.h"
#include "trainer/replica.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::tiny_bn;

class CheckpointTest : public ::testing::Test {
protected:
    CheckpointTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("checkpoints-{}", getpid())) {
        fs::remove_all(folder_);
        replica_.initialize(1);
    }
    ~CheckpointTest() override { fs::remove_all(folder_); }

    CheckpointFolder keeping(int64_t last, const std::string& best = "") const {
        return CheckpointFolder({.folder = folder_, .keep_last = last, .best = best});
    }
    fs::path save(const CheckpointFolder& folder, int64_t step, double top1 = -1.0) {
        Manifest manifest{.step = step, .steps_per_epoch = 7, .total_steps = 500, .seed = 3, .num_classes = 4};
        if (top1 >= 0.0) manifest.metrics["val.top1"] = top1;
        snapshot_.take_all();
        return folder.save(snapshot_, manifest, "a: 1\n");
    }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& item : fs::directory_iterator(folder_)) found.push_back(item.path().filename().string());
        std::sort(found.begin(), found.end());
        return found;
    }
    static void flip_a_byte(const fs::path& path) {
        std::string bytes = read_file(path);
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
        std::ofstream(path, std::ios::binary) << bytes;
    }

    fs::path folder_;
    HeapPool pool_;
    Replica replica_{plan_replica(tiny_bn(), 4, 1), pool_, 1};
    Snapshot snapshot_{replica_.backend(), replica_.arena()};
};

TEST_F(CheckpointTest, ComesBackBitEqual) {
    for (float& value : replica_.arena().state(0)) value = 0.0F;
    for (size_t index = 0; index < replica_.arena().entries().size(); ++index) {
        if (!is_trainable(replica_.arena().entries()[index].spec.kind)) continue;
        RandomStream random(4, "momentum", index);
        const int64_t plain = element_count(replica_.arena().entries()[index].spec.shape);
        const int64_t offset = replica_.arena().entries()[index].offset;
        for (int64_t at = offset; at < offset + plain; ++at) replica_.arena().state(0)[static_cast<size_t>(at)] = random.normal();
    }
    const fs::path path = save(keeping(2), 5);
    Replica other(plan_replica(tiny_bn(), 4, 1), pool_, 1);
    load_checkpoint_model(path, other.backend(), other.arena());
    load_checkpoint_optimizer(path, other.backend(), other.arena());
    EXPECT_TRUE(std::ranges::equal(replica_.arena().values(), other.arena().values()));
    EXPECT_TRUE(std::ranges::equal(replica_.arena().state(0), other.arena().state(0)));
    EXPECT_EQ(verify_checkpoint(path).step, 5);
    EXPECT_EQ(read_file(path / "config.yaml"), "a: 1\n");
}

TEST_F(CheckpointTest, TheHighestStepIsTheLatestWhateverFileTimesAndStrayFiles) {
    const CheckpointFolder folder = keeping(10);
    for (const int64_t step : {100, 10, 9}) save(folder, step);
    const auto now = fs::file_time_type::clock::now();
    fs::last_write_time(folder_ / "step-000000100", now - std::chrono::hours(2));
    fs::last_write_time(folder_ / "step-000000009", now);
    std::ofstream(folder_ / "step-000000999") << "a file, not a folder";
    std::ofstream(folder_ / "notes.txt") << "mine";
    fs::create_directories(folder_ / "step-abc");
    fs::create_directories(folder_ / "step-000000500x");
    EXPECT_EQ(folder.latest()->manifest.step, 100);
    EXPECT_TRUE(folder.latest()->warnings.empty());
}

TEST_F(CheckpointTest, ADamagedNewestIsNamedAndPassedOver) {
    const CheckpointFolder folder = keeping(10);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.yaml", "manifest.json"}) {
        fs::remove_all(folder_);
        save(folder, 9);
        flip_a_byte(save(folder, 10) / file);
        if (std::string(file) == "manifest.json") std::ofstream(folder_ / "step-000000010" / file) << "{";
        const auto found = folder.latest();
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->manifest.step, 9);
        ASSERT_EQ(found->warnings.size(), 1U);
        EXPECT_THAT(found->warnings.front(), HasSubstr("step-000000010"));
        EXPECT_THAT(found->warnings.front(), HasSubstr(file));
    }
}

TEST_F(CheckpointTest, ACheckpointUnderAnotherStepsNameIsPassedOver) {
    const CheckpointFolder folder = keeping(10);
    save(folder, 10);
    fs::rename(save(folder, 9), folder_ / "step-000000099");
    const auto found = folder.latest();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->manifest.step, 10);
    ASSERT_EQ(found->warnings.size(), 1U);
    EXPECT_THAT(found->warnings.front(), testing::AllOf(HasSubstr("step-000000099"), HasSubstr("step-000000009")));
}

TEST_F(CheckpointTest, AMissingFileIsDamageAndNoSoundOneIsAnError) {
    const CheckpointFolder folder = keeping(10);
    EXPECT_FALSE(folder.latest().has_value());
    fs::remove(save(folder, 3) / "optimizer.safetensors");
    EXPECT_THROW(folder.latest(), DataError);
}

TEST_F(CheckpointTest, KeepsTheLastFewAndTheBest) {
    const CheckpointFolder folder = keeping(2, "val.top1");
    int64_t step = 0;
    for (const double top1 : {0.5, 0.9, 0.6, 0.7, 0.8}) save(folder, ++step, top1);
    save(folder, ++step);  // one without evaluation
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000002", "step-000000005", "step-000000006"}));
}

TEST_F(CheckpointTest, OfEqualsTheNewestIsTheBestAndTheLastIsAlwaysKept) {
    const CheckpointFolder folder = keeping(0, "val.top1");
    int64_t step = 0;
    for (const double top1 : {0.9, 0.9, 0.5}) save(folder, ++step, top1);
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000002", "step-000000003"}));
    save(keeping(0), 4);
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000004"}));
}

TEST_F(CheckpointTest, AManifestThatListsNoModelIsDamage) {
    const fs::path path = save(keeping(2), 3);
    Manifest manifest = read_manifest(path);
    manifest.files.erase("model.safetensors");
    write_file_atomically(path / "manifest.json", to_json(manifest));
    try {
        verify_checkpoint(path);
        FAIL() << "it holds no weights";
    } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("lists no model.safetensors"));
    }
}

TEST_F(CheckpointTest, LessLossIsBetter) {
    const CheckpointFolder folder = keeping(1, "val.loss");
    for (int64_t step = 1; step <= 3; ++step) {
        Manifest manifest{.step = step};
        manifest.metrics["val.loss"] = step == 2 ? 0.1 : 0.5;
        folder.save(snapshot_, manifest, "");
    }
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000002", "step-000000003"}));
}

TEST_F(CheckpointTest, LeftoversOfKilledSavesAreCleanedAndNothingElse) {
    const CheckpointFolder folder = keeping(2);
    save(folder, 1);
    fs::create_directories(folder_ / ".saving-step-7-4242");
    fs::create_directories(folder_ / ".removing-step-000000003-4242");
    fs::create_directories(folder_ / ".somebody-else");
    folder.clean_leftovers();
    EXPECT_EQ(names(), (std::vector<std::string>{".somebody-else", "step-000000001"}));
}

TEST_F(CheckpointTest, AStepThatExistsIsReplaced) {
    const CheckpointFolder folder = keeping(2);
    flip_a_byte(save(folder, 4) / "model.safetensors");
    save(folder, 4);
    EXPECT_EQ(folder.latest()->manifest.step, 4);
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000004"}));
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreNeverSaved) {
    const CheckpointFolder folder = keeping(2);
    save(folder, 1);
    replica_.arena().value(0)[0] = std::numeric_limits<float>::infinity();
    EXPECT_THROW(save(folder, 2), DivergedError);
    EXPECT_EQ(names(), (std::vector<std::string>{"step-000000001"}));
}

TEST_F(CheckpointTest, ARunThatStartsAnewMovesAllCheckpointsAsideAndOneThatGoesBackTheLaterOnes) {
    const CheckpointFolder folder = keeping(3);
    EXPECT_FALSE(folder.set_aside(-1).has_value());
    for (const int64_t step : {1, 2, 3}) save(folder, step);
    EXPECT_FALSE(folder.set_aside(3).has_value());
    const auto later = folder.set_aside(1), all = folder.set_aside(-1);
    ASSERT_TRUE(later.has_value() && all.has_value());
    EXPECT_EQ(list_checkpoints(*later).size(), 2U);
    EXPECT_EQ(list_checkpoints(*all).front().first, 1);
    EXPECT_TRUE(names().empty());
    for (const auto& aside : {later, all}) fs::remove_all(*aside);
}

TEST_F(CheckpointTest, OpensACheckpointOrItsRunFolder) {
    const fs::path run = folder_ / "run";
    const CheckpointFolder folder({.folder = run / "checkpoints"});
    const fs::path path = save(folder, 8);
    EXPECT_EQ(open_checkpoint(path).manifest.step, 8);
    EXPECT_EQ(open_checkpoint(run).path, path);
    EXPECT_THROW(open_checkpoint(folder_), DataError);
}

TEST(Manifest, AChangedNumberIsNoticed) {
    std::string text = to_json({.step = 123, .steps_per_epoch = 10});
    text.replace(text.find("123"), 3, "124");
    EXPECT_THROW(parse_manifest(text, "manifest.json"), DataError);
}

TEST(Manifest, TheFirstVersionIsReadAndStandsWhereItsStepsLead) {
    auto json =
        nlohmann::ordered_json::parse(to_json({.step = 123, .steps_per_epoch = 10, .result_keys = {{"batch.global", "24"}}}));
    json["format_version"] = 1;
    for (const char* key : {"place", "batch_global", "checksum"}) json.erase(key);
    json["checksum"] = hash_hex(hash_text(json.dump(2)));
    const Manifest manifest = parse_manifest(json.dump(2), "manifest.json");
    EXPECT_EQ(manifest.batch_global, 24);
    EXPECT_EQ(manifest.place, (DataPlace{.epoch = 12, .samples = 72}));
}

TEST(Manifest, AMetricThatIsNotFiniteIsLeftOutAndTheRestStaysReadable) {
    const Manifest manifest{
        .step = 1, .steps_per_epoch = 1, .metrics = {{"val.loss", std::numeric_limits<double>::quiet_NaN()}, {"val.top1", 0.5}}};
    const Manifest back = parse_manifest(to_json(manifest), "manifest.json");
    EXPECT_EQ(back.metrics, (std::map<std::string, double>{{"val.top1", 0.5}}));
}

TEST(Manifest, ComesBackEqualAndSurvivesMutation) {
    Manifest manifest{.step = 123, .steps_per_epoch = 10, .total_steps = 900, .seed = ~uint64_t{0}, .config_hash = "abc"};
    manifest.epoch = 12.3;
    manifest.place = {.epoch = 12, .samples = 108};
    manifest.batch_global = 36;
    manifest.result_keys = {{"batch.global", "24"}, {"run.seed", "1"}};
    manifest.optimizer = {{"previous_rate", 0.1}};
    manifest.metrics = {{"val.loss", 1.0 / 3.0}};
    manifest.interval = {.loss_sum = 0.1, .correct = 3, .images = 24};
    manifest.train_fingerprint = 0xFEDCBA9876543210;
    manifest.world_size = 3;
    manifest.class_names = {"cat", "dög"};
    manifest.num_classes = 2;
    manifest.files = {{"model.safetensors", "0123456789abcdef"}};
    const std::string text = to_json(manifest);
    const Manifest back = parse_manifest(text, "manifest.json");
    EXPECT_EQ(to_json(back), text);
    EXPECT_TRUE(back == manifest) << "every field";
    RandomStream random(9, "fuzz");
    for (int round = 0; round < 2000; ++round) {
        std::string bad = text;
        bad[random.below(bad.size())] = static_cast<char>(random.next_u32());
        if (round % 3 == 0) bad.resize(random.below(bad.size()));
        try {
            parse_manifest(bad, "manifest.json");
        } catch (const DataError&) {
        }
    }
}

}  // namespace
}  // namespace lockstep
