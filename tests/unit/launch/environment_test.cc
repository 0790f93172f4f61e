#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "launch/world_from_environment.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Table = std::map<std::string, std::string>;

EnvironmentLookup lookup(const Table& table) {
    return [table](const std::string& name) -> std::optional<std::string> {
        const auto found = table.find(name);
        return found == table.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
}

World world(const Table& table) { return world_from_environment(lookup(table)); }

Table with(Table table, const Table& changes) {
    for (const auto& [name, value] : changes) table[name] = value;
    return table;
}

std::string error_of(const Table& table) {
    try {
        world(table);
    } catch (const ConfigError& error) {
        return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
}

void expect_world(const World& got, int rank, int size, int local_rank, int local_size, int node, int node_count) {
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.size, size);
    EXPECT_EQ(got.local_rank, local_rank);
    EXPECT_EQ(got.local_size, local_size);
    EXPECT_EQ(got.node, node);
    EXPECT_EQ(got.node_count, node_count);
}

const Table kOwn{
    {"LOCKSTEP_RANK", "3"},      {"LOCKSTEP_WORLD_SIZE", "4"}, {"LOCKSTEP_LOCAL_RANK", "1"},  {"LOCKSTEP_LOCAL_WORLD_SIZE", "2"},
    {"LOCKSTEP_NODE_RANK", "1"}, {"LOCKSTEP_NODE_COUNT", "2"}, {"LOCKSTEP_STORE_HOST", "h0"}, {"LOCKSTEP_STORE_PORT", "4711"},
    {"LOCKSTEP_JOB_ID", "job-1"}};
const Table kTorchrun{{"RANK", "3"},
                      {"WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"GROUP_RANK", "1"},
                      {"GROUP_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "host0"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Table kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_NODE_RANK", "1"}, {"PMIX_RANK", "1"},
                     {"PMIX_NAMESPACE", "123.1"}};
const Table kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"lockstep:parent_pid", "77"}};
const Table kFlux{{"FLUX_TASK_RANK", "5"},  {"FLUX_JOB_SIZE", "8"}, {"FLUX_TASK_LOCAL_ID", "1"},
                  {"FLUX_JOB_NNODES", "2"}, {"FLUX_JOB_ID", "f1"},  {"MASTER_ADDR", "node1"}};
const Table kSlurm{{"SLURM_JOB_ID", "9"},
                   {"SLURM_STEP_ID", "2"},
                   {"SLURM_PROCID", "3"},
                   {"SLURM_NTASKS", "5"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_NODEID", "1"},
                   {"SLURM_NNODES", "3"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                   {"SLURM_STEP_NODELIST", "gpu[007-009]"}};

TEST(Environment, NothingMeansASingleProcess) {
    expect_world(world({}), 0, 1, 0, 1, 0, 1);
    EXPECT_EQ(world({}).launcher, "single");
}

TEST(Environment, OwnLauncherWinsOverAllOthers) {
    Table all = kOwn;
    for (const Table& other : {kTorchrun, kOpenMpi, kMpich, kFlux, kSlurm}) all.insert(other.begin(), other.end());
    const World got = world(all);
    expect_world(got, 3, 4, 1, 2, 1, 2);
    EXPECT_EQ(got.store_host, "h0");
    EXPECT_EQ(got.store_port, 4711);
    EXPECT_EQ(got.job_id, "job-1");
}

TEST(Environment, TorchrunsOwnPortIsNotOurs) {
    const World got = world(kTorchrun);
    expect_world(got, 3, 4, 1, 2, 1, 2);
    EXPECT_EQ(got.launcher, "torchrun");
    EXPECT_EQ(got.store_host, "host0");
    EXPECT_EQ(got.store_port, 29501);
}

TEST(Environment, ARestartUnderTorchrunIsAnotherJob) {
    EXPECT_NE(world(kTorchrun).job_id, world(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).job_id);
}

TEST(Environment, PodsOfAPyTorchJobAreNodesOfOneRank) {
    const World got = world({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}});
    expect_world(got, 2, 3, 0, 1, 2, 3);
    EXPECT_EQ(got.store_port, 23456);
}

TEST(Environment, ProcessesStartedByHandOnOneMachineShareANode) {
    expect_world(world({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4000"}}), 1, 3, 1, 3, 0,
                 1);
}

TEST(Environment, OpenMpiOnOneNodeMeetsAtAPortOfTheJob) {
    const World got = world(kOpenMpi);
    expect_world(got, 1, 2, 1, 2, 0, 1);
    EXPECT_EQ(got.store_host, "127.0.0.1");
    EXPECT_EQ(got.store_port,
              world(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})).store_port);
    EXPECT_NE(got.store_port, world(with(kOpenMpi, {{"PMIX_NAMESPACE", "124.1"}})).store_port);
    EXPECT_NE(got.job_id, world(with(kOpenMpi, {{"PMIX_NAMESPACE", "124.1"}})).job_id);
    EXPECT_GE(got.store_port, 20'000);
    EXPECT_LT(got.store_port, 32'768 - 8) << "outside the kernel's range of outgoing ports";
}

TEST(Environment, SeveralNodesWithoutAnAddressAreRefusedNeverLocalhost) {
    const Table two_nodes = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
    EXPECT_THAT(error_of(two_nodes), AllOf(HasSubstr("2 nodes"), HasSubstr("MASTER_ADDR")));
    const World got = world(with(two_nodes, {{"MASTER_ADDR", "n0"}}));
    expect_world(got, 3, 4, 1, 2, 1, 2);
    EXPECT_EQ(got.store_host, "n0");
}

TEST(Environment, MpichAndMvapich) {
    expect_world(world(kMpich), 1, 2, 1, 2, 0, 1);
    EXPECT_EQ(world(kMpich).launcher, "mpich");
    EXPECT_THAT(world(kMpich).job_id, HasSubstr("77"));
    const World mvapich = world({{"MV2_COMM_WORLD_RANK", "1"},
                                 {"MV2_COMM_WORLD_SIZE", "2"},
                                 {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
    EXPECT_EQ(mvapich.launcher, "mvapich");
}

TEST(Environment, Flux) { expect_world(world(kFlux), 5, 8, 1, 4, 1, 2); }

TEST(Environment, ALaterStartOfTheJobIsKnownByEveryLaunchersCount) {
    const auto later = [](const Table& table) { return is_later_start(lookup(table)); };
    EXPECT_FALSE(later({}));
    EXPECT_FALSE(later({{"LOCKSTEP_ROUND", "0"}, {"LOCKSTEP_RESTART_COUNT", "0"}, {"SLURM_RESTART_COUNT", "0"}}));
    for (const char* name : {"LOCKSTEP_ROUND", "LOCKSTEP_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
        EXPECT_TRUE(later({{name, "1"}})) << name;
    }
}

TEST(Environment, RanksThatAreNotNumberedNodeByNodeAreRefused) {
    const auto open_mpi = [](const char* rank, const char* size, const char* local_rank, const char* local_size) {
        return with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", rank},
                               {"OMPI_COMM_WORLD_SIZE", size},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", local_rank},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size},
                               {"MASTER_ADDR", "first"}});
    };
    EXPECT_EQ(world(open_mpi("2", "4", "0", "2")).node, 1);
    const std::string round_robin = error_of(open_mpi("1", "4", "0", "2")), uneven = error_of(open_mpi("4", "5", "1", "2"));
    EXPECT_THAT(round_robin, AllOf(HasSubstr("rank 1 of 4 is number 0 of 2 ranks on its node"), HasSubstr("--map-by core")));
    EXPECT_THAT(uneven, HasSubstr("rank 4 of 5 is number 1 of 2 ranks on its node"));
    EXPECT_THAT(error_of(with(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "0"}})),
                AllOf(HasSubstr("task 1 is number 0 on node 1, whose first task is not 2"), HasSubstr("--distribution=block")));
}

TEST(Environment, SlurmStepExpandsItsHosts) {
    const World got = world(kSlurm);
    expect_world(got, 3, 5, 1, 2, 1, 3);
    EXPECT_EQ(got.store_host, "gpu007");
    EXPECT_EQ(got.launcher, "slurm");
    EXPECT_NE(got.job_id, world(with(kSlurm, {{"SLURM_STEP_ID", "3"}})).job_id);
}

TEST(Environment, ABatchScriptOrAStepOfOneTaskIsNoDistributedJob) {
    Table script = kSlurm;
    script.erase("SLURM_STEP_ID");
    EXPECT_EQ(world(script).launcher, "single");
    EXPECT_EQ(world(with(kSlurm, {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}})).launcher, "single");
}

TEST(Environment, InnerLaunchersWinInsideAnAllocation) {
    Table mpirun_in_slurm = kSlurm;
    mpirun_in_slurm.insert(kOpenMpi.begin(), kOpenMpi.end());
    mpirun_in_slurm.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});  // Slurm's own PMI, of mpirun's daemon
    EXPECT_EQ(world(mpirun_in_slurm).launcher, "openmpi");
    Table torchrun_in_slurm = kSlurm;
    torchrun_in_slurm.insert(kTorchrun.begin(), kTorchrun.end());
    EXPECT_EQ(world(torchrun_in_slurm).launcher, "torchrun");
}

TEST(Environment, LaunchersThatDisagreeAreBothNamed) {
    Table stale = kOpenMpi;
    stale.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    EXPECT_THAT(error_of(stale), AllOf(HasSubstr("disagree"), HasSubstr("RANK=0"), HasSubstr("WORLD_SIZE=1"),
                                       HasSubstr("OMPI_COMM_WORLD_RANK=1"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
    Table mpich = kOpenMpi;
    mpich.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
    EXPECT_THAT(error_of(mpich), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=1"), HasSubstr("PMI_RANK=0")));
}

TEST(Environment, ARankWithoutASizeIsRefused) { EXPECT_THAT(error_of({{"PMIX_RANK", "0"}}), HasSubstr("PMIX_RANK=0")); }

TEST(Environment, BadValuesNameTheVariableAndTheValue) {
    EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "one"}})), HasSubstr("RANK=one"));
    EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
    EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "4"}})), AllOf(HasSubstr("RANK=4"), HasSubstr("too high"), HasSubstr("0 to 3")));
    EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "1e0"}})), HasSubstr("RANK=1e0"));
    EXPECT_THAT(error_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})), HasSubstr("local rank 2"));
    EXPECT_THAT(error_of(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE=0"));
    EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "99999"}})), HasSubstr("MASTER_PORT=99999"));
    EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}),
                AllOf(HasSubstr("RANK is not set"), HasSubstr("WORLD_SIZE=2")));
    EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}), HasSubstr("MASTER_PORT is not set"));
    EXPECT_THAT(error_of(with(kSlurm, {{"SLURM_PROCID", "x"}})), HasSubstr("SLURM_PROCID=x"));
}

TEST(Environment, TheExplanationShowsVariablesVerdictAndRefusal) {
    EXPECT_THAT(explain_environment(lookup(kTorchrun)),
                AllOf(HasSubstr("WORLD_SIZE=4"), HasSubstr("verdict: torchrun: rank 3 of 4"), HasSubstr("host0:29501")));
    EXPECT_THAT(explain_environment(lookup(with(kTorchrun, {{"RANK", "9"}}))), HasSubstr("verdict: refused"));
}

}  // namespace
}  // namespace lockstep
