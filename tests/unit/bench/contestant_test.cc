// One process of a contestant, with the test in the driver's place.
#include "bench/contestant.h"

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "bench/contestant_group.h"
#include "core/files.h"
#include "core/temporary_folder.h"
#include "core/tensor.h"

namespace lockstep::bench {
namespace {

// An allreduce over one rank is nothing to do; `harm` may spoil the result.
class SoloAllreducer final : public Allreducer {
public:
    explicit SoloAllreducer(std::function<void(TensorViews)> harm) : harm_(std::move(harm)) {}
    std::string version() const override { return "solo"; }
    std::span<float> buffer() override { return buffer_.f32(); }
    void prepare(TensorViews unit) override { unit_ = unit; }
    void allreduce() override { harm_(unit_); }

private:
    HeapPool pool_;
    Buffer buffer_ = pool_.allocate(1000 * sizeof(float));
    std::function<void(TensorViews)> harm_;
    TensorViews unit_;
};

class ContestantTest : public ::testing::Test {
protected:
    TurnResult take(
        const Turn& turn, std::function<void(TensorViews)> harm = [](TensorViews) {}) {
        for (const auto& left : fs::directory_iterator(folder_)) fs::remove(left.path());  // a benchmark's folder is new
        const ControlListener listener((folder_ / "control").string());
        const ContestantPlan plan{
            .control = (folder_ / "control").string(), .folder = folder_.string(), .number = 3, .buffer_count = 1000};
        SoloAllreducer library(std::move(harm));
        std::thread rank([&] { take_turns(plan, 0, library); });
        pollfd ready{.fd = listener.descriptor(), .events = POLLIN};
        poll(&ready, 1, 10'000);
        FileHandle socket = listener.accept_one();
        hello_ = Hello::from_json(line(socket));
        const std::string text = turn.to_json() + "\n";
        EXPECT_EQ(send(socket.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
        const TurnResult result = TurnResult::from_json(line(socket));
        socket = FileHandle();  // hanging up ends the rank
        rank.join();
        return result;
    }

    static std::string line(const FileHandle& socket) {
        std::string text;
        for (char letter = 0; recv(socket.get(), &letter, 1, 0) == 1 && letter != '\n';) text += letter;
        return text;
    }

    const TemporaryFolder scratch_{"lockstep-contestant"};
    const fs::path folder_ = scratch_.path();
    Hello hello_;
};

TEST_F(ContestantTest, SaysWhoItIsAndGivesOneTimePerCall) {
    const TurnResult result = take({.counts = {100}, .iterations = 4});
    EXPECT_EQ(hello_.number, 3);
    EXPECT_EQ(hello_.version, "solo");
    EXPECT_EQ(result.us.size(), 4U);
    EXPECT_EQ(result.wrong, "");
}

TEST_F(ContestantTest, EveryCallFindsNewValuesInEveryElement) {
    std::vector<std::vector<float>> seen;
    take({.counts = {100}, .iterations = 2, .seed = 5},
         [&](TensorViews unit) { seen.emplace_back(unit[0].begin(), unit[0].end()); });
    ASSERT_EQ(seen.size(), 3U);  // the first is not timed
    int same = 0;
    for (size_t element = 0; element < 100; ++element) same += seen[1][element] == seen[2][element] ? 1 : 0;
    EXPECT_LT(same, 5);
}

TEST_F(ContestantTest, OneWrongElementOfTheLastTensorIsFoundAndNamed) {
    const TurnResult result = take({.counts = {16, 33}, .iterations = 1}, [](TensorViews unit) { unit[1][32] += 1.0F; });
    EXPECT_NE(result.wrong.find("1 of 33 elements are wrong; element 32"), std::string::npos) << result.wrong;
}

TEST_F(ContestantTest, TensorsBeginOnCacheLinesUnlessTheTurnMovesThem) {
    std::vector<const float*> starts;
    const auto look = [&](TensorViews unit) {
        starts.clear();
        for (const std::span<float> tensor : unit) starts.push_back(tensor.data());
    };
    take({.counts = {3, 17, 5}}, look);
    EXPECT_EQ(starts[1] - starts[0], 16);
    EXPECT_EQ(starts[2] - starts[1], 32);
    const auto place_in_line = [&] { return reinterpret_cast<uintptr_t>(starts[0]) % 64; };
    EXPECT_EQ(place_in_line(), 0U);
    take({.counts = {3}, .shift = 1}, look);
    EXPECT_EQ(place_in_line(), 4U);
}

TEST(ContestantPlanTest, ComesThroughTextUnchanged) {
    const ContestantPlan plan{.control = "c",
                              .folder = "f",
                              .number = 2,
                              .rank = 1,
                              .rank_count = 4,
                              .ranks_per_node = 2,
                              .cores_per_rank = 1,
                              .yields = true,
                              .store_host = "h",
                              .interface = "i",
                              .buffer_count = 9,
                              .settings = {{"a", "b"}}};
    EXPECT_EQ(ContestantPlan::from_json(plan.to_json()).to_json(), plan.to_json());
    EXPECT_EQ(plan.setting("a"), "b");
    EXPECT_EQ(plan.setting("c"), "");
}

}  // namespace
}  // namespace lockstep::bench
