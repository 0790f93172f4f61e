// What `bench loader` measures and how it tells it; never how fast this machine is.
#include "bench/loader_bench.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

LoaderBenchOptions small(std::vector<int> threads) {
    return {.pipeline = {.transforms = {{.kind = Transform::Kind::random_resized_crop, .height = 8, .width = 8},
                                        {.kind = Transform::Kind::horizontal_flip}},
                         .height = 8,
                         .width = 8},
            .threads = std::move(threads),
            .images = 12,
            .rounds = 3,
            .batch = 5};
}

std::string case_path(const std::string& name) { return std::string(LOCKSTEP_TESTS_DIR) + "/cases/" + name; }

std::vector<std::string> rows_of(const LoaderBenchResult& result) {
    std::vector<std::string> rows;
    for (const LoaderBenchRow& row : result.rows) rows.push_back(row.what + " " + std::to_string(row.threads));
    return rows;
}

TEST(LoaderBench, EveryContestantHasARowAtEveryNumberOfThreads) {
    const auto source = open_source({.path = case_path("sets/set101/train")});
    LoaderBenchOptions options = small({1, 2});
    options.consumer_images_per_s = 5000.0;
    const LoaderBenchResult result = run_loader_bench(*source, options);
    EXPECT_EQ(rows_of(result),
              (std::vector<std::string>{"read 1", "libjpeg-turbo 1", "pipeline 1", "loader 1", "loader, paced 1", "read 2",
                                        "libjpeg-turbo 2", "pipeline 2", "loader 2", "loader, paced 2"}));
    EXPECT_EQ(result.images, 12);
    EXPECT_EQ(result.left_out, 0);
    EXPECT_EQ(result.mean_pixels, 32.0 * 32.0);
    for (const LoaderBenchRow& row : result.rows) {
        SCOPED_TRACE(row.what);
        EXPECT_GT(row.images_per_s.smallest, 0.0);
        EXPECT_LE(row.images_per_s.smallest, row.images_per_s.median);
        EXPECT_GT(row.of_libjpeg, 0.0);
        EXPECT_GT(row.cpu_us, 0.0);
        EXPECT_GE(row.wait_share, 0.0);
        EXPECT_LE(row.wait_share, 1.0);
        const bool ring = row.what.starts_with("loader");
        for (const double stage_us : row.stage_us) EXPECT_EQ(stage_us > 0.0, ring || row.what == "pipeline");
        EXPECT_EQ(row.start_ms > 0.0, ring);
    }
    EXPECT_EQ(result.rows[1].of_libjpeg, 1.0);
}

TEST(LoaderBench, ASetWithoutJpegFilesHasNoYardstick) {
    const auto source = open_source({.kind = "synthetic", .synthetic_size = 40, .image_size = 16});
    const LoaderBenchResult result = run_loader_bench(*source, small({1}));
    EXPECT_EQ(rows_of(result), (std::vector<std::string>{"read 1", "pipeline 1", "loader 1"}));
    EXPECT_EQ(result.mean_bytes, 3.0 * 16 * 16);
    EXPECT_EQ(result.rows[1].of_libjpeg, 0.0);
}

TEST(LoaderBench, BadImagesAndOtherFormatsAreLeftOutAndCounted) {
    const auto source = open_source({.path = case_path("")});  // img/ and more; some are damaged, some PNG
    LoaderBenchOptions options = small({2});
    options.images = 0;
    options.rounds = 1;
    const LoaderBenchResult result = run_loader_bench(*source, options);
    EXPECT_GT(result.left_out, 8);
    EXPECT_EQ(result.images + result.left_out, source->size());
}

TEST(LoaderBench, NoGoodImageIsAnErrorWithAReason) {
    LoaderBenchOptions options = small({1});
    options.pipeline.transforms.clear();  // the set's pictures are larger
    const auto source = open_source({.path = case_path("sets/set101/train")});
    try {
        run_loader_bench(*source, options);
        FAIL();
    } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("add resize or a crop"));
    }
}

TEST(LoaderBenchOutput, JsonTextAndPictureNameEveryRow) {
    const auto source = open_source({.path = case_path("sets/set101/train")});
    const LoaderBenchResult result = run_loader_bench(*source, small({1, 2}));
    const auto json = nlohmann::json::parse(to_json(result));
    EXPECT_EQ(json.at("benchmark"), "loader");
    ASSERT_EQ(json.at("rows").size(), result.rows.size());
    EXPECT_EQ(json.at("rows").at(6).at("per_thread").get<double>(), result.rows[6].images_per_s.median / 2);
    EXPECT_EQ(json.at("rows").at(2).at("stage_us").size(), kStageCount);
    EXPECT_TRUE(json.at("machine").contains("cpu"));
    const std::string text = to_text(result), picture = to_svg(result);
    for (const LoaderBenchRow& row : result.rows) EXPECT_THAT(text, HasSubstr(row.what));
    for (const auto stage : kStageNames) EXPECT_THAT(picture, HasSubstr(std::string(stage) + "</text>"));
    EXPECT_THAT(picture, HasSubstr("libjpeg-turbo, 2 threads"));
    EXPECT_THAT(picture, testing::EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace lockstep::bench
