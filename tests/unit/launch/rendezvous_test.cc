#include "launch/rendezvous.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

int free_port() {
    const auto server = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "probe"});
    return server->port();
}

World rank_of(int rank, int size, int port, const std::string& job = "job") {
    World world{.rank = rank, .size = size, .local_rank = rank, .local_size = size, .store_port = port, .job_id = job};
    world.launcher = "environment";
    return world;
}

// Runs each world in a thread; all keep their rendezvous until the last has ended. Returns the errors, "" for none.
std::vector<std::string> meet_all(const std::vector<World>& worlds, int64_t timeout_ms) {
    std::vector<std::string> errors(worlds.size());
    std::vector<Rendezvous> kept(worlds.size());
    {
        std::vector<std::jthread> threads;
        for (size_t index = 0; index < worlds.size(); ++index) {
            threads.emplace_back([&, index] {
                try {
                    kept[index] = meet(worlds[index], timeout_ms);
                } catch (const Error& error) {
                    errors[index] = error.what();
                }
            });
        }
    }
    return errors;
}

TEST(Rendezvous, AWorldOfOneNeedsNoPort) { EXPECT_NE(meet(World{}, 100).store, nullptr); }

TEST(Rendezvous, AllRanksMeet) {
    const int port = free_port();
    EXPECT_THAT(meet_all({rank_of(2, 3, port), rank_of(1, 3, port), rank_of(0, 3, port)}, 10'000), Each(std::string()));
}

// As when a script sets MASTER_ADDR to the name of the first host, and that is the only one.
TEST(Rendezvous, OnOneNodeTheGivenAddressNeedNotBeTheLoopback) {
    const int port = free_port();
    std::vector<World> worlds{rank_of(1, 2, port), rank_of(0, 2, port)};
    for (World& world : worlds) world.store_host = "127.0.1.1";
    EXPECT_THAT(meet_all(worlds, 10'000), Each(std::string()));
}

TEST(Rendezvous, AnotherJobOnThePortIsPassedBy) {
    const auto other = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "another job"});
    EXPECT_THAT(meet_all({rank_of(1, 2, other->port()), rank_of(0, 2, other->port())}, 10'000), Each(std::string()));
}

TEST(Rendezvous, TwoJobsWithOnePortRunApart) {
    const int port = free_port();
    EXPECT_THAT(
        meet_all({rank_of(0, 2, port, "a"), rank_of(0, 2, port, "b"), rank_of(1, 2, port, "b"), rank_of(1, 2, port, "a")}, 10'000),
        Each(std::string()));
}

TEST(Rendezvous, MissingRanksAreNamedInTime) {
    const int port = free_port();
    const int64_t begin_ns = now_ns();
    const auto errors = meet_all({rank_of(0, 4, port), rank_of(2, 4, port)}, 700);
    EXPECT_LT(now_ns() - begin_ns, 5'000'000'000);
    EXPECT_THAT(errors[0], HasSubstr("not there: rank 1, 3"));
    EXPECT_THAT(errors[1], HasSubstr("not there: rank 1, 3"));
}

TEST(Rendezvous, AMissingLeaderIsNamedInTime) {
    EXPECT_THAT(meet_all({rank_of(1, 2, free_port())}, 600)[0],
                AllOf(HasSubstr("rank 1 of 2"), HasSubstr("rank 0"), HasSubstr("127.0.0.1")));
}

TEST(Rendezvous, ADoubledRankIsNamed) {
    // Threads of one process describe themselves alike, so the second process is played by a key.
    const auto server = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "job"});
    connect_store({.port = server->port(), .job_id = "job"})->set("rendezvous/rank/1", "elsewhere pid 7");
    EXPECT_THAT(meet_all({rank_of(1, 2, server->port())}, 1500)[0],
                AllOf(HasSubstr("rank 1 is doubled"), HasSubstr("elsewhere pid 7")));
}

TEST(Rendezvous, ADoubledLeaderIsNamed) {
    const int port = free_port();
    const auto first = StoreServer::start({.bind_host = "127.0.0.1", .port = port, .job_id = "job"});
    EXPECT_THAT(meet_all({rank_of(0, 2, port)}, 1500)[0], HasSubstr("rank 0 is doubled"));
}

TEST(Rendezvous, UnequalWorldSizesAreNamed) {
    const int port = free_port();
    const auto errors = meet_all({rank_of(0, 2, port), rank_of(1, 3, port)}, 1500);
    EXPECT_THAT(errors[0] + errors[1], AllOf(HasSubstr("world"), HasSubstr("3"), HasSubstr("2")));
}

}  // namespace
}  // namespace lockstep
