// The contract of Store, run on the memory store and on client plus server, and what only the network one must do.
#include "net/store.h"

#include <sys/socket.h>

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "net/message.h"
#include "net/socket.h"
#include "net/store_greeting.h"
#include "net/store_protocol.h"
#include "tests/support/error_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

double seconds_of(const std::function<void()>& action) {
    const int64_t start_ns = now_ns();
    action();
    return 1e-9 * static_cast<double>(now_ns() - start_ns);
}

class StoreContract : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (GetParam() == "memory") {
            store_ = make_memory_store();
        } else {
            server_ = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "contract"});
            store_ = connect_store({.host = "127.0.0.1", .port = server_->port(), .job_id = "contract"});
        }
    }
    std::unique_ptr<StoreServer> server_;
    std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, KeepsWhatWasSet) {
    EXPECT_EQ(store_->get("key"), std::nullopt);
    store_->set("key", "one");
    store_->set("key", "two");
    store_->set("empty", "");
    EXPECT_EQ(store_->get("key"), "two");
    EXPECT_EQ(store_->get("empty"), "");
    const std::string binary("\0\xff\n", 3);
    store_->set(binary, binary);
    EXPECT_EQ(store_->get(binary), binary);
}

TEST_P(StoreContract, KeepsValuesOfMegabytes) {
    std::string value(5'000'001, 'x');
    value[4'999'999] = 'y';
    store_->set("large", value);
    EXPECT_EQ(store_->get("large"), value);
}

TEST_P(StoreContract, WaitReturnsAsSoonAsAnotherThreadSets) {
    std::thread setter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        store_->set("late", "here");
    });
    const double waited_s = seconds_of([&] { EXPECT_EQ(store_->wait("late", 20'000), "here"); });
    setter.join();
    EXPECT_LT(waited_s, 5.0);
}

TEST_P(StoreContract, WaitEndsAtItsTimeLimitNamingTheKey) {
    std::string message;
    const double waited_s = seconds_of([&] { message = error_of<CommError>([&] { store_->wait("never", 100); }); });
    EXPECT_THAT(message, HasSubstr("`never`"));
    EXPECT_GE(waited_s, 0.09);
    EXPECT_LT(waited_s, 3.0);
}

TEST_P(StoreContract, AddCountsFromZeroAndRefusesText) {
    EXPECT_EQ(store_->add("count", 3), 3);
    EXPECT_EQ(store_->add("count", -5), -2);
    EXPECT_EQ(store_->get("count"), "-2");
    store_->set("word", "seven");
    EXPECT_THAT(error_of<CommError>([&] { store_->add("word", 1); }), HasSubstr("add word"));
    EXPECT_EQ(store_->add("count", 1), -1) << "a refusal must leave the store usable";
}

TEST_P(StoreContract, CompareSetChangesOnlyTheExpectedValue) {
    EXPECT_EQ(store_->compare_set("key", "a", "b"), "") << "absent is not `a`";
    EXPECT_EQ(store_->get("key"), std::nullopt);
    EXPECT_EQ(store_->compare_set("key", std::nullopt, "a"), "a");
    EXPECT_EQ(store_->compare_set("key", std::nullopt, "b"), "a");
    EXPECT_EQ(store_->compare_set("key", "x", "b"), "a");
    EXPECT_EQ(store_->compare_set("key", "a", "b"), "b");
}

TEST_P(StoreContract, RemoveSaysWhetherTheKeyWasThere) {
    store_->set("key", "value");
    EXPECT_TRUE(store_->remove("key"));
    EXPECT_FALSE(store_->remove("key"));
    EXPECT_EQ(store_->get("key"), std::nullopt);
}

TEST_P(StoreContract, AListHasNoGaps) {
    EXPECT_EQ(store_->append("list", "a"), 0);
    EXPECT_EQ(store_->append("list", "b"), 1);
    EXPECT_EQ(store_->append("other", "c"), 0);
    EXPECT_EQ(store_->get(list_key("list", 1)), "b");
    EXPECT_EQ(store_->get("list/2"), std::nullopt);
}

TEST_P(StoreContract, ThreadsShareOneStore) {
    std::vector<std::thread> threads;
    for (int index = 0; index < 8; ++index) {
        threads.emplace_back([&, index] {
            for (int round = 0; round < 50; ++round) store_->add("total", index);
            store_->set("done" + std::to_string(index), "yes");
            store_->wait("done" + std::to_string((index + 1) % 8), 20'000);
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(store_->get("total"), std::to_string(50 * 28));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, testing::Values("memory", "network"), [](const auto& each) { return each.param; });

class NetworkStore : public testing::Test {
protected:
    std::unique_ptr<Store> connect(const std::string& job_id = "job") {
        return connect_store({.host = "localhost", .port = server_->port(), .job_id = job_id, .connect_timeout_ms = 5000});
    }
    Socket raw_connection() { return connect_socket("127.0.0.1", server_->port(), 5000); }
    Socket greeted_connection() {
        Socket socket = raw_connection();
        greet_store(socket, "job", "", Deadline::after_ms(5000));
        return socket;
    }
    void expect_still_serving() {
        const auto store = connect();
        store->set("alive", "yes");
        EXPECT_EQ(store->get("alive"), "yes");
    }

    std::unique_ptr<StoreServer> server_ = StoreServer::start({.bind_host = "", .port = 0, .job_id = "job"});
};

TEST_F(NetworkStore, RefusesAnotherJobWithAReason) {
    EXPECT_THAT(error_of<CommError>([&] { connect("stranger"); }), testing::AllOf(HasSubstr("`job`"), HasSubstr("`stranger`")));
    expect_still_serving();
}

TEST_F(NetworkStore, NamesATakenPort) {
    const int port = server_->port();
    EXPECT_THAT(error_of<CommError>([&] { StoreServer::start({.bind_host = "127.0.0.1", .port = port, .job_id = "x"}); }),
                HasSubstr("port " + std::to_string(port) + " is in use"));
    EXPECT_THAT(error_of<CommError>([&] { StoreServer::start({.bind_host = "", .port = port, .job_id = "x"}); }),
                HasSubstr("port " + std::to_string(port) + " is in use"));
}

TEST_F(NetworkStore, NamesAnEndpointThatRefuses) {
    const int port = server_->port();
    server_.reset();
    std::string message;
    const double waited_s = seconds_of([&] {
        message = error_of<CommError>(
            [&] { connect_store({.host = "127.0.0.1", .port = port, .job_id = "job", .connect_timeout_ms = 300}); });
    });
    EXPECT_THAT(message, HasSubstr("cannot reach 127.0.0.1:" + std::to_string(port) + ": refused for 0."));
    EXPECT_LT(waited_s, 3.0);
}

TEST_F(NetworkStore, NamesAHostThatDoesNotResolve) {
    EXPECT_THAT(error_of<CommError>(
                    [&] { connect_store({.host = "no-such-host.invalid", .port = 1, .job_id = "job", .connect_timeout_ms = 50}); }),
                HasSubstr("no-such-host.invalid:1"));
}

TEST_F(NetworkStore, ClientsMayComeBeforeTheServer) {
    const int port = server_->port();
    server_.reset();
    std::unique_ptr<Store> store;
    std::thread client(
        [&] { store = connect_store({.host = "127.0.0.1", .port = port, .job_id = "job", .connect_timeout_ms = 20'000}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    server_ = StoreServer::start({.bind_host = "127.0.0.1", .port = port, .job_id = "job"});
    client.join();
    store->set("key", "value");
    EXPECT_EQ(store->get("key"), "value");
}

TEST_F(NetworkStore, IsReachedOverIpv4AndIpv6) {
    for (const char* host : {"127.0.0.1", "::1"}) {
        std::string reason;
        if (!try_connect(host, server_->port(), Deadline::after_ms(1000), reason).is_open() && std::string(host) == "::1") {
            GTEST_SKIP() << "this machine has no IPv6: " << reason;
        }
        connect_store({.host = host, .port = server_->port(), .job_id = "job", .connect_timeout_ms = 5000})->set("via", host);
    }
}

TEST_F(NetworkStore, SaysWhenTheServerIsGone) {
    const auto store = connect();
    store->set("key", "value");
    server_.reset();
    EXPECT_THAT(error_of<CommError>([&] { store->get("key"); }), HasSubstr("localhost:"));
}

TEST_F(NetworkStore, TheServerCanWaitUntilItsClientsHaveLeft) {
    auto store = connect();
    store->set("key", "value");
    const int64_t begin_ns = now_ns();
    server_->wait_until_left(100);
    EXPECT_GE(now_ns() - begin_ns, 100'000'000) << "somebody was still there";
    std::thread leaving([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        store.reset();
    });
    server_->wait_until_left(20'000);
    EXPECT_LT(now_ns() - begin_ns, 10'000'000'000);
    leaving.join();
}

TEST_F(NetworkStore, AWaitingClientThatDiesHarmsNobody) {
    {
        Socket socket = greeted_connection();
        MessageWriter wait;
        wait.put_u8(static_cast<uint8_t>(store_protocol::Request::wait));
        wait.put_text("key");
        wait.put_i64(60'000);
        send_frame(socket, wait.take_frame(), Deadline::after_ms(5000));
    }
    connect()->set("key", "value");
    expect_still_serving();
}

TEST_F(NetworkStore, SilentClientsDoNotHoldUpOthers) {
    std::vector<Socket> silent;
    for (int count = 0; count < 50; ++count) silent.push_back(raw_connection());
    expect_still_serving();
}

TEST_F(NetworkStore, ALyingLengthIsRefusedAndNotAllocated) {
    for (const std::string& header : {std::string("\xff\xff\xff\xff"), std::string("GET / HTTP/1.1\r\n\r\n")}) {
        Socket socket = raw_connection();
        send_frame(socket, header, Deadline::after_ms(5000));
        EXPECT_THAT(receive_frame(socket, Deadline::after_ms(5000)), HasSubstr("store"));
    }
    Socket socket = greeted_connection();
    send_frame(socket, std::string("\xff\xff\xff\xff"), Deadline::after_ms(5000));
    EXPECT_THAT(receive_frame(socket, Deadline::after_ms(5000)), HasSubstr("protocol"));
    expect_still_serving();
    EXPECT_EQ(server_->strangers().count, 2);
    EXPECT_THAT(server_->strangers().first, testing::AllOf(HasSubstr("127.0.0.1"), HasSubstr("protocol")));
}

TEST_F(NetworkStore, AClientWithAnotherSecretOrNoneIsRefusedOnBothSides) {
    const auto guarded = StoreServer::start({.bind_host = "127.0.0.1", .job_id = "job", .secret = "the secret of this job"});
    const auto connect_with = [&](const std::string& secret) {
        return connect_store({.port = guarded->port(), .job_id = "job", .secret = secret, .connect_timeout_ms = 2000});
    };
    for (const char* wrong : {"", "another secret"}) {
        EXPECT_THAT(error_of<CommError>([&] { connect_with(wrong); }),
                    HasSubstr("does not know the job's secret; set LOCKSTEP_JOB_SECRET"));
    }
    EXPECT_EQ(guarded->strangers().count, 2);
    connect_with("the secret of this job")->set("key", "value");
    EXPECT_EQ(guarded->strangers().count, 2);
    // A store without a secret does not get a client that has one.
    EXPECT_THROW(connect_store({.port = server_->port(), .job_id = "job", .secret = "mine", .connect_timeout_ms = 2000}),
                 StoreRefused);
}

TEST_F(NetworkStore, AFloodOfSilentConnectionsKeepsNobodyOut) {
    const auto store = connect();
    std::vector<Socket> silent;
    for (int count = 0; count < 600; ++count) silent.push_back(raw_connection());
    store->set("key", "value");
    expect_still_serving();
    EXPECT_GE(server_->strangers().count, 300) << "the oldest are dropped";
}

TEST_F(NetworkStore, EveryJobHasATableOfItsOwnUntilItIsClosed) {
    server_->open_table("second");
    const auto first = connect();
    const auto second = connect("second");
    first->set("key", "first");
    EXPECT_EQ(second->get("key"), std::nullopt);
    second->set("key", "second");
    EXPECT_EQ(first->get("key"), "first");
    server_->close_table("second");
    EXPECT_THROW(second->get("key"), CommError);
    EXPECT_THROW(connect("second"), StoreRefused);
    EXPECT_EQ(first->get("key"), "first");
}

TEST_F(NetworkStore, TheStoreSpeaksForAClientThatIsGone) {
    const auto watcher = connect();
    auto client = connect();
    EXPECT_EQ(client->append("events", "here"), 0);
    client->append_when_gone("events", "gone, first version");
    client->append_when_gone("events", "gone");
    EXPECT_EQ(watcher->get("events/1"), std::nullopt);
    client.reset();
    EXPECT_EQ(watcher->wait("events/1", 5000), "gone");
    EXPECT_EQ(watcher->append("events", "noticed"), 2);
}

TEST_F(NetworkStore, SurvivesGarbage) {
    std::mt19937 random(7);  // fixed: a failure can be repeated
    for (int round = 0; round < 300; ++round) {
        Socket socket = round % 2 == 0 ? raw_connection() : greeted_connection();
        std::string bytes(random() % 200, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random() % (round % 3 == 0 ? 8 : 256));
        if (round % 4 == 1 && bytes.size() > kFrameHeaderBytes) {  // a plausible frame around nonsense
            const size_t payload_bytes = bytes.size() - kFrameHeaderBytes;
            bytes.replace(0, kFrameHeaderBytes, {static_cast<char>(payload_bytes), 0, 0, 0});
        }
        send_frame(socket, bytes, Deadline::after_ms(5000));
    }
    expect_still_serving();
}

TEST(MessageReader, NeverReadsBeyondItsBytes) {
    MessageWriter writer;
    writer.put_u32(7);
    writer.put_text("text");
    const std::string frame = writer.take_frame();
    const std::string payload = frame.substr(kFrameHeaderBytes);
    for (size_t length = 0; length < payload.size(); ++length) {
        MessageReader reader(std::string_view(payload).substr(0, length));
        reader.get_u32();
        EXPECT_EQ(reader.get_text(), "") << length;
        EXPECT_FALSE(reader.ok()) << length;
    }
    MessageReader reader(payload);
    EXPECT_EQ(reader.get_u32(), 7U);
    EXPECT_EQ(reader.get_text(), "text");
    EXPECT_TRUE(reader.at_end());
}

}  // namespace
}  // namespace lockstep
