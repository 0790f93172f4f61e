// `lockstep bench kernels`: that each kernel is there once with the bytes it must move. No test looks at how fast anything is.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/kernels_bench.h"
#include "core/error.h"

namespace lockstep::bench {
namespace {

KernelsBenchOptions tiny() { return {.repeats = 1, .images = 2, .channels = 8, .side = 9, .parameters = 100}; }

const KernelTime& find(const KernelsBenchResult& result, const std::string& kernel, const std::string& part) {
    const auto found =
        std::ranges::find_if(result.kernels, [&](const KernelTime& k) { return k.kernel == kernel && k.part == part; });
    EXPECT_NE(found, result.kernels.end()) << kernel << " " << part;
    return *found;
}

TEST(KernelsBench, TellsWhatEachKernelMustMove) {
    const KernelsBenchResult result = run_kernels_bench(tiny());
    const double tensor = 2 * 8 * 9 * 9 * 4, pooled = 2 * 8 * 4 * 4 * 4;
    EXPECT_EQ(find(result, "sigmoid", "forward").bytes, 2 * tensor);
    EXPECT_EQ(find(result, "sigmoid", "backward").bytes, 3 * tensor);
    EXPECT_EQ(find(result, "add", "forward").bytes, 3 * tensor);
    EXPECT_EQ(find(result, "average pooling 3x3/2", "forward").bytes, tensor + pooled);
    EXPECT_EQ(find(result, "max pooling 3x3/2", "backward").bytes, tensor + pooled + pooled / 4);  // a byte for each winner
    EXPECT_EQ(find(result, "SGD update", "update").bytes, 5 * 4 * 100);
    // Sums and statistics per channel come on top.
    EXPECT_NEAR(find(result, "batch norm + sigmoid", "forward").bytes, 2 * tensor, 0.1 * tensor);
    EXPECT_NEAR(find(result, "batch norm + sigmoid", "backward").bytes, 4 * tensor, 0.1 * tensor);
    EXPECT_NEAR(find(result, "batch norm + add + ReLU", "forward").bytes, (3 + 1.0 / 32) * tensor, 0.1 * tensor);
    EXPECT_GT(result.copy_gb_per_s, 0.0);
    for (const KernelTime& kernel : result.kernels) EXPECT_GT(kernel.ms, 0.0) << kernel.kernel;
}

TEST(KernelsBench, WritesJson) {
    KernelsBenchResult result{.options = tiny(), .copy_gb_per_s = 20.0};
    result.kernels.push_back({.kernel = "sigmoid", .part = "forward", .code = "own", .bytes = 1e9, .ms = 100.0});
    const auto json = nlohmann::json::parse(to_json(result));
    EXPECT_DOUBLE_EQ(json.at("kernels").at(0).at("gb_per_s"), 10.0);
    EXPECT_DOUBLE_EQ(json.at("kernels").at(0).at("share_of_copy"), 0.5);
}

TEST(KernelsBench, RefusesNothingToMeasure) {
    KernelsBenchOptions options = tiny();
    options.repeats = 0;
    EXPECT_THROW(run_kernels_bench(options), ConfigError);
    options = tiny();
    options.backend = "reference";
    EXPECT_THROW(run_kernels_bench(options), ConfigError);
}

}  // namespace
}  // namespace lockstep::bench
