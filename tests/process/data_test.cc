// Real data of users through real runs: classes, lists, order, remainders, copies, bad pictures, batches of one.
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class DataTest : public JobTest {
protected:
    // Rows of `lockstep data order`, without the heading.
    static std::vector<std::string> order(const std::vector<std::string>& arguments) {
        std::vector<std::string> command = {lockstep_program(), "data", "list", tiny_config()};
        command.insert(command.end(), arguments.begin(), arguments.end());
        const Outcome outcome = run(command, 20.0, test_environment());
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        std::vector<std::string> rows;
        std::istringstream lines(outcome.output);
        std::string line;
        std::getline(lines, line);
        while (std::getline(lines, line)) rows.push_back(line);
        return rows;
    }
    static std::string column(const std::string& row, int index) {
        std::istringstream text(row);
        std::string word;
        for (int at = 0; at <= index; ++at) std::getline(text, word, '\t');
        return word;
    }
    static std::vector<std::string> samples_of_epoch(const std::vector<std::string>& rows, const std::string& epoch) {
        std::vector<std::string> samples;
        for (const std::string& row : rows) {
            if (column(row, 0) == epoch) samples.push_back(column(row, 4));
        }
        return samples;
    }
    // 22, 22 and 21 pictures of three classes.
    std::string sixty_five_pictures() const {
        int taken = 0;
        for (const char* name : {"blue", "green", "red"}) {
            std::set<fs::path> files;
            for (const auto& entry : fs::directory_iterator(sample_file(std::string("sets/set101/train/") + name))) {
                files.insert(entry.path());
            }
            fs::create_directories(folder_ / "65" / name);
            const int wanted = taken + (taken == 44 ? 21 : 22);
            for (const fs::path& file : files) {
                if (taken == wanted) break;
                fs::copy(file, folder_ / "65" / name / file.filename().string());
                ++taken;
            }
        }
        return (folder_ / "65").string();
    }
};

TEST_F(DataTest, ClassFoldersAreFoundTheRestIsIgnoredAndValidationUsesTheirNumbers) {
    const Outcome outcome =
        run_job(2, {"data.train.path=" + sample_file("sets/folders/train"), "data.val.path=" + sample_file("sets/folders/val"),
                    "data.train.pipeline=[center_crop: 32]", "model.arch=tiny_cnn", "batch.global=10", "batch.per_replica=5",
                    "lr.base=0.1", "lr.base_batch=10", "train.duration=100it", "train.log_every=50", "train.eval_every=100it"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("10 images, 4 classes, 4 other files ignored")) << outcome.output;
    ASSERT_EQ(metric("val.count").size(), 1U);
    EXPECT_EQ(metric("val.count").back().second, 6.0);
    EXPECT_EQ(metric("val.top1").back().second, 1.0);  // the pictures are learnt by heart: 6 of 6 only with the right numbers
}

TEST_F(DataTest, AnEmptyClassFolderIsWarnedOfOnceAndAClassOnlyInValidationIsAnError) {
    const std::string train = copy_case("sets/folders/train", "train");
    const std::string val = copy_case("sets/folders/val", "val");
    fs::create_directories(fs::path(train) / "e_empty");
    const std::vector<std::string> options = {"data.train.path=" + train, "data.val.path=" + val, "batch.global=10",
                                              "batch.per_replica=5", "train.duration=3it"};
    const Outcome empty = run_job(2, options);
    EXPECT_EQ(empty.exit_code, 0) << empty.output;
    EXPECT_EQ(count(empty.output, "warning:"), 1) << empty.output;
    EXPECT_TRUE(empty.says("class folder \"e_empty\" has no images")) << empty.output;
    fs::create_directories(fs::path(val) / "x_foreign");
    fs::copy(fs::path(val) / "a_red" / "s000.jpg", fs::path(val) / "x_foreign" / "s000.jpg");
    const Outcome foreign = run_job(2, options, "foreign");
    EXPECT_EQ(foreign.exit_code, 3) << foreign.output;
    EXPECT_TRUE(foreign.says("x_foreign")) << foreign.output;
    EXPECT_FALSE(foreign.says("step 1/")) << foreign.output;
}

TEST_F(DataTest, BadListsAreErrorsBeforeTheFirstStepWithLineTextAndRange) {
    struct Case {
        const char* name;
        std::vector<const char*> parts;
    };
    const auto train = [&](const std::string& name) {
        return run_job(2,
                       {"data.train.source=list", "data.train.path=" + sample_file("lists/" + name + ".txt"),
                        "data.val.path=", "model.num_classes=2", "batch.global=4", "batch.per_replica=2", "train.duration=3it"},
                       name);
    };
    for (const Case& item :
         {Case{"label_2_of_2", {"line 4", "im3.jpg 2", "[0, 1]"}}, Case{"label_minus1", {"line 4", "im3.jpg -1", "[0, 1]"}},
          Case{"label_one_based", {"line 2", "im1.jpg 2", "[0, 1]"}}, Case{"label_word", {"line 4", "cat", "[0, 1]"}},
          Case{"label_float", {"line 4", "1.5", "[0, 1]"}}, Case{"label_missing", {"line 4", "im3.jpg", "[0, 1]"}},
          Case{"label_2e32", {"line 4", "4294967297", "[0, 1]"}}, Case{"file_missing", {"line 5", "nope.jpg"}},
          Case{"empty", {"no line"}}}) {
        const Outcome outcome = train(item.name);
        EXPECT_EQ(outcome.exit_code, 3) << item.name << "\n" << outcome.output;
        EXPECT_TRUE(outcome.says(std::string(item.name) + ".txt")) << outcome.output;
        for (const char* part : item.parts) EXPECT_TRUE(outcome.says(part)) << part << "\n" << outcome.output;
        EXPECT_FALSE(outcome.says("[rank 1] error")) << "an error of all ranks is told once\n" << outcome.output;
        EXPECT_FALSE(outcome.says("step 1/")) << outcome.output;
    }
    EXPECT_EQ(train("ok_2classes").exit_code, 0);
}

TEST_F(DataTest, TheListedOrderDiffersByEpochAndComesAgainInASecondRun) {
    const std::vector<std::string> rows = order({"--epochs", "3", "--ranks", "2"});
    EXPECT_EQ(rows.size(), 303U);
    EXPECT_EQ(rows, order({"--epochs", "3", "--ranks", "2"}));
    std::set<std::vector<std::string>> orders;
    for (const char* epoch : {"0", "1", "2"}) {
        const std::vector<std::string> samples = samples_of_epoch(rows, epoch);
        EXPECT_EQ(std::set<std::string>(samples.begin(), samples.end()).size(), 101U) << "every sample once";
        orders.insert(samples);
    }
    EXPECT_EQ(orders.size(), 3U);
    std::set<std::string> ranks;
    for (const std::string& row : rows) ranks.insert(column(row, 2));
    EXPECT_EQ(ranks, (std::set<std::string>{"0", "1"}));
    EXPECT_NE(rows, order({"--epochs", "3", "--ranks", "2", "run.seed=8"}));
}

TEST_F(DataTest, WithoutShuffleTheOrderIsThatOfTheFiles) {
    const std::vector<std::string> rows = order({"--epochs", "1", "--ranks", "2", "data.shuffle=false"});
    for (size_t index = 0; index < rows.size(); ++index) EXPECT_EQ(column(rows[index], 4), std::to_string(index));
}

TEST_F(DataTest, TheRemainderIsKeptOrDroppedAndReported) {
    struct Case {
        const char* remainder;
        const char* images;
        size_t steps;
    };
    for (const Case& item :
         {Case{"keep", "101 images used, 0 dropped, 4 steps", 8}, Case{"drop", "99 images used, 2 dropped, 3 steps", 6}}) {
        const Outcome outcome = run_job(
            3, {"batch.global=33", "batch.per_replica=11", "train.duration=2ep", fmt::format("data.remainder={}", item.remainder)},
            item.remainder);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_TRUE(outcome.says(item.images)) << outcome.output;
        EXPECT_EQ(metric("train.loss", item.remainder).size(), item.steps);
        const auto report = nlohmann::json::parse(read_file(run_dir(item.remainder) + "/report.json"));
        EXPECT_EQ(report.at("run").at("extra").at("images per epoch"), item.images);
    }
}

TEST_F(DataTest, FiveImagesOfABatchOf64MakeAStepOrAnError) {
    for (int copy = 0; copy < 5; ++copy) copy_case("img/ref_rgb.jpg", fmt::format("five/{}/{}.jpg", copy % 2, copy));
    const std::vector<std::string> options = {"data.train.path=" + (folder_ / "five").string(), "data.val.path=", "batch.global=64",
                                              "batch.per_replica=8", "train.duration=3ep"};
    const auto with = [&](const char* remainder) {
        std::vector<std::string> all = options;
        all.push_back(fmt::format("data.remainder={}", remainder));
        return run_job(3, all, remainder);
    };
    EXPECT_EQ(with("keep").exit_code, 0);
    EXPECT_EQ(metric("train.loss", "keep").size(), 3U);
    const Outcome dropped = with("drop");
    EXPECT_EQ(dropped.exit_code, 2) << dropped.output;
    EXPECT_TRUE(dropped.says("5 images do not fill a global batch of 64")) << dropped.output;
    EXPECT_FALSE(dropped.says("[rank 1] error") || dropped.says("[rank 2] error")) << dropped.output;
}

TEST_F(DataTest, CopiesOfOnePictureTrainToTheSameBitsWhateverTheLoaderThreads) {
    for (int copy = 0; copy < 16; ++copy) copy_case("img/ref_rgb.jpg", fmt::format("copies/{}/{:02}.jpg", copy % 2, copy));
    const auto train = [&](const std::string& name, int workers, const char* pipeline) {
        const Outcome outcome =
            run_job(2,
                    {"data.train.path=" + (folder_ / "copies").string(), "data.val.path=", "batch.global=8", "batch.per_replica=2",
                     "train.duration=2ep", pipeline, fmt::format("data.workers={}", workers)},
                    name);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_FALSE(weights(name).empty());
    };
    const char* random = "data.train.pipeline=[random_crop: 32, hflip: 0.5]";
    train("first", 4, random);
    train("second", 4, random);
    train("one_thread", 1, random);
    train("no_crop", 4, "data.train.pipeline=[center_crop: 32]");
    EXPECT_EQ(weights("first"), weights("second"));
    EXPECT_EQ(weights("first"), weights("one_thread"));
    EXPECT_NE(weights("first"), weights("no_crop"));
}

TEST_F(DataTest, PackedShardsTrainToTheBitsOfTheFolderAndADamagedOneIsFound) {
    const std::string out = (folder_ / "packed").string(), set = sample_file("sets/set101/train");
    const auto data = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {lockstep_program(), "data"});
        return run(arguments, 30.0, test_environment());
    };
    const Outcome packed = data({"pack", set, "--out", out, "--shard-size", "60KB"});
    ASSERT_EQ(packed.exit_code, 0) << packed.output;
    EXPECT_TRUE(packed.says("101 images in")) << packed.output;
    const Outcome twice = data({"pack", set, "--out", out});
    EXPECT_EQ(twice.exit_code, 2) << twice.output;
    EXPECT_EQ(data({"verify", out, "--allow-duplicates"}).exit_code, 0);
    const std::vector<std::string> short_run = {"train.duration=1ep", "data.train.path=" + set};
    ASSERT_EQ(run_job(2, short_run, "folder").exit_code, 0);
    ASSERT_EQ(run_job(2, {short_run[0], "data.train.source=auto", "data.train.path=" + out}, "shards").exit_code, 0);
    EXPECT_EQ(weights("folder"), weights("shards"));
    const Outcome stats = data({"stats", out, "--json"});
    EXPECT_EQ(nlohmann::json::parse(stats.output).at("images"), 101) << stats.output;

    const std::string shard = out + "/shard-000001.tar";
    std::string bytes = read_file(shard);
    const auto time = fs::last_write_time(shard);
    bytes[512 + 200] = static_cast<char>(bytes[512 + 200] ^ 1);
    write_file_atomically(shard, bytes);
    fs::last_write_time(shard, time);
    const Outcome damaged = data({"verify", out, "--allow-duplicates"});
    EXPECT_EQ(damaged.exit_code, 3) << damaged.output;
    EXPECT_TRUE(damaged.says("checksum: " + shard)) << damaged.output;
}

TEST_F(DataTest, ARanksPartOfAnEpochIsListedAndShown) {
    const std::vector<std::string> all = order({"--epochs", "2", "--ranks", "3"});
    std::vector<std::string> wanted;
    for (const std::string& row : all) {
        if (column(row, 0) == "1" && column(row, 2) == "2") wanted.push_back(row);
    }
    EXPECT_EQ(order({"--epoch", "1", "--world", "3", "--rank", "2"}), wanted);
    const std::string page = (folder_ / "sheet.html").string();
    const Outcome shown = run({lockstep_program(), "data", "show", tiny_config(), "--epoch", "1", "--count", "5", "--out", page,
                               "data.train.pipeline=[random_resized_crop: 32, hflip: 1.0]"},
                              20.0, test_environment());
    ASSERT_EQ(shown.exit_code, 0) << shown.output;
    const std::string html = read_file(page);
    EXPECT_EQ(count(html, "data:image/png;base64,"), 5);
    EXPECT_EQ(count(html, ", flipped"), 5);
    EXPECT_EQ(count(html, ", crop "), 5);
    std::vector<std::string> first;
    for (const std::string& row : all) {
        if (column(row, 0) == "1" && first.size() < 5) first.push_back(column(row, 4));
    }
    for (const std::string& sample : first) EXPECT_EQ(count(html, "sample " + sample + "<"), 1);
}

class BadImageTest : public DataTest {
protected:
    // All sample pictures in one class; six are no whole JPEG or PNG, two of another kind.
    std::vector<std::string> options(const char* policy) const {
        const fs::path set = folder_ / "pictures";
        if (!fs::exists(set)) {
            copy_case("img", "pictures/a");
            fs::rename(set / "a" / "zero_byte.jpg", set / "a" / "zero\nbyte.jpg");
        }
        return {"data.train.path=" + set.string(),
                "data.val.path=",
                "batch.global=4",
                "batch.per_replica=2",
                "train.duration=2ep",
                "data.train.pipeline=[resize: 40, center_crop: 32]",
                fmt::format("data.on_bad_image={}", policy)};
    }
};

TEST_F(BadImageTest, ThePolicyStopEndsAllRanksAndNamesPathAndReason) {
    const Outcome outcome = run_job(2, options("stop"));
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_LT(outcome.seconds, 10.0);
    EXPECT_TRUE(outcome.says("error: " + (folder_ / "pictures" / "a").string())) << outcome.output;
    EXPECT_NE(outcome.last_line().find((folder_ / "pictures" / "a").string()), std::string::npos) << outcome.output;
    EXPECT_FALSE(fs::exists(run_dir() + "/stacks")) << "nothing stood still: an error was told";
}

TEST_F(BadImageTest, ALineBreakInANameSplitsNoLine) {
    options("error");
    const Outcome outcome = run({lockstep_program(), "data", "verify", (folder_ / "pictures").string()}, 20.0);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_EQ(count(outcome.output, "zero\\x0Abyte.jpg"), 1) << outcome.output;
    EXPECT_EQ(count(outcome.output, "\nbyte.jpg"), 0) << outcome.output;
}

TEST_F(BadImageTest, ThePolicySkipListsEveryBadImageOnce) {
    const Outcome outcome = run_job(2, options("skip"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("8 bad images were skipped")) << outcome.output;
    const std::string listed = read_file(run_dir() + "/bad_images.txt");
    EXPECT_EQ(count(listed, "\n"), 8);
    for (const char* name : {"bad_crc.png", "bmp_named.jpg", "gzip_of_jpeg.JPEG", "html_named.jpg", "truncated_half.jpg",
                             "truncated_half.png", "truncated_header.jpg", "zero\\x0Abyte.jpg"}) {
        EXPECT_EQ(count(listed, name), 1) << name;
        EXPECT_EQ(count(outcome.output, name), 1) << name;
    }
    EXPECT_EQ(metric("train.loss").size(), 12U);
}

TEST_F(BadImageTest, BadValidationImagesAreLeftOutCountedAndListedAlsoWhenTheRunGoesOn) {
    std::vector<std::string> arguments = options("skip");
    const fs::path good = folder_ / "good";
    fs::copy(folder_ / "pictures", good, fs::copy_options::recursive);
    for (const char* name : {"bad_crc.png", "bmp_named.jpg", "gzip_of_jpeg.JPEG", "html_named.jpg", "truncated_half.jpg",
                             "truncated_half.png", "truncated_header.jpg", "zero\nbyte.jpg"}) {
        ASSERT_TRUE(fs::remove(good / "a" / name)) << name;
    }
    arguments[0] = "data.train.path=" + good.string();
    arguments[1] = "data.val.path=" + (folder_ / "pictures").string();
    arguments.emplace_back("data.val.pipeline=[resize: 40, center_crop: 32]");
    const Outcome first = run_job(2, arguments);
    ASSERT_EQ(first.exit_code, 0) << first.output;
    EXPECT_TRUE(first.says("8 bad images were skipped")) << first.output;
    arguments.emplace_back("train.duration=3ep");
    arguments.emplace_back("data.val.path=");
    ASSERT_EQ(run_job(2, arguments).exit_code, 0);
    EXPECT_EQ(count(read_file(run_dir() + "/bad_images.txt"), "\n"), 8) << "those of the first start stay";
    const Outcome eval =
        run({lockstep_program(), "eval", run_dir(), "data.val.path=" + (folder_ / "pictures").string()}, 20.0, test_environment());
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    EXPECT_TRUE(eval.says("8 validation images could not be read and were left out")) << eval.output;
}

TEST_F(DataTest, AVirtualWorkerOfOneImageOrNoneTrainsAndBatchOneEvaluates) {
    const std::string set = sixty_five_pictures();
    for (const int ranks : {1, 2}) {
        const std::string name = fmt::format("{}", ranks);
        const Outcome outcome = run_job(ranks,
                                        {"data.train.path=" + set, "model.arch=resnet20", "model.image_size=4",
                                         "data.train.pipeline=[resize: [4, 4]]", "data.val.pipeline=[resize: [4, 4]]",
                                         "batch.global=64", fmt::format("batch.per_replica={}", 64 / ranks), "train.duration=2ep"},
                                        name);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_TRUE(outcome.says("65 images used, 0 dropped, 2 steps")) << outcome.output;
        for (const auto& [tensor, values] : tensors(name)) {
            for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << tensor;
        }
    }
    const Outcome one =
        run({lockstep_program(), "eval", run_dir("2"), "batch.global=1", "batch.per_replica=1"}, 30.0, test_environment());
    const Outcome many = run({lockstep_program(), "eval", run_dir("2")}, 30.0, test_environment());
    EXPECT_EQ(one.exit_code, 0) << one.output;
    EXPECT_EQ(one.output, many.output);
}

}  // namespace
}  // namespace lockstep::test
