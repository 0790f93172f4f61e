// What is found about the machines of a job, and what is made of it.
#include "launch/preflight.h"

#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "net/socket.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr PreflightNeeds kNeeds{.shared_memory_per_rank = 100, .run_folder = 1000, .open_files = 64};

// Two nodes of two ranks on which nothing is wrong.
std::vector<MachineFacts> good_ranks() {
    std::vector<MachineFacts> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        ranks.push_back({.rank = rank,
                         .local_rank = rank % 2,
                         .node = rank / 2,
                         .launcher = "slurm",
                         .host = fmt::format("host-{}", rank / 2),
                         .boot_id = fmt::format("boot-{}", rank / 2),
                         .addresses = {fmt::format("10.0.0.{}", rank / 2 + 1)},
                         .program = "0.1.0 abc",
                         .instruction_set = "AVX2",
                         .open_files = 1024,
                         .open_files_limit = 4096,
                         .shared_memory = {.total = 400, .free = 200},
                         .run_folder = {.total = 5000, .free = 2000},
                         .data = {{.path = "/data/train.tar", .found = "file of 5 bytes"}}});
    }
    return ranks;
}

std::vector<NodePair> good_pairs() {
    return {{.from = 0, .to = 1, .endpoint = "10.0.0.2:5000", .round_trip_ms = 0.3},
            {.from = 1, .to = 0, .endpoint = "10.0.0.1:5000", .round_trip_ms = 0.4}};
}

std::vector<std::string> texts(const std::vector<PreflightFinding>& findings) {
    std::vector<std::string> list;
    for (const PreflightFinding& finding : findings) list.push_back((finding.is_error ? "error: " : "warning: ") + finding.text);
    return list;
}

std::vector<std::string> findings_when(const std::function<void(std::vector<MachineFacts>&, std::vector<NodePair>&)>& spoil) {
    auto ranks = good_ranks();
    auto pairs = good_pairs();
    spoil(ranks, pairs);
    return texts(find_problems(ranks, pairs, kNeeds));
}

TEST(Preflight, GoodMachinesHaveNoFindings) { EXPECT_THAT(texts(find_problems(good_ranks(), good_pairs(), kNeeds)), IsEmpty()); }

TEST(Preflight, EachFaultIsNamedWithItsPlaceAndCure) {
    EXPECT_THAT(findings_when([](auto&, auto& pairs) { pairs[1].problem = "refused"; }),
                ElementsAre(AllOf(HasSubstr("error: node 1 (host-1) cannot reach node 0 (host-0) at 10.0.0.1:5000: refused"),
                                  HasSubstr("comm.interface"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[3].address_problem = "comm.interface `eth9` does not exist"; }),
                ElementsAre(HasSubstr("error: rank 3 on host-1: comm.interface `eth9`")));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[2].program = "0.1.0 abd"; }),
                ElementsAre(AllOf(HasSubstr("error: rank 2 on host-1"), HasSubstr("abd"), HasSubstr("abc"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[2].shared_memory.free = ranks[3].shared_memory.free = 199; }),
                ElementsAre(AllOf(HasSubstr("error: /dev/shm of node 1"), HasSubstr("199 of 400"), HasSubstr("about 200"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[1].open_files_limit = 63; }),
                ElementsAre(AllOf(HasSubstr("error: rank 1"), HasSubstr("63"), HasSubstr("64"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[0].run_folder.problem = "/runs: Permission denied"; }),
                ElementsAre(HasSubstr("error: rank 0 on host-0 cannot write run.dir: /runs: Permission denied")));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[0].run_folder.free = 999; }),
                ElementsAre(AllOf(HasSubstr("warning: run.dir"), HasSubstr("999"), HasSubstr("1000"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[3].data[0] = {.path = "/data/train.tar", .problem = "not there"}; }),
                ElementsAre(HasSubstr("error: node 1 (host-1) cannot read /data/train.tar: not there")));
    EXPECT_THAT(
        findings_when([](auto& ranks, auto&) { ranks[3].data[0].found = "file of 6 bytes"; }),
        ElementsAre(AllOf(HasSubstr("error: /data/train.tar is a file of 6 bytes on node 1"), HasSubstr("file of 5 bytes"))));
    EXPECT_THAT(findings_when([](auto&, auto& pairs) { pairs[0].clock_offset_ms = -5000; }),
                ElementsAre(AllOf(HasSubstr("warning: the clocks of node 0"), HasSubstr("5.0 s apart"))));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[2].instruction_set = ranks[3].instruction_set = "AVX-512"; }),
                ElementsAre(HasSubstr("warning: node 1 (host-1) has AVX-512, rank 0's has AVX2")));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[0].thread_warning = ranks[1].thread_warning = "too many"; }),
                ElementsAre("warning: rank 0 on host-0: too many"));
}

TEST(Preflight, MachinesAreToldApartByTheirKernelAndNotByTheirName) {
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[3].boot_id = "boot-7"; }),
                ElementsAre(HasSubstr("error: ranks 2 and 3 both say node 1, but run on different machines")));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) { ranks[2].host = ranks[3].host = "host-0"; }),
                ElementsAre(HasSubstr("warning: nodes 0 and 1 are different machines and both call themselves host-0")));
    EXPECT_THAT(findings_when([](auto& ranks, auto&) {
                    for (MachineFacts& rank : ranks) rank.host = rank.boot_id = "one machine with two network namespaces";
                }),
                IsEmpty());
}

TEST(Preflight, ErrorsComeFirst) {
    const auto findings = findings_when([](auto& ranks, auto& pairs) {
        pairs[0].clock_offset_ms = 5000;
        ranks[1].open_files_limit = 1;
    });
    EXPECT_THAT(findings, ElementsAre(HasSubstr("error:"), HasSubstr("warning:")));
}

TEST(MachineFacts, AreGatheredHereAndTravelAsText) {
    const fs::path folder = fs::temp_directory_path() / fmt::format("lockstep-preflight-{}", getpid());
    make_directories(folder);
    write_file_atomically(folder / "five", "12345");
    const MachineFacts facts =
        machine_facts({}, {.program = "p \xff",
                           .run_folder = (folder / "not" / "yet").string(),
                           .data = {(folder / "five").string(), folder.string(), (folder / "none").string()}});
    fs::remove_all(folder);
    EXPECT_EQ(facts.data[0].found, "file of 5 bytes");
    EXPECT_EQ(facts.data[1].found, "folder of 1 entries");
    EXPECT_EQ(facts.data[2].problem, "not there");
    EXPECT_GT(facts.memory, facts.memory_free);
    EXPECT_GT(facts.run_folder.free, 0U);
    EXPECT_EQ(facts.run_folder.problem, "");
    EXPECT_FALSE(facts.boot_id.empty());
    EXPECT_EQ(facts.addresses, std::vector<std::string>{"127.0.0.1"});
    const MachineFacts copy = facts_from_json(to_json(facts));
    EXPECT_EQ(to_json(copy), to_json(facts));
    EXPECT_EQ(copy.data[0].found, facts.data[0].found);
    EXPECT_THROW(facts_from_json("{}"), CommError);
    EXPECT_EQ(machine_facts({}, {.run_folder = "/etc/passwd/runs"}).run_folder.problem, "/etc/passwd is no folder");
    EXPECT_THAT(machine_facts({}, {.interface = "none0"}).address_problem, HasSubstr("none0"));
}

TEST(Reachability, AnotherNodeIsReachedAndAStrangerIsNot) {
    const auto server = ReachabilityServer::start("job");
    const NodePair good = reach(0, 1, {"127.0.0.1"}, server->port(), "job", 2000);
    EXPECT_EQ(good.problem, "");
    EXPECT_GT(good.round_trip_ms, 0.0);
    EXPECT_LT(std::abs(good.clock_offset_ms), 1000.0);
    EXPECT_THAT(reach(0, 1, {"127.0.0.1"}, server->port(), "another", 2000).problem, HasSubstr("another program or job"));
    const FileHandle silent = listen_on("127.0.0.1", 0);
    EXPECT_NE(reach(0, 1, {"127.0.0.1"}, bound_port(silent.get()), "job", 200).problem, "");
    EXPECT_EQ(reach(0, 1, {"127.0.0.9", "127.0.0.1"}, server->port(), "job", 2000).problem, "");
    int closed = 0;
    {
        const FileHandle gone = listen_on("127.0.0.1", 0);
        closed = bound_port(gone.get());
    }
    EXPECT_NE(reach(0, 1, {"127.0.0.1"}, closed, "job", 200).problem, "");
}

TEST(Preflight, AllRanksLearnTheVerdict) {
    constexpr int kRanks = 6;
    const auto store = make_memory_store();
    std::vector<Preflight> results(kRanks);
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < kRanks; ++rank) {
            threads.emplace_back([&, rank] {
                const World world{.rank = rank,
                                  .size = kRanks,
                                  .local_rank = rank % 2,
                                  .local_size = 2,
                                  .node = rank / 2,
                                  .node_count = 3,
                                  .store_port = 1,
                                  .job_id = "preflight",
                                  .launcher = "slurm"};
                const std::vector<std::string> data{rank == 4 ? "/not/there" : "/"};
                results[static_cast<size_t>(rank)] =
                    run_preflight(world, *store, {.program = "p", .run_folder = "/tmp", .data = data}, {}, 20'000);
            });
        }
    }
    EXPECT_EQ(results[0].ranks.size(), 6U);
    EXPECT_EQ(results[0].pairs.size(), 6U);
    for (const NodePair& pair : results[0].pairs) EXPECT_EQ(pair.problem, "") << pair.from << " to " << pair.to;
    for (const Preflight& result : results) {
        EXPECT_FALSE(result.is_fine());
        EXPECT_THAT(result.findings.front().text, HasSubstr("node 2"));
    }
    EXPECT_THAT(to_text(results[0]),
                AllOf(HasSubstr("6 ranks on 3 nodes"), HasSubstr("6 of 6 reached"), HasSubstr("not ready: 1 error")));
    EXPECT_THAT(to_json(results[0]), AllOf(HasSubstr("\"ready\":false"), HasSubstr("/not/there")));
}

}  // namespace
}  // namespace lockstep
