// The case files of tests/cases/yaml: what users really write.
#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(ConfigTest, BaseCaseIsRead) {
    const Experiment experiment = read_file(case_file("base")).experiment;
    EXPECT_EQ(experiment.batch.global, 8);
    EXPECT_EQ(experiment.comm.bucket_bytes, 25 << 20);
    EXPECT_EQ(experiment.train.duration, (Duration{Duration::Unit::epochs, 2.0}));
    EXPECT_EQ(experiment.lr.schedule, "cosine");
}

TEST_F(ConfigTest, EveryWayToWriteARateIsTheSameNumber) {
    for (const char* name : {"lr_1e-4", "lr_1p0e-4", "lr_1E-4", "lr_1e-04", "lr_1pe-4", "lr_p0001"}) {
        EXPECT_EQ(read_file(case_file(name)).experiment.lr.base, 1e-4) << name;
    }
    EXPECT_EQ(read_file(case_file("lr_1e1_means_10")).experiment.lr.base, 10.0);
}

TEST_F(ConfigTest, QuotesDoNotChangeANumber) { EXPECT_EQ(read_file(case_file("lr_quoted")).experiment.lr.base, 0.1); }

struct BadCase {
    const char* file;
    int line;  // 0: not checked
    std::vector<std::string> parts;
};

TEST_F(ConfigTest, EveryBadCaseNamesFileLineKeyFoundAndAllowed) {
    const std::vector<BadCase> cases{
        {"unknown_key", 26, {"wieght_decay", "optim.weight_decay"}},
        {"unknown_key_hyphen", 14, {"lr.warm-up", "lr.warmup"}},
        {"unknown_key_hyphen2", 18, {"optim.weight-decay", "optim.weight_decay"}},
        {"unknown_section", 26, {"optimiser", "optim"}},
        {"duplicate_key", 26, {"run", "line 24", "line 26"}},
        {"duplicate_key_same_value", 26, {"run", "line 24", "line 26"}},
        {"duplicate_nested", 14, {"base", "line 12", "line 14"}},
        {"range_batch_0", 9, {"batch.global", "\"0\"", "at least 1"}},
        {"range_duration_0", 20, {"train.duration", "\"0ep\"", "above 0"}},
        {"range_duration_1e12", 20, {"train.duration", "1000000000000ep", "at most"}},
        {"range_lr_negative", 12, {"lr.base", "\"-0.1\"", "above 0"}},
        {"range_momentum_1p5", 17, {"optim.momentum", "\"1.5\"", "below 1"}},
        {"range_warmup_negative", 14, {"lr.warmup", "\"-1ep\"", "at least 0"}},
        {"type_bool_for_size", 23, {"comm.bucket", "\"true\"", "MiB"}},
        {"type_float_for_int", 9, {"batch.global", "\"8.5\"", "whole number"}},
        {"type_list_for_number", 12, {"lr.base", "a list", "number"}},
        {"type_null", 20, {"train.duration", "nothing", "duration"}},
        {"type_text_for_int", 9, {"batch.global", "\"eight\"", "whole number"}},
        {"type_duration_without_unit", 20, {"train.duration", "\"2\"", "5ep"}},
        {"warmup_of_the_whole_run", 14, {"lr.warmup", "2ep", "shorter than train.duration"}},
        {"batch_9_of_2", 9, {"batch.global", "9", "8 or 10", "batch.per_replica 1"}},
        {"empty", 0, {"empty"}},
        {"not_a_mapping", 1, {"a list", "a block of keys"}},
        {"bad_indent", 0, {"bad_indent.yaml:"}},
    };
    for (const BadCase& bad : cases) {
        const std::string error = error_of_file(case_file(bad.file));
        EXPECT_THAT(error, HasSubstr(bad.line > 0 ? std::string(bad.file) + ".yaml:" + std::to_string(bad.line) + ":" : bad.file));
        for (const std::string& part : bad.parts) EXPECT_THAT(error, HasSubstr(part)) << bad.file;
        EXPECT_EQ(error.find('\n'), std::string::npos) << "one line: " << error;
    }
}

TEST_F(ConfigTest, ABatchThatCannotBeDealtToTheRanksNamesBothNumbersAndTheNearestValidOnes) {
    const Experiment two = read_file(case_file("batch_2_for_4_ranks")).experiment;
    try {
        check_world(two, 4);
        FAIL() << "no error";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("batch.global 2"), HasSubstr("4 ranks"), HasSubstr("batch.global 8"),
                                        HasSubstr("at most 1 rank")));
    }
}

TEST_F(ConfigTest, UnevenNumbersOfVirtualWorkersAreAllowed) {
    EXPECT_NO_THROW(check_world(read_file(case_file("batch_10_for_4_ranks")).experiment, 4));  // 5 workers on 4 ranks
}

}  // namespace
}  // namespace lockstep
