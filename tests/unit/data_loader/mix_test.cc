#include <cmath>
#include <map>
#include <set>

#include "core/hash.h"
#include "data_loader/loader.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

TEST(Mix, SharesFollowTheBetaDistribution) {
    for (const double alpha : {0.01, 0.2, 1.0, 5.0}) {
        RandomStream random(3, "beta");
        constexpr int kDraws = 20'000;
        double sum = 0.0, squares = 0.0;
        for (int draw = 0; draw < kDraws; ++draw) {
            const double share = draw_beta(alpha, random);
            ASSERT_TRUE(share >= 0.0 && share <= 1.0) << alpha;
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
        }
        const double variance = 1.0 / (4.0 * (2.0 * alpha + 1.0));
        EXPECT_NEAR(sum / kDraws, 0.5, 5.0 * std::sqrt(variance / kDraws));
        EXPECT_NEAR(squares / kDraws, variance, 0.05 * variance);
    }
}

TEST(Mix, MixUpBlendsEachImageWithTheOneBefore) {
    std::vector<float> images{1, 1, 2, 2, 4, 4}, scratch;
    const std::vector<int32_t> labels{7, 8, 9};
    std::vector<int32_t> second(3);
    mix({.second_share = 0.25F}, {2, 1}, images, labels, second, scratch);
    EXPECT_EQ(images, (std::vector<float>{1.75F, 1.75F, 1.75F, 1.75F, 3.5F, 3.5F}));
    EXPECT_EQ(second, (std::vector<int32_t>{9, 7, 8}));
}

TEST(Mix, CutMixPastesOneBoxAndItsAreaIsTheShare) {
    constexpr ImageSize kSize{16, 8};
    RandomStream random(5, "cut");
    std::set<float> shares;
    for (int round = 0; round < 100; ++round) {
        std::vector<float> images(2 * 3 * 128, 1.0F), scratch;
        std::fill(images.begin() + 3 * 128, images.end(), 2.0F);
        const std::vector<int32_t> labels{0, 1};
        std::vector<int32_t> second(2);
        const Mixture mixture = draw_mixture({.cutmix = 1.0}, kSize, random);
        mix(mixture, kSize, images, labels, second, scratch);
        const auto pasted = std::count(images.begin(), images.begin() + 3 * 128, 2.0F);
        EXPECT_EQ(std::count(images.begin() + 3 * 128, images.end(), 1.0F), pasted);
        EXPECT_FLOAT_EQ(mixture.second_share, static_cast<float>(pasted) / (3 * 128));
        shares.insert(mixture.second_share);
    }
    EXPECT_GT(shares.size(), 20U);
}

class MixedLoaderTest : public ScratchTest {
protected:
    struct Seen {
        uint64_t images;
        std::vector<int32_t> labels, second_labels;
        float share;
        bool operator==(const Seen&) const = default;
    };
    using Key = std::tuple<int64_t, int64_t, int64_t>;  // epoch, step, virtual worker

    static std::map<Key, Seen> train(const Source& source, int world_size, int threads) {
        const SamplerOptions sampler{.sample_count = source.size(), .batch_global = 12, .per_replica = 4, .seed = 7};
        const LoaderOptions options{.pipeline = {.transforms = {{.kind = Transform::Kind::random_crop, .height = 32, .width = 32}},
                                                 .height = 32,
                                                 .width = 32,
                                                 .seed = 7},
                                    .mix = {.mixup = 0.5, .cutmix = 1.0},
                                    .worker_threads = threads};
        std::map<Key, Seen> seen;
        for (int rank = 0; rank < world_size; ++rank) {
            const auto loader =
                make_train_loader(source, {.sampler = sampler, .rank = rank, .world_size = world_size, .stop_step = 12}, options);
            while (const std::optional<Batch> batch = loader->next()) {
                seen[{batch->epoch, batch->step_in_epoch, batch->worker}] = {
                    .images = hash_bytes(batch->images.data(), batch->images.size_bytes()),
                    .labels = {batch->labels.begin(), batch->labels.end()},
                    .second_labels = {batch->second_labels.begin(), batch->second_labels.end()},
                    .share = batch->second_share};
            }
        }
        return seen;
    }
};

TEST_F(MixedLoaderTest, MixturesDependOnNeitherRanksNorThreads) {
    const auto source = open_source({.path = case_file("sets/set101/train").string()});
    const auto reference = train(*source, 1, 1);
    EXPECT_EQ(reference.size(), 36U - 1U);  // the short last step of the epoch: 101 = 8 * 12 + 5
    EXPECT_EQ(train(*source, 1, 5), reference);
    EXPECT_EQ(train(*source, 3, 2), reference);
    std::set<float> shares;
    for (const auto& [key, seen] : reference) {
        shares.insert(seen.share);
        ASSERT_EQ(seen.labels.size(), seen.second_labels.size());
        for (size_t place = 0; place < seen.labels.size(); ++place) {
            EXPECT_EQ(seen.second_labels[place], seen.labels[(place + seen.labels.size() - 1) % seen.labels.size()]);
        }
    }
    EXPECT_GT(shares.size(), 25U);
}

}  // namespace
}  // namespace lockstep
