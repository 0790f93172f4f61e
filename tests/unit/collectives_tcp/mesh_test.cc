// How ranks get connected, and who is kept out, on real sockets.
#include "collectives/tcp/mesh.h"

#include <sys/socket.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/tcp/handshake.h"
#include "core/error.h"
#include "net/message.h"
#include "net/secrets.h"
#include "tests/unit/collectives_tcp/ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// What rank 0's entry in the store says: its port.
int port_of_rank_0(Store& store) {
    const std::string entry = store.wait("test/tcp/0", 10'000);
    MessageReader reader(entry);
    reader.get_u8();
    reader.get_u32();
    return static_cast<int>(reader.get_u32());
}

// An entry that completes rank 0's list before the rank is there: then rank 0 listens already while strangers come.
void announce(Store& store, int rank) {
    MessageWriter entry;
    entry.put_u8('+');
    entry.put_u32(1);
    entry.put_u32(1);
    entry.put_text("127.0.0.1");
    store.set("test/tcp/" + std::to_string(rank), entry.take_frame().substr(kFrameHeaderBytes));
}

std::string frame_of_hello(const tcp::Identity& identity) { return tcp::Handshake::as_caller(identity, 0).take_output(); }

// Two ranks; before rank 1 comes, strangers knock at rank 0.
std::string job_with_strangers(const std::function<void(int port)>& knock, std::string& log) {
    const auto store = make_memory_store();
    std::string texts[2];
    testing::internal::CaptureStderr();
    const auto run_rank = [&](int rank) {
        texts[rank] = error_of([&] {
            const auto transport = make_tcp_transport(world_of(rank, 2), *store, "test", quick_options());
            exchange_a_byte(*transport, 1 - rank, 1);
        });
    };
    announce(*store, 1);
    std::thread rank_0(run_rank, 0);
    const int port = port_of_rank_0(*store);
    knock(port);
    run_rank(1);
    rank_0.join();
    log = testing::internal::GetCapturedStderr();
    return texts[0] + ", " + texts[1];
}

// Sends bytes and waits until the other side has closed the connection; returns what it said.
std::string knock_with(int port, const std::string& bytes) {
    Socket socket = connect_socket("127.0.0.1", port, 5000);
    const Deadline deadline = Deadline::after_ms(5000);
    std::string answer;
    try {
        socket.send_all(std::as_bytes(std::span(bytes)), deadline);
        for (std::byte each{};; answer.push_back(static_cast<char>(each))) socket.receive_exact(std::span(&each, 1), deadline);
    } catch (const CommError&) {
        return answer;  // closed
    }
}

size_t lines_with(const std::string& log, const std::string& text) {
    size_t count = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
}

TEST(Mesh, StrangersAreRefusedWithALineEachAndTheJobGoesOn) {
    std::string log;
    const tcp::Identity known{.rank = 1, .size = 2, .job = "tcp-test test", .secret = "not the secret of this job"};
    const auto texts = job_with_strangers(
        [&](int port) {
            knock_with(port, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
            knock_with(port, std::string(3, '\xff') + std::string(100, 'x'));
            knock_with(port, std::string("\x09\0\0\0\xff\xff\xff\xff\1\0\0\0\1", 13));
            std::string other_job = knock_with(port, frame_of_hello({.rank = 1, .size = 2, .job = "other", .secret = "x"}));
            EXPECT_THAT(other_job, HasSubstr("belongs to another job"));
            std::string old_version = frame_of_hello(known);
            old_version[8] = 77;
            EXPECT_THAT(knock_with(port, old_version), HasSubstr("version 77"));
        },
        log);
    EXPECT_EQ(texts, "no error, no error");
    EXPECT_EQ(lines_with(log, "refused a connection from 127.0.0.1:"), 5U) << log;
    EXPECT_EQ(lines_with(log, "does not speak this program's protocol"), 3U) << log;
}

TEST(Mesh, WhoKnocksAndSaysNothingHoldsUpNobody) {
    std::string log;
    std::vector<Socket> silent;
    const auto texts = job_with_strangers(
        [&](int port) {
            for (int index = 0; index < 20; ++index) silent.push_back(connect_socket("127.0.0.1", port, 5000));
            silent[0].send_all(std::as_bytes(std::span("\x20", 1)), Deadline::after_ms(1000));
        },
        log);
    EXPECT_EQ(texts, "no error, no error");
}

TEST(Mesh, ARankWithAnotherSecretIsToldAndTheOthersKeepWaiting) {
    TcpOptions options = quick_options();
    options.connect_timeout_ms = 700;
    const auto texts = TcpRanks{
        .options = options, .change = [](World& world, TcpOptions& own) {
            own.secret = "the secret of rank " + std::to_string(world.rank);
        }}.run([](const World&, Transport&) { return "met"; });
    EXPECT_THAT(texts[1], AllOf(HasSubstr("rank 1 cannot join at rank 0"), HasSubstr("do not have the same job secret")));
    EXPECT_THAT(texts[0], HasSubstr("rank 0 is not connected to rank 1 after 0.7 s"));
}

TEST(Mesh, ASecretOnSomeRanksOnlyIsAConfigError) {
    TcpOptions options = quick_options();
    options.connect_timeout_ms = 1000;
    const auto texts = TcpRanks{
        .options = options, .change = [](World& world, TcpOptions& own) {
            if (world.rank == 0) own.secret = "only rank 0 has been told";
        }}.run([](const World&, Transport&) { return "met"; });
    EXPECT_THAT(texts[1], HasSubstr("set for rank 0 and not for rank 1"));
}

TEST(Mesh, ASharedSecretFromTheEnvironmentIsNotInTheStore) {
    const auto store = make_memory_store();
    TcpOptions options = quick_options();
    options.secret = "a secret that only the ranks know";
    std::thread other([&] { make_tcp_transport(world_of(1, 2), *store, "test", options); });
    make_tcp_transport(world_of(0, 2), *store, "test", options);
    other.join();
    EXPECT_EQ(store->get("test/tcp/all")->find(options.secret), std::string::npos);
}

TEST(Mesh, ASecondProcessOfARankIsRefused) {
    const auto store = make_memory_store();
    TcpOptions options = quick_options();
    options.connect_timeout_ms = 700;
    testing::internal::CaptureStderr();
    std::string texts[3];
    const auto run_rank = [&](size_t index, int rank) {
        texts[index] = error_of([&] {
            const auto transport = make_tcp_transport(world_of(rank, 3), *store, "test", options);
            stay(*transport, 100);
        });
    };
    announce(*store, 2);  // rank 0 goes on listening for it
    std::thread rank_0(run_rank, 0, 0), first(run_rank, 1, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    run_rank(2, 1);
    rank_0.join();
    first.join();
    testing::internal::GetCapturedStderr();
    EXPECT_THAT(texts[2], HasSubstr("rank 1 is connected already"));
    EXPECT_THAT(texts[0], HasSubstr("rank 0 is not connected to rank 2"));
}

TEST(Mesh, AMissingRankIsNamed) {
    const auto store = make_memory_store();
    TcpOptions options = quick_options();
    options.connect_timeout_ms = 300;
    EXPECT_THAT(error_of([&] { make_tcp_transport(world_of(0, 2), *store, "test", options); }), HasSubstr("test/tcp/1"));
}

TEST(Mesh, AnUnknownInterfaceIsAConfigErrorThatListsTheOthersOnAllRanks) {
    const auto texts = TcpRanks{
        .size = 3, .change = [](World& world, TcpOptions& own) {
            if (world.rank == 1) own.interface = "nosuch0";
        }}.run([](const World&, Transport&) { return "met"; });
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("comm.interface `nosuch0` does not exist"), HasSubstr("lo"))));
    EXPECT_THAT(texts[0], HasSubstr("rank 1: "));
}

TEST(Mesh, AnInterfaceCanBeForced) {
    TcpOptions options = quick_options();
    options.interface = "lo";
    const auto texts = TcpRanks{.options = options}.run([](const World& world, Transport& transport) {
        exchange_a_byte(transport, 1 - world.rank, 1);
        return "met";
    });
    EXPECT_THAT(texts, Each("met"));
}

TEST(Mesh, AStoreUnderANameThatDoesNotResolveIsNoReasonNotToMeetOnOneNode) {
    const auto texts = TcpRanks{.host = "no.such.host.invalid"}.run([](const World& world, Transport& transport) {
        exchange_a_byte(transport, 1 - world.rank, 1);
        return "met";
    });
    EXPECT_THAT(texts, Each("met"));
}

TEST(Mesh, SeveralNodesListenOnAllInterfacesAndMeet) {
    const auto texts = TcpRanks{.change = [](World& world, TcpOptions&) {
                           world.node = world.rank;
                           world.node_count = 2;
                           world.local_size = 1;
                       }}.run([](const World& world, Transport& transport) {
        exchange_a_byte(transport, 1 - world.rank, 1);
        return "met";
    });
    if (texts[0].find("no network interface") != std::string::npos) GTEST_SKIP() << "this machine has only loopback";
    EXPECT_THAT(texts, Each("met"));
}

}  // namespace
}  // namespace lockstep
