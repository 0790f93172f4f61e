// The loader's statistics as metrics: arithmetic on two looks.
#include "trainer/data_metrics.h"

#include <gmock/gmock.h>

#include <cmath>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Values = std::vector<std::pair<std::string, double>>;

// After 40 batches of 8 images; 50 batches were made.
LoaderStatistics earlier() {
    return {.images = 320,
            .batches = 40,
            .wait_ns = 1'000'000'000,
            .made = 400,
            .ready_batches = 100,
            .read_bytes = 40'000'000,
            .workers = 2};
}

Values between(const LoaderStatistics& before, const LoaderStatistics& now, double seconds) {
    Values values{{"step", 7.0}};  // others' values stay in front
    add_data_metrics(before, now, seconds, values);
    EXPECT_EQ(values.front(), (std::pair<std::string, double>{"step", 7.0}));
    values.erase(values.begin());
    return values;
}

TEST(DataMetrics, AreThoseOfTheIntervalWhereTheyCanBe) {
    LoaderStatistics now = earlier();
    now.images += 80;
    now.batches += 10;
    now.wait_ns += 500'000'000;
    now.made = 500;
    now.ready_batches += 25;
    now.read_bytes = 50'000'000;
    now.bad_images = 3;
    now.workers = 4;
    now.stages = {500'000'000, 1'000'000'000, 250'000'000, 0, 250'000'000};  // two seconds for 500 images
    EXPECT_THAT(between(earlier(), now, 4.0),
                ElementsAre(Pair("data.wait_share", 0.125), Pair("data.images_per_s_per_thread", 250.0),
                            Pair("data.ready_batches", 2.5), Pair("data.read_mb_per_s", 2.0),  // 100 KB an image, 80 images in 4 s
                            Pair("data.workers", 4.0), Pair("data.bad_images", 3.0)));
}

TEST(DataMetrics, AnIntervalWithoutABatchHasNone) {
    LoaderStatistics now = earlier();
    now.wait_ns += 1;
    EXPECT_THAT(between(earlier(), now, 4.0), IsEmpty());
    now.batches += 1;
    EXPECT_THAT(between(earlier(), now, 0.0), IsEmpty());
    EXPECT_FALSE(between(earlier(), now, 4.0).empty());
}

// The wait may have begun before the interval, and a first batch may come before any statistics of the threads.
TEST(DataMetrics, StayFiniteAtTheEdges) {
    LoaderStatistics now = earlier();
    now.batches += 1;
    now.images += 8;
    now.wait_ns += 9'000'000'000;
    now.made = 0;
    now.read_bytes = 0;
    for (const auto& [key, value] : between(earlier(), now, 1.0)) {
        EXPECT_TRUE(std::isfinite(value)) << key;
        if (key == "data.wait_share") {
            EXPECT_EQ(value, 1.0);
        }
    }
}

}  // namespace
}  // namespace lockstep
