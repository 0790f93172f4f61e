#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "optim/learning_rate.h"
#include "optim/optimizer.h"

namespace lockstep {
namespace {

ParameterEntry entry(const std::string& name, ParameterKind kind, Shape shape, int64_t padding = 0) {
    ParameterEntry made{.spec = {.name = name, .kind = kind, .shape = std::move(shape)}};
    made.physical_count = element_count(made.spec.shape) + padding;
    return made;
}

// A statistic that keeps more of its past than the others.
ParameterEntry slow_average(const std::string& name) {
    ParameterEntry made = entry(name, ParameterKind::bn_mean, {16});
    made.spec.keep = 0.999F;
    return made;
}

// One entry of every kind; the large one spans several chunks.
ParameterArena make_arena() {
    HeapPool pool;
    return ParameterArena(
        {entry("fc.weight", ParameterKind::weight, {10, 33}), entry("fc.bias", ParameterKind::bias, {10}, 6),
         entry("bn.weight", ParameterKind::bn_scale, {16}), entry("bn.bias", ParameterKind::bn_shift, {16}),
         entry("bn.running_mean", ParameterKind::bn_mean, {16}), entry("bn.running_var", ParameterKind::bn_variance, {16}),
         slow_average("other.running_mean"), entry("conv.weight", ParameterKind::weight, {200, 100, 3, 1})},
        pool, pool, 1);
}

void fill(std::span<float> data, uint64_t key, float scale = 1.0F) {
    RandomStream random(7, "test", key);
    for (float& value : data) value = scale * random.normal();
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The slow twin: PyTorch's torch.optim.SGD written plainly, in double, one element at a time.
struct PlainSgd {
    SgdOptions options;
    std::vector<double> values, velocity;

    double decay(ParameterKind kind) const {
        if (kind == ParameterKind::weight) return options.weight_decay;
        if (kind == ParameterKind::bias) return options.decay_bias ? options.weight_decay : 0.0;
        return options.decay_batch_norm ? options.weight_decay : 0.0;
    }

    void step(const ParameterArena& arena, double rate, double images) {
        for (size_t index = 0; index < arena.entries().size(); ++index) {
            const ParameterEntry& place = arena.entries()[index];
            if (place.spec.kind == ParameterKind::control) continue;
            for (int64_t at = place.offset; at < place.offset + place.physical_count; ++at) {
                const auto spot = static_cast<size_t>(at);
                const double mean_gradient = static_cast<double>(arena.gradients()[spot]) / images;
                if (is_statistic(place.spec.kind)) {
                    const double keep = place.spec.keep;
                    values[spot] = keep * values[spot] + (1.0 - keep) * mean_gradient;
                    continue;
                }
                const double gradient = mean_gradient + decay(place.spec.kind) * values[spot];
                velocity[spot] = options.momentum * velocity[spot] + gradient;
                values[spot] -= rate * (options.nesterov ? gradient + options.momentum * velocity[spot] : velocity[spot]);
            }
        }
    }
};

double relative_distance(std::span<const float> a, std::span<const double> b) {
    double difference = 0.0;
    double norm = 0.0;
    for (size_t index = 0; index < a.size(); ++index) {
        difference += std::pow(static_cast<double>(a[index]) - b[index], 2);
        norm += std::pow(b[index], 2);
    }
    return std::sqrt(difference / norm);
}

double rate_of(int64_t step) {  // a rise and a drop, as in a real run
    return LearningRate({.shape = LearningRateOptions::Shape::step,
                         .base = 0.1,
                         .base_batch = 32,
                         .batch_global = 256,
                         .warmup_steps = 10,
                         .step_at = {15}})
        .at(step);
}

// Runs 20 steps and returns the values.
std::vector<float> run(ParameterArena& arena, const SgdOptions& options, int threads = 1) {
    fill(arena.values(), 1);
    fill(arena.state(0), 0, 0.0F);
    const auto optimizer = make_sgd(options, threads);
    for (int64_t step = 0; step < 20; ++step) {
        fill(arena.gradients(), 100 + static_cast<uint64_t>(step), 256.0F);
        optimizer->step(arena, {.rate = rate_of(step), .images = 256.0});
    }
    return {arena.values().begin(), arena.values().end()};
}

std::vector<double> run_plain(ParameterArena& arena, const SgdOptions& options) {
    fill(arena.values(), 1);
    PlainSgd plain{options, {arena.values().begin(), arena.values().end()}, {}};
    plain.velocity.assign(plain.values.size(), 0.0);
    for (int64_t step = 0; step < 20; ++step) {
        fill(arena.gradients(), 100 + static_cast<uint64_t>(step), 256.0F);
        plain.step(arena, rate_of(step), 256.0);
    }
    return plain.values;
}

class SgdForms : public testing::TestWithParam<std::tuple<bool, bool, bool>> {};

// Tolerance: 20 steps of float against double arithmetic.
TEST_P(SgdForms, EqualsPyTorchsFormulaWhileTheRateChanges) {
    const auto [nesterov, folded, decay_all] = GetParam();
    const SgdOptions options{
        .nesterov = nesterov, .folded = folded, .weight_decay = 0.01, .decay_batch_norm = decay_all, .decay_bias = decay_all};
    ParameterArena arena = make_arena();
    const std::vector<float> fast = run(arena, options);
    EXPECT_LT(relative_distance(fast, run_plain(arena, options)), 1e-6);
}
INSTANTIATE_TEST_SUITE_P(All, SgdForms, testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

TEST(Sgd, FoldedAndUnfoldedMomentumAgreeWhileTheRateChanges) {
    ParameterArena arena = make_arena();
    const std::vector<float> folded = run(arena, {.folded = true});
    const std::vector<float> unfolded = run(arena, {.folded = false});
    EXPECT_LT(relative_distance(folded, std::vector<double>(unfolded.begin(), unfolded.end())), 1e-6);
}

// Pitfall 2 of the large-batch recipe: without momentum correction the folded form is another optimizer. The mutant forgets the
// previous rate before each step, which is what leaving the correction out amounts to.
TEST(Sgd, WithoutMomentumCorrectionTheFoldedFormWouldDiffer) {
    ParameterArena arena = make_arena();
    const SgdOptions options{.folded = true};
    const std::vector<double> right = run_plain(arena, options);
    fill(arena.values(), 1);
    for (float& velocity : arena.state(0)) velocity = 0.0F;
    const auto mutant = make_sgd(options, 1);
    for (int64_t step = 0; step < 20; ++step) {
        fill(arena.gradients(), 100 + static_cast<uint64_t>(step), 256.0F);
        mutant->restore_scalars({{"previous_rate", 0.0}});
        mutant->step(arena, {.rate = rate_of(step), .images = 256.0});
    }
    EXPECT_GT(relative_distance(arena.values(), right), 1e-3);
}

// Pitfall 1: scaling the loss (here: dividing by the local instead of the global batch) and unscaling the rate is not the same,
// because weight decay is a term of its own.
TEST(Sgd, WeightDecayIsATermOfItsOwnSoCancellingTheScaleDiffers) {
    const SgdOptions options{.momentum = 0.0, .nesterov = false, .weight_decay = 0.1};
    ParameterArena arena = make_arena();
    fill(arena.values(), 1);
    fill(arena.gradients(), 2);
    const std::vector<float> start(arena.values().begin(), arena.values().end());
    make_sgd(options, 1)->step(arena, {.rate = 0.8, .images = 256.0});
    const std::vector<float> right(arena.values().begin(), arena.values().end());
    std::copy(start.begin(), start.end(), arena.values().begin());
    make_sgd(options, 1)->step(arena, {.rate = 0.1, .images = 32.0});  // same gradient term, an eighth of the decay
    EXPECT_GT(relative_distance(arena.value(0), std::vector<double>(right.begin(), right.begin() + 330)), 1e-2);
}

// Pitfall 3: the sum over all ranks is divided by the images of the global batch, once.
TEST(Sgd, DividesTheSummedGradientByTheGlobalBatch) {
    ParameterArena arena = make_arena();
    for (float& gradient : arena.gradients()) gradient = 64.0F;
    make_sgd({.momentum = 0.0, .nesterov = false, .weight_decay = 0.0}, 1)->step(arena, {.rate = 0.5, .images = 64.0});
    EXPECT_FLOAT_EQ(arena.value(0)[0], -0.5F);
    EXPECT_FLOAT_EQ(arena.value(4)[0], 0.1F);  // running mean of batches whose mean is 1
}

// One step with decay 0 and one with 0.1 differ by rate * decay * w on weights, by nothing elsewhere.
TEST(Sgd, DecaysConvolutionAndFullyConnectedWeightsOnlyUnlessAskedForAll) {
    ParameterArena arena = make_arena();
    const auto step_with = [&arena](double decay, bool all) {
        fill(arena.values(), 1);
        fill(arena.gradients(), 2);
        const SgdOptions options{
            .momentum = 0.0, .nesterov = false, .weight_decay = decay, .decay_batch_norm = all, .decay_bias = all};
        make_sgd(options, 1)->step(arena, {.rate = 0.1, .images = 1.0});
        return std::vector<float>(arena.values().begin(), arena.values().end());
    };
    fill(arena.values(), 1);
    const std::vector<float> start(arena.values().begin(), arena.values().end());
    const std::vector<float> without = step_with(0.0, false);
    for (const bool all : {false, true}) {
        const std::vector<float> with = step_with(0.1, all);
        for (const ParameterEntry& place : arena.entries()) {
            const ParameterKind kind = place.spec.kind;
            const bool decays = kind == ParameterKind::weight || (all && is_trainable(kind));
            for (int64_t at = place.offset; at < place.offset + place.physical_count; ++at) {
                const auto spot = static_cast<size_t>(at);
                if (decays) {
                    EXPECT_NEAR(with[spot] - without[spot], -0.01F * start[spot], 1e-6) << place.spec.name;
                } else {
                    EXPECT_EQ(with[spot], without[spot]) << place.spec.name;
                }
            }
        }
    }
}

TEST(Sgd, LeavesControlAndPaddingAlone) {
    ParameterArena arena = make_arena();
    for (float& value : arena.control()) value = 3.0F;
    make_sgd({}, 1)->step(arena, {.rate = 1.0, .images = 1.0});
    EXPECT_EQ(arena.value(arena.entries().size() - 1)[0], 0.0F);
    EXPECT_EQ(arena.control()[0], 3.0F);
}

TEST(Sgd, ResultDoesNotDependOnTheNumberOfThreads) {
    ParameterArena one = make_arena();
    ParameterArena three = make_arena();
    EXPECT_TRUE(same_bits(run(one, {}, 1), run(three, {}, 3)));
    const GradientHealth alone = make_sgd({}, 1)->inspect(one, 256.0);
    const GradientHealth together = make_sgd({}, 3)->inspect(three, 256.0);
    EXPECT_EQ(alone.squared_norm, together.squared_norm);
}

TEST(Sgd, NormIsThatOfTheMeanGradientOfTrainableEntries) {
    ParameterArena arena = make_arena();
    fill(arena.gradients(), 5);
    double sum = 0.0;
    for (size_t index = 0; index < arena.entries().size(); ++index) {
        if (!is_trainable(arena.entries()[index].spec.kind)) continue;
        for (const float gradient : arena.gradient(index)) sum += std::pow(static_cast<double>(gradient) / 10.0, 2);
    }
    EXPECT_NEAR(make_sgd({}, 1)->inspect(arena, 10.0).squared_norm / sum, 1.0, 1e-12);
}

TEST(Sgd, InspectNamesTheFirstBadEntryAndChangesNothing) {
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        ParameterArena arena = make_arena();
        fill(arena.gradients(), 5);
        const auto optimizer = make_sgd({}, 2);
        EXPECT_EQ(optimizer->inspect(arena, 1.0).first_bad_entry, -1);
        arena.gradient(6).back() = poison;
        EXPECT_EQ(optimizer->inspect(arena, 1.0).first_bad_entry, 6);
        arena.gradient(4)[3] = poison;
        EXPECT_EQ(optimizer->inspect(arena, 1.0).first_bad_entry, 4);
        EXPECT_EQ(arena.value(0)[0], 0.0F);
    }
}

TEST(Sgd, LargeFiniteGradientsAreNotTakenForInfinite) {
    ParameterArena arena = make_arena();
    for (float& gradient : arena.gradient(6)) gradient = std::numeric_limits<float>::max();
    EXPECT_EQ(make_sgd({}, 1)->inspect(arena, 1.0).first_bad_entry, -1);
}

TEST(Sgd, ContinuesBitEquallyFromItsStateAndScalars) {
    const SgdOptions options{.folded = true};
    ParameterArena whole = make_arena();
    const std::vector<float> expected = run(whole, options);
    ParameterArena arena = make_arena();
    fill(arena.values(), 1);
    auto optimizer = make_sgd(options, 1);
    for (int64_t step = 0; step < 20; ++step) {
        const auto fresh = make_sgd(options, 1);  // a restart before every step
        fresh->restore_scalars(optimizer->scalars());
        fill(arena.gradients(), 100 + static_cast<uint64_t>(step), 256.0F);
        fresh->step(arena, {.rate = rate_of(step), .images = 256.0});
        optimizer->restore_scalars(fresh->scalars());
    }
    EXPECT_TRUE(same_bits(arena.values(), expected));
}

TEST(Sgd, RefusesWhatItCannotHonour) {
    EXPECT_THROW(make_sgd({.momentum = 1.0}, 1), ConfigError);
    EXPECT_THROW(make_sgd({.weight_decay = -1.0}, 1), ConfigError);
    EXPECT_THROW(make_sgd({}, 1)->restore_scalars({{"beta2", 0.99}}), DataError);
    ParameterArena arena = make_arena();
    EXPECT_THROW(make_sgd({.folded = true}, 1)->step(arena, {.rate = 0.0}), ConfigError);
}

// Two ranks with one copy of the values, each with the odd or even stretches of 48 floats: borders inside entries and chunks.
TEST(Sgd, SharedOutTheSameBitsComeOut) {
    for (const SgdOptions& options :
         {SgdOptions{}, SgdOptions{.nesterov = false, .decay_bias = true}, SgdOptions{.folded = true}}) {
        HeapPool pool;
        ParameterArena whole = make_arena();
        fill(whole.values(), 1);
        std::vector<ParameterArena> parts;
        for (int rank = 0; rank < 2; ++rank) {
            parts.push_back(make_arena());
            fill(parts.back().values(), 1);
        }
        Buffer common = pool.allocate(whole.values().size_bytes());
        for (int rank = 0; rank < 2; ++rank) {
            std::vector<ArenaRange> owned;
            for (int64_t offset = 48 * rank; offset < whole.total_count(); offset += 96) {
                owned.push_back({.offset = offset, .count = std::min<int64_t>(48, whole.total_count() - offset)});
            }
            parts[static_cast<size_t>(rank)].share_out(Buffer(common.data(), common.byte_count(), nullptr), owned, pool);
        }
        const auto sgd = make_sgd(options, 1);
        const auto first = make_sgd(options, 1);
        const auto second = make_sgd(options, 2);
        for (int64_t step = 0; step < 4; ++step) {
            fill(whole.gradients(), static_cast<uint64_t>(10 + step), 8.0F);
            for (ParameterArena& part : parts) std::ranges::copy(whole.gradients(), part.gradients().begin());
            const StepScale scale{.rate = rate_of(step), .images = 8.0};
            const double norm = first->inspect(parts[0], 8.0).squared_norm + second->inspect(parts[1], 8.0).squared_norm;
            // Sums of doubles in another order.
            EXPECT_NEAR(norm, sgd->inspect(whole, 8.0).squared_norm, 1e-12 * norm);
            sgd->step(whole, scale);
            first->step(parts[0], scale);
            second->step(parts[1], scale);
            ASSERT_TRUE(same_bits(whole.values(), common.f32().first(whole.values().size()))) << "step " << step;
        }
    }
}

TEST(Sgd, ABadGradientIsSeenByItsOwnerAlone) {
    HeapPool pool;
    ParameterArena arena = make_arena();
    arena.share_out(pool.allocate(arena.values().size_bytes()), {{.offset = 0, .count = 320}}, pool);
    arena.gradients()[330] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(make_sgd({}, 1)->inspect(arena, 1.0).first_bad_entry, -1);
    arena.gradients()[319] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(make_sgd({}, 1)->inspect(arena, 1.0).first_bad_entry, 0);
}

}  // namespace
}  // namespace lockstep
