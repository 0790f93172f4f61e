#include "launch/slurm_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(SlurmScript, SaysWhatWasAskedForAndQueuesItselfAgain) {
    const std::string text = slurm_script({.nodes = 8,
                                           .ranks_per_node = 2,
                                           .cpus_per_rank = 16,
                                           .time = "12:00:00",
                                           .command = {"lockstep", "train", "my config.yaml", "run.seed=${env:X}"}});
    EXPECT_THAT(text, AllOf(HasSubstr("#!/bin/bash\n"), HasSubstr("#SBATCH --nodes=8\n"),
                            HasSubstr("#SBATCH --ntasks-per-node=2\n"), HasSubstr("#SBATCH --time=12:00:00\n"),
                            HasSubstr("#SBATCH --signal=USR1@120\n"), HasSubstr("#SBATCH --requeue\n")));
    EXPECT_THAT(text, HasSubstr("srun --cpus-per-task=16 lockstep train 'my config.yaml' 'run.seed=${env:X}'\n"));
    EXPECT_THAT(text, HasSubstr("[ $code -ne 138 ] || scontrol requeue"));
    EXPECT_THAT(text, Not(HasSubstr("--partition"))) << "the site's default";
}

TEST(SlurmScript, RefusesWhatSlurmWouldMisread) {
    EXPECT_THROW(slurm_script({.nodes = 0, .command = {"x"}}), ConfigError);
    EXPECT_THROW(slurm_script({.partition = "a b", .command = {"x"}}), ConfigError);
    EXPECT_THROW(slurm_script({.name = "a\n#SBATCH --evil", .command = {"x"}}), ConfigError);
    EXPECT_THROW(slurm_script({}), ConfigError);
    EXPECT_THAT(slurm_script({.requeue = false, .command = {"x"}}), Not(HasSubstr("scontrol")));
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace lockstep
