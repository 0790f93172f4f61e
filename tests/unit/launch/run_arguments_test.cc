// What the words of the command line mean, and which are refused.
#include "launch/run_arguments.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "launch/rank_stream.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

AgentOptions read(RunArguments arguments, const ProcessorCounts& here = {.cores = 6, .gpus = 0}) {
    arguments.command = {"program"};
    return read_run_arguments(arguments, here);
}

std::string refusal(const RunArguments& arguments) {
    try {
        read(arguments);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "not refused";
}

TEST(RunArguments, OneNodeNeedsNothingAndTakesAFreePort) {
    const AgentOptions options = read({});
    EXPECT_EQ(options.endpoint_host, "127.0.0.1");
    EXPECT_EQ(options.endpoint_port, 0);
    EXPECT_EQ(options.hosting, Hosting::always);
    EXPECT_EQ(read({.rdzv_endpoint = "elsewhere:1", .rdzv_id = "x", .standalone = true}).run_id, "") << "ids are ignored";
    EXPECT_THAT(refusal({.nnodes = "2", .standalone = true}), HasSubstr("--standalone"));
}

TEST(RunArguments, SeveralNodesNeverFallBackToThisOne) {
    EXPECT_THAT(refusal({.nnodes = "2"}), HasSubstr("--nnodes 2 needs --rdzv-endpoint HOST[:29400]"));
    EXPECT_THAT(refusal({.nnodes = "1:4", .rdzv_backend = "c10d"}), HasSubstr("--rdzv-backend c10d needs --rdzv-endpoint"));
    EXPECT_THAT(refusal({.nnodes = "2", .rdzv_endpoint = "h:0"}), HasSubstr("a port that all of them know"));
}

TEST(RunArguments, TheEndpointIsReadInAllItsForms) {
    struct Case {
        const char* text;
        const char* host;
        int port;
    };
    for (const Case& item :
         {Case{"node0", "node0", 29400}, Case{"node0:7", "node0", 7}, Case{"10.0.0.1:7", "10.0.0.1", 7},
          Case{"[fe80::1]:7", "fe80::1", 7}, Case{"[fe80::1]", "fe80::1", 29400}, Case{"fe80::1", "fe80::1", 29400}}) {
        const AgentOptions options = read({.nnodes = "2", .rdzv_endpoint = item.text});
        EXPECT_EQ(options.endpoint_host, item.host) << item.text;
        EXPECT_EQ(options.endpoint_port, item.port) << item.text;
        EXPECT_EQ(options.hosting, Hosting::where_possible);
    }
    for (const char* bad : {":7", "h:", "h:x", "h:70000", "::1:29555", "10.0.0.1:7:8", "two words", "two words:7"}) {
        EXPECT_THAT(refusal({.nnodes = "2", .rdzv_endpoint = bad}), HasSubstr(std::string("--rdzv-endpoint ") + bad));
    }
    EXPECT_THAT(refusal({.nnodes = "2", .rdzv_endpoint = "::1:29555"}), HasSubstr("in brackets before a port"));
    EXPECT_THAT(refusal({.nnodes = "2", .rdzv_endpoint = "h\n:7"}), HasSubstr("--rdzv-endpoint"));
    EXPECT_THAT(refusal({.nnodes = "2", .master_addr = "::1:29555"}), HasSubstr("--master-addr ::1:29555"));
}

TEST(RunArguments, TheStaticMeetingIsServedByNodeZero) {
    const AgentOptions zero = read({.nnodes = "2", .master_addr = "h"});
    EXPECT_EQ(zero.endpoint_port, 29500);
    EXPECT_EQ(zero.hosting, Hosting::always);
    EXPECT_EQ(read({.nnodes = "2", .node_rank = 1, .master_addr = "h"}).hosting, Hosting::never);
    EXPECT_EQ(read({.nnodes = "2", .node_rank = 1, .rdzv_backend = "static", .rdzv_endpoint = "h:5"}).endpoint_port, 5);
    EXPECT_THAT(refusal({.nnodes = "2", .rdzv_backend = "etcd"}), HasSubstr("--rdzv-backend etcd"));
}

TEST(RunArguments, NumbersOfNodesAndRanks) {
    EXPECT_EQ(read({.nnodes = "2:5", .rdzv_endpoint = "h"}).max_nodes, 5);
    for (const char* bad : {"", "0", "3:2", "a", "1:2:3", "2x"}) EXPECT_THAT(refusal({.nnodes = bad}), HasSubstr("--nnodes"));
    EXPECT_EQ(read({.nproc_per_node = "cpu"}).nproc_per_node, 6);
    EXPECT_EQ(read({.nproc_per_node = "auto"}).nproc_per_node, 6);
    EXPECT_EQ(read({.nproc_per_node = "auto"}, {.cores = 6, .gpus = 2}).nproc_per_node, 2);
    EXPECT_EQ(read({.nproc_per_node = "gpu"}, {.cores = 6, .gpus = 2}).nproc_per_node, 2);
    for (const char* bad : {"gpu", "0", "-1", "many"}) EXPECT_THAT(refusal({.nproc_per_node = bad}), HasSubstr("--nproc-per-node"));
}

TEST(RunArguments, TheConfigurationOfTheMeeting) {
    const AgentOptions options = read({.nnodes = "2",
                                       .rdzv_endpoint = "h",
                                       .rdzv_conf = "join_timeout=5,last_call_timeout=0.5,close_timeout=2,keep_alive_interval=1,"
                                                    "keep_alive_max_attempt=4,is_host=true"});
    EXPECT_EQ(options.join_timeout_s, 5);
    EXPECT_EQ(options.last_call_s, 0.5);
    EXPECT_EQ(options.close_timeout_s, 2);
    EXPECT_EQ(options.keep_alive_s, 1);
    EXPECT_EQ(options.keep_alive_misses, 4);
    EXPECT_EQ(options.hosting, Hosting::always);
    EXPECT_THAT(refusal({.rdzv_conf = "join_timeuot=5"}), HasSubstr("--rdzv-conf join_timeuot"));
    EXPECT_THAT(refusal({.rdzv_conf = "join_timeout=x"}), HasSubstr("--rdzv-conf join_timeout x"));
    EXPECT_THAT(refusal({.rdzv_conf = "is_host=maybe"}), HasSubstr("true or false"));
}

TEST(RunArguments, WhatIsRedirectedIsHiddenUnlessItIsTeed) {
    const AgentOptions all = read({.nproc_per_node = "2", .redirects = "3", .tee = "1:2"});
    EXPECT_FALSE(all.shown[0].output || all.shown[0].error);
    EXPECT_FALSE(all.shown[1].output);
    EXPECT_TRUE(all.shown[1].error);
    EXPECT_EQ(all.log_dir, "logs") << "files need a folder";
    EXPECT_EQ(read({}).log_dir, "");
    const AgentOptions filtered = read({.nproc_per_node = "3", .log_dir = "mine", .local_ranks_filter = "0,2"});
    EXPECT_TRUE(filtered.shown[0].output && filtered.shown[2].error);
    EXPECT_FALSE(filtered.shown[1].output || filtered.shown[1].error);
    EXPECT_EQ(filtered.log_dir, "mine");
    for (const char* bad : {"4", "x", "0:1,7:1", "0:9"}) EXPECT_THAT(refusal({.redirects = bad}), HasSubstr("--redirects"));
    EXPECT_THAT(refusal({.local_ranks_filter = "5"}), HasSubstr("--local-ranks-filter"));
}

TEST(RunArguments, SignalsBindingAndPython) {
    EXPECT_THAT(read({.signals_to_handle = "SIGTERM,INT"}).signals, ElementsAre(SIGTERM, SIGINT));
    EXPECT_THAT(refusal({.signals_to_handle = "SIGKILL"}), HasSubstr("--signals-to-handle"));
    EXPECT_EQ(read({.numa_binding = "core-complex"}).binding, CoreBinding::core_complex);
    EXPECT_THAT(refusal({.numa_binding = "planet"}), HasSubstr("--numa-binding planet"));
    RunArguments script{.command = {"train.py", "x"}};
    EXPECT_THAT(read_run_arguments(script, {}).command, ElementsAre("python3", "-u", "train.py", "x"));
    script.no_python = true;
    EXPECT_THAT(read_run_arguments(script, {}).command, ElementsAre("train.py", "x"));
    EXPECT_THAT(read_run_arguments({.module = true, .command = {"m"}}, {}).command, ElementsAre("python3", "-u", "-m", "m"));
}

TEST(CoreBindingTest, PlacesAreDealtInOrder) {
    const std::vector<std::vector<int>> two{{0, 1, 2}, {3, 4, 5}};
    const auto shared = deal_places(CoreBinding::node, two, 3);
    EXPECT_THAT(shared[0].processors, ElementsAre(0, 1, 2));
    EXPECT_THAT(shared[1].processors, ElementsAre(0, 1, 2));
    EXPECT_EQ(shared[1].rank_here, 1);
    EXPECT_EQ(shared[1].ranks_here, 2);
    EXPECT_THAT(shared[2].processors, ElementsAre(3, 4, 5));
    EXPECT_EQ(shared[2].ranks_here, 1);
    const auto own = deal_places(CoreBinding::exclusive, {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}}, 2);
    EXPECT_THAT(own[0].processors, ElementsAre(0, 8, 1, 9));
    EXPECT_THAT(own[1].processors, ElementsAre(2, 10, 3, 11, 4, 12));
    EXPECT_THROW(deal_places(CoreBinding::exclusive, {{0}}, 2), ConfigError);
}

TEST(RankStreamTest, TheLastStepThatALineNames) {
    EXPECT_EQ(step_named_in("step 12/40 loss 3"), 12);
    EXPECT_EQ(step_named_in("rank 1 left in bucket 0 of step 7; see step 9"), 9);
    EXPECT_EQ(step_named_in("a step by the way"), -1);
    EXPECT_EQ(step_named_in("footstep"), -1);
}

}  // namespace
}  // namespace lockstep
