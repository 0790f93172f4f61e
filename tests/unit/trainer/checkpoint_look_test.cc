#include "trainer/checkpoint_look.h"

#include <unistd.h>

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/files.h"
#include "tests/unit/trainer/tiny_experiment.h"
#include "trainer/replica.h"

namespace lockstep {
namespace {

using testing_support::tiny_bn;

class CheckpointLookTest : public ::testing::Test {
protected:
    CheckpointLookTest() : run_(fs::path(::testing::TempDir()) / fmt::format("look-{}", getpid())) {
        fs::remove_all(run_);
        replica_.initialize(1);
    }
    ~CheckpointLookTest() override { fs::remove_all(run_); }

    fs::path save(int64_t step, double top1) {
        Manifest manifest{.step = step, .steps_per_epoch = 7, .world_size = static_cast<int>(step)};
        manifest.metrics["val.top1"] = top1;
        snapshot_.take_all();
        return CheckpointFolder({.folder = run_ / "checkpoints", .keep_last = 10}).save(snapshot_, manifest, "a: 1\n");
    }
    float& weight(const std::string& name, size_t at) { return replica_.arena().value(*replica_.arena().find(name))[at]; }

    fs::path run_;
    HeapPool pool_;
    Replica replica_{plan_replica(tiny_bn(), 4, 1), pool_, 1};
    Snapshot snapshot_{replica_.backend(), replica_.arena()};
};

TEST_F(CheckpointLookTest, ListsStepsSizesAndTheBest) {
    save(1, 0.5);
    save(2, 0.75);
    save(3, 0.25);
    const auto all = look_at_checkpoints(run_, true, "val.top1");
    ASSERT_EQ(all.size(), 3U);
    for (size_t index = 0; index < 3; ++index) {
        EXPECT_EQ(all[index].step, static_cast<int64_t>(index) + 1);
        EXPECT_EQ(all[index].is_best, index == 1);
        EXPECT_EQ(all[index].damage, "");
        EXPECT_GT(all[index].bytes, 1000);
        EXPECT_EQ(all[index].written.size(), std::string("2030-01-31T12:34:56Z").size());
    }
    EXPECT_TRUE(look_at_checkpoints(run_ / "checkpoints", false, "val.loss").front().manifest.metrics.contains("val.top1"));
    EXPECT_THROW(look_at_checkpoints(run_ / "nothing", true, ""), DataError);
    EXPECT_EQ(checkpoint_at(run_), all.back().path);
    EXPECT_EQ(checkpoint_at(all.front().path), all.front().path);
}

TEST_F(CheckpointLookTest, DamageIsToldAndHidesNothingElse) {
    save(1, 0.5);
    const fs::path damaged = save(2, 0.75);
    std::ofstream(damaged / "optimizer.safetensors", std::ios::app) << "x";
    const auto all = look_at_checkpoints(run_, true, "val.top1");
    EXPECT_EQ(all.front().damage, "");
    EXPECT_THAT(all.back().damage, ::testing::HasSubstr("optimizer.safetensors"));
    EXPECT_TRUE(all.front().is_best) << "a damaged one is nobody's best";
}

TEST_F(CheckpointLookTest, NamesTheTensorsThatDifferAndByHowMuch) {
    const fs::path first = save(1, 0.5);
    EXPECT_TRUE(compare_checkpoints(first, first).empty());
    const std::string name = replica_.arena().entries().front().spec.name;
    const auto before = static_cast<double>(weight(name, 1));
    weight(name, 1) += 2.0F;
    replica_.arena().state(0)[0] = -0.0F;  // another bit, no other value
    const auto differences = compare_checkpoints(first, save(2, 0.5));
    ASSERT_EQ(differences.size(), 2U);
    EXPECT_EQ(differences[0].file, "model.safetensors");
    EXPECT_EQ(differences[0].name, name);
    EXPECT_EQ(differences[0].differing, 1);
    EXPECT_NEAR(differences[0].largest, 2.0, 1e-6);
    double squares = 0.0;
    for (const TensorFacts& tensor : tensors_of(first)) {
        if (tensor.name == name && tensor.file == "model.safetensors") squares = tensor.norm * tensor.norm;
    }
    EXPECT_NEAR(differences[0].relative, 2.0 / std::sqrt(squares), 1e-6) << before;
    EXPECT_EQ(differences[1].file, "optimizer.safetensors");
    EXPECT_EQ(differences[1].differing, 1);
    EXPECT_EQ(differences[1].largest, 0.0);
}

TEST_F(CheckpointLookTest, ManifestsAreComparedKeyByKey) {
    const Manifest first{.step = 3, .steps_per_epoch = 7, .result_keys = {{"lr.base", "0.1"}, {"run.seed", "1"}}};
    Manifest second = first;
    EXPECT_TRUE(compare_manifests(first, second).empty());
    second.step = 4;
    second.result_keys[0].second = "0.2";
    second.metrics["val.top1"] = 0.5;
    const auto differences = compare_manifests(first, second);
    ASSERT_EQ(differences.size(), 3U);
    EXPECT_EQ(differences[0].key, "lr.base");
    EXPECT_EQ(differences[1].second, "4");
    EXPECT_EQ(differences[2].first, "absent");
}

}  // namespace
}  // namespace lockstep
