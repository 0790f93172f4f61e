#include "interop/arena_tensors.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"

namespace lockstep {
namespace {

// Keeps every entry reversed and padded to 16, so that a forgotten conversion shows.
class ReversingBackend final : public Backend {
public:
    std::string_view name() const override { return "reversing"; }
    std::vector<ParameterEntry> plan_parameters(const Graph&, int) override { return {}; }
    std::unique_ptr<Executor> compile(const Graph&, int, Phase, ParameterArena&) override { return nullptr; }
    void to_plain(const ParameterEntry&, std::span<const float> physical, std::span<float> plain) const override {
        std::reverse_copy(physical.begin(), physical.begin() + static_cast<std::ptrdiff_t>(plain.size()), plain.begin());
    }
    void from_plain(const ParameterEntry&, std::span<const float> plain, std::span<float> physical) const override {
        std::reverse_copy(plain.begin(), plain.end(), physical.begin());
    }
    std::string description() const override { return {}; }
};

class ArenaTensors : public testing::Test {
protected:
    static ParameterEntry entry(const char* name, ParameterKind kind, Shape shape) {
        return {.spec = {.name = name, .kind = kind, .shape = std::move(shape)}, .physical_count = 16};
    }
    ArenaTensors()
        : arena_({entry("fc.weight", ParameterKind::weight, {2, 3}), entry("bn.weight", ParameterKind::bn_scale, {3}),
                  entry("bn.running_mean", ParameterKind::bn_mean, {3})},
                 pool_, pool_, 1) {}

    static NamedTensor tensor(const char* name, Shape shape, std::span<const float> values) {
        return {name, DataType::f32, std::move(shape), std::as_bytes(values)};
    }

    HeapPool pool_;
    ReversingBackend backend_;
    ParameterArena arena_;
    std::vector<float> six_{1, 2, 3, 4, 5, 6}, three_{7, 8, 9};
};

TEST_F(ArenaTensors, GoOutPlainAndComeBackEqual) {
    for (size_t index = 0; index < arena_.values().size(); ++index) arena_.values()[index] = static_cast<float>(index);
    const PlainTensors plain(backend_, arena_, arena_.values(), EntrySet::all);
    ASSERT_EQ(plain.tensors().size(), 3U);
    EXPECT_EQ(plain.tensors()[0].shape, (Shape{2, 3}));
    EXPECT_EQ(reinterpret_cast<const float*>(plain.tensors()[0].bytes.data())[0], 5.0F);
    const TensorMatch match = match_tensors(arena_, plain.tensors(), EntrySet::all);
    EXPECT_TRUE(match.complete());
    load_tensors(backend_, arena_, plain.tensors(), match, arena_.state(0), "test");
    for (size_t index = 0; index < 6; ++index) EXPECT_EQ(arena_.state(0)[index], static_cast<float>(index));
}

TEST_F(ArenaTensors, OptimizerStateHasTrainableEntriesOnly) {
    EXPECT_EQ(PlainTensors(backend_, arena_, arena_.state(0), EntrySet::trainable).tensors().size(), 2U);
}

TEST_F(ArenaTensors, AnImageHoldsTheBytesOfAWrittenFileHoweverOftenItIsFilled) {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / fmt::format("image-{}", getpid());
    ArenaImage image(arena_, EntrySet::all);
    for (const float first : {1.0F, -7.5F}) {
        for (size_t index = 0; index < arena_.values().size(); ++index) arena_.values()[index] = first + static_cast<float>(index);
        EXPECT_EQ(image.fill(backend_, arena_, arena_.values()), "");
        write_safetensors(path, PlainTensors(backend_, arena_, arena_.values(), EntrySet::all).tensors(), {{"format", "pt"}});
        const std::string_view bytes(reinterpret_cast<const char*>(image.bytes().data()), image.bytes().size());
        EXPECT_EQ(read_file(path), bytes);
    }
    std::filesystem::remove(path);
}

TEST_F(ArenaTensors, AnImageNamesATensorThatIsNotFiniteWhereverTheValueLies) {
    ArenaImage image(arena_, EntrySet::all);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        for (size_t at = 0; at < 3; ++at) {
            arena_.value(1)[at] = bad;
            EXPECT_EQ(image.fill(backend_, arena_, arena_.values()), "bn.weight");
            arena_.value(1)[at] = 3e38F;
            EXPECT_EQ(image.fill(backend_, arena_, arena_.values()), "");
        }
    }
}

TEST_F(ArenaTensors, ListsEveryMissingExtraMisshapenAndMistypedTensor) {
    const std::vector<NamedTensor> tensors{tensor("fc.weight", {3, 2}, six_),
                                           {"bn.weight", DataType::i32, {3}, std::as_bytes(std::span(three_))},
                                           tensor("fc.bias", {3}, three_)};
    const std::string list = match_tensors(arena_, tensors, EntrySet::all).list();
    EXPECT_THAT(list, testing::HasSubstr("misshapen fc.weight: found 3x2, wanted 2x3"));
    EXPECT_THAT(list, testing::HasSubstr("mistyped bn.weight: found i32, wanted f32"));
    EXPECT_THAT(list, testing::HasSubstr("missing bn.running_mean"));
    EXPECT_THAT(list, testing::HasSubstr("extra fc.bias"));
}

TEST_F(ArenaTensors, IgnoresTheCounterOtherProgramsStore) {
    const std::vector<NamedTensor> tensors{tensor("fc.weight", {2, 3}, six_),
                                           tensor("bn.weight", {3}, three_),
                                           tensor("bn.running_mean", {3}, three_),
                                           {"bn.num_batches_tracked", DataType::i64, {}, std::as_bytes(std::span(six_)).first(8)}};
    EXPECT_TRUE(match_tensors(arena_, tensors, EntrySet::all).complete());
}

TEST_F(ArenaTensors, NamesACommonPrefix) {
    const std::vector<NamedTensor> tensors{tensor("module.fc.weight", {2, 3}, six_), tensor("module.bn.weight", {3}, three_)};
    EXPECT_THAT(match_tensors(arena_, tensors, EntrySet::all).list(), testing::HasSubstr("all names begin with \"module.\""));
    const std::vector<NamedTensor> mixed{tensor("module.fc.weight", {2, 3}, six_), tensor("other", {3}, three_)};
    EXPECT_EQ(match_tensors(arena_, mixed, EntrySet::all).common_prefix, "");
}

TEST_F(ArenaTensors, RefusesNonFiniteValuesAndThenLoadsNothing) {
    three_[1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<NamedTensor> tensors{tensor("fc.weight", {2, 3}, six_), tensor("bn.weight", {3}, three_)};
    const TensorMatch match = match_tensors(arena_, tensors, EntrySet::trainable);
    EXPECT_THROW(load_tensors(backend_, arena_, tensors, match, arena_.values(), "start.safetensors"), DataError);
    EXPECT_EQ(arena_.values()[0], 0.0F);
}

}  // namespace
}  // namespace lockstep
