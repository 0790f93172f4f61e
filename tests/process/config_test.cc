// Configurations as users write them, given to a job of several ranks.
#include <sstream>

#include <fmt/format.h>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class ConfigRunTest : public JobTest {
protected:
    Outcome start(const std::string& yaml, int ranks = 4, const std::vector<std::string>& overrides = {}) const {
        std::vector<std::string> command = {lockstep_program(),
                                            "run",
                                            "--nproc-per-node",
                                            std::to_string(ranks),
                                            "--",
                                            "train",
                                            sample_file("yaml/" + yaml + ".yaml"),
                                            "run.dir=" + run_dir()};
        command.insert(command.end(), overrides.begin(), overrides.end());
        return run(command, 20.0, test_environment());
    }
    // One line, once, soon, before anything is touched.
    void expect_refused(const Outcome& outcome, const std::vector<std::string>& parts) const {
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_LT(outcome.seconds, 1.0);
        EXPECT_EQ(count(outcome.output, "\n"), 1) << outcome.output;
        for (const std::string& part : parts) EXPECT_TRUE(outcome.says(part)) << part << " is missing in " << outcome.output;
        EXPECT_FALSE(fs::exists(run_dir()));
    }
};

TEST_F(ConfigRunTest, EveryWayToWriteARateIsShownAsOneNumber) {
    const auto shown = [](const std::string& yaml) {
        const Outcome outcome = run({lockstep_program(), "config", "show", sample_file("yaml/" + yaml + ".yaml")}, 10.0);
        const size_t at = outcome.output.find("\n  base: ");
        EXPECT_NE(at, std::string::npos) << outcome.output;
        return outcome.output.substr(at + 1, outcome.output.find('\n', at + 1) - at - 1);
    };
    for (const char* name : {"lr_1e-4", "lr_1p0e-4", "lr_1E-4", "lr_1e-04", "lr_1pe-4", "lr_p0001"}) {
        EXPECT_EQ(shown(name), "  base: 0.0001") << name;
    }
    EXPECT_EQ(shown("lr_1e1_means_10"), "  base: 10");
    EXPECT_EQ(shown("lr_quoted"), "  base: 0.1");
}

TEST_F(ConfigRunTest, EveryBadFileIsRefusedOnceWithPlaceFoundAndAllowed) {
    struct Case {
        std::string name;
        std::vector<std::string> parts;
    };
    const std::vector<Case> cases{{"unknown_key", {":26:", "wieght_decay", "optim.weight_decay"}},
                                  {"unknown_key_hyphen", {":14:", "warm-up", "lr.warmup"}},
                                  {"unknown_key_hyphen2", {":18:", "weight-decay", "optim.weight_decay"}},
                                  {"unknown_section", {":26:", "optimiser", "optim"}},
                                  {"duplicate_key", {"line 24", "line 26"}},
                                  {"duplicate_key_same_value", {"line 24", "line 26"}},
                                  {"duplicate_nested", {"line 12", "line 14"}},
                                  {"range_batch_0", {":9:", "batch.global", "at least 1"}},
                                  {"range_duration_0", {":20:", "train.duration", "above 0"}},
                                  {"range_duration_1e12", {":20:", "train.duration", "at most"}},
                                  {"range_lr_negative", {":12:", "lr.base", "above 0"}},
                                  {"range_momentum_1p5", {":17:", "optim.momentum", "below 1"}},
                                  {"range_warmup_negative", {":14:", "lr.warmup", "at least 0"}},
                                  {"type_bool_for_size", {":23:", "comm.bucket", "MiB"}},
                                  {"type_duration_without_unit", {":20:", "train.duration", "5ep"}},
                                  {"type_float_for_int", {":9:", "8.5", "whole number"}},
                                  {"type_list_for_number", {":12:", "a list", "number"}},
                                  {"type_null", {":20:", "nothing"}},
                                  {"type_text_for_int", {":9:", "eight", "whole number"}},
                                  {"bad_indent", {"bad_indent.yaml:"}},
                                  {"empty", {"empty.yaml"}},
                                  {"not_a_mapping", {":1:1:", "a list"}},
                                  {"warmup_of_the_whole_run", {":14:", "lr.warmup", "shorter than train.duration"}},
                                  {"batch_9_of_2", {":9:", "8 or 10"}},
                                  {"batch_2_for_4_ranks", {"batch.global 2", "4 ranks", "batch.global 8"}}};
    for (const Case& item : cases) {
        SCOPED_TRACE(item.name);
        std::vector<std::string> parts = item.parts;
        if (item.name != "batch_2_for_4_ranks") parts.push_back(item.name + ".yaml");
        expect_refused(start(item.name), parts);
    }
}

TEST_F(ConfigRunTest, ACommandThatIsNoneIsNamedWithThoseThatAre) {
    const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases{
        {{"trian"}, {"\"trian\"", "did you mean train?", "lockstep --help"}},
        {{"bench", "nope"}, {"\"nope\"", "step, allreduce", "lockstep bench --help"}},
        {{}, {"no command", "train, run, eval"}},
        {{"data"}, {"no command", "shapes", "lockstep data --help"}},
        {{"predict", "--help"}, {"unknown command \"predict\"", "lockstep --help"}},
        {{"data", "nope", "-h"}, {"unknown command \"nope\"", "lockstep data --help"}},
        {{"eval", "--halp"}, {"unknown option --halp", "lockstep eval --help"}},
        {{"--verbose"}, {"unknown option --verbose"}},
        {{"data", "shapes", "--out", "x", "--size", "Small"}, {"no such choice 'Small'", "did you mean small?"}},
        {{"time", "tiny_cnn", "--fusion", "bn-relu"}, {"off, bn_relu, all; did you mean bn_relu?"}},
        {{"report"}, {"RUN_DIR is required", "lockstep report --help"}}};
    for (const auto& [words, expected] : cases) {
        std::vector<std::string> command{lockstep_program()};
        command.insert(command.end(), words.begin(), words.end());
        const Outcome outcome = run(command, 20.0, test_environment());
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        for (const std::string& text : expected) EXPECT_TRUE(outcome.says(text)) << text << " in\n" << outcome.output;
    }
}

TEST_F(ConfigRunTest, EveryCommandHasAHelpOfItsOwn) {
    const Outcome none = run({lockstep_program()}, 20.0, test_environment());
    const std::string marker = "the commands are ";
    const size_t begin = none.output.find(marker) + marker.size();
    std::istringstream names(none.output.substr(begin, none.output.find(';', begin) - begin));
    int commands = 0;
    for (std::string name; std::getline(names >> std::ws, name, ','); ++commands) {
        const Outcome help = run({lockstep_program(), name, "--help"}, 20.0, test_environment());
        EXPECT_EQ(help.exit_code, 0) << name;
        EXPECT_TRUE(help.says("Usage: lockstep " + name + " ")) << help.output;
    }
    EXPECT_GE(commands, 14);
}

TEST_F(ConfigRunTest, OutputThatAFullDiskSwallowsIsAnError) {
    const std::string show = lockstep_program() + " config show " + sample_file("yaml/base.yaml");
    const Outcome full = run({"sh", "-c", show + " > /dev/full"}, 20.0, test_environment());
    EXPECT_EQ(full.exit_code, 4) << full.output;
    EXPECT_TRUE(full.says("cannot write the output")) << full.output;
    EXPECT_EQ(run({"sh", "-c", show + " > /dev/null"}, 20.0, test_environment()).exit_code, 0);
    const Outcome help = run({"sh", "-c", lockstep_program() + " --help > /dev/full"}, 20.0, test_environment());
    EXPECT_EQ(help.exit_code, 4) << help.output;
}

TEST_F(ConfigRunTest, TheVersionIsPrinted) {
    EXPECT_TRUE(run({lockstep_program(), "--version"}, 20.0, test_environment()).says("lockstep 0."));
}

TEST_F(ConfigRunTest, BadOverridesNameTheCommandLineAndTheNearestKey) {
    expect_refused(start("base", 2, {"optim.wieght_decay=1"}), {"command line", "optim.wieght_decay", "optim.weight_decay"});
    expect_refused(start("base", 2, {"lr.warm-up=1ep"}), {"command line", "lr.warm-up", "lr.warmup"});
    expect_refused(start("base", 2, {"optimiser.momentum=1"}), {"command line", "optimiser"});
    expect_refused(start("base", 2, {"--momentum"}), {"--momentum", "key=value"});
}

}  // namespace
}  // namespace lockstep::test
