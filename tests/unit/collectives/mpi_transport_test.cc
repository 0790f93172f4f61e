// MpiTransport over an MPI that is a few queues in this process: what a real one does only now and then happens here every time:
// tags run out, messages come before their receives, nothing is buffered.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/mpi/mpi_transport.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep {

struct MpiPort {
    struct Request {
        enum class Kind : uint8_t { none, send, matched_send, receive } kind = Kind::none;
        int32_t peer = 0;
        int32_t tag = 0;
        std::byte* data = nullptr;
        int32_t bytes = 0;
        bool done = false;
        int64_t number = 0;  // receives match in order of posting
    };
    struct Arrival {
        int32_t from = 0;
        int32_t tag = 0;
        std::vector<std::byte> data;
        int32_t sender_slot = -1;  // of a matched send
    };
    int32_t rank = 0;
    std::vector<Request> requests;
    std::vector<MpiEvent> events;
    std::deque<Arrival> arrivals;  // unmatched
    std::vector<int32_t> sent_tags;
};

namespace {

using testing::HasSubstr;

// One lock serves all ranks, as MpiAccess::mutex does within a process.
std::mutex wire_mutex;
std::vector<MpiPort*> ports;
thread_local int32_t own_rank = 0;
int32_t largest_call_bytes = 0;

void match(MpiPort& port) {
    for (auto arrival = port.arrivals.begin(); arrival != port.arrivals.end();) {
        const auto fits = [&](const MpiPort::Request& each) {
            return each.kind == MpiPort::Request::Kind::receive && !each.done && each.tag == arrival->tag &&
                   (each.peer == kAnyPeer || each.peer == arrival->from);
        };
        MpiPort::Request* request = nullptr;
        for (MpiPort::Request& each : port.requests) {
            if (fits(each) && (request == nullptr || each.number < request->number)) request = &each;
        }
        if (request == nullptr) {
            ++arrival;
            continue;
        }
        check(static_cast<size_t>(request->bytes) >= arrival->data.size(), "MPI would report a truncated message");
        std::memcpy(request->data, arrival->data.data(), arrival->data.size());
        request->bytes = static_cast<int32_t>(arrival->data.size());
        request->peer = arrival->from;
        request->done = true;
        if (arrival->sender_slot >= 0) {
            ports[static_cast<size_t>(arrival->from)]->requests[static_cast<size_t>(arrival->sender_slot)].done = true;
        }
        arrival = port.arrivals.erase(arrival);
    }
}

MpiPort::Request& request_at(MpiPort* port, int32_t slot) {
    if (static_cast<size_t>(slot) >= port->requests.size()) port->requests.resize(static_cast<size_t>(slot) + 1);
    return port->requests[static_cast<size_t>(slot)];
}

int start_send(MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data, int32_t bytes, bool matched) {
    MpiPort& target = *ports[static_cast<size_t>(peer)];
    const auto* first = static_cast<const std::byte*>(data);
    request_at(port, slot) = {.kind = matched ? MpiPort::Request::Kind::matched_send : MpiPort::Request::Kind::send,
                              .done = !matched};
    target.arrivals.push_back({port->rank, tag, {first, first + bytes}, matched ? slot : -1});
    port->sent_tags.push_back(tag);
    largest_call_bytes = std::max(largest_call_bytes, bytes);
    match(target);
    return 0;
}

const MpiModule kQueues = {
    .version = kMpiModuleVersion,
    .describe = [](int, char* text, int32_t) { text[0] = '\0'; },
    .open =
        [](MpiPort** port) {
            *port = ports[static_cast<size_t>(own_rank)];
            return 0;
        },
    .opened =
        [](MpiPort*, int32_t* ready) {
            *ready = 1;
            return 0;
        },
    .close = [](MpiPort*) {},
    .send = [](MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data,
               int32_t bytes) { return start_send(port, slot, peer, tag, data, bytes, false); },
    .send_matched = [](MpiPort* port, int32_t slot, int32_t peer, int32_t tag, const void* data,
                       int32_t bytes) { return start_send(port, slot, peer, tag, data, bytes, true); },
    .receive =
        [](MpiPort* port, int32_t slot, int32_t peer, int32_t tag, void* data, int32_t bytes) {
            static int64_t number = 0;
            request_at(port, slot) = {.kind = MpiPort::Request::Kind::receive,
                                      .peer = peer,
                                      .tag = tag,
                                      .data = static_cast<std::byte*>(data),
                                      .bytes = bytes,
                                      .number = ++number};
            match(*port);
            return 0;
        },
    .cancel =
        [](MpiPort* port, int32_t slot) {
            request_at(port, slot).done = true;
            return 0;
        },
    .test =
        [](MpiPort* port, const MpiEvent** events, int32_t* count) {
            port->events.clear();
            for (size_t slot = 0; slot < port->requests.size(); ++slot) {
                MpiPort::Request& request = port->requests[slot];
                if (request.kind == MpiPort::Request::Kind::none || !request.done) continue;
                request.kind = MpiPort::Request::Kind::none;
                port->events.push_back({static_cast<int32_t>(slot), request.peer, request.bytes, 0});
            }
            *events = port->events.data();
            *count = static_cast<int32_t>(port->events.size());
            return 0;
        },
    .test_slot =
        [](MpiPort* port, int32_t slot, int32_t* done) {
            MpiPort::Request& request = request_at(port, slot);
            *done = request.kind == MpiPort::Request::Kind::none || request.done ? 1 : 0;
            if (*done != 0) request.kind = MpiPort::Request::Kind::none;
            return 0;
        },
};

class MpiTransportTest : public testing::Test {
protected:
    void make(int size, int last_tag, int64_t timeout_ms = 20'000) {
        for (int rank = 0; rank < size; ++rank) {
            storage_.push_back(std::make_unique<MpiPort>());
            storage_.back()->rank = rank;
            ports.push_back(storage_.back().get());
        }
        transports_.resize(static_cast<size_t>(size));
        std::vector<std::thread> makers;  // they wait for each other
        for (int rank = 0; rank < size; ++rank) {
            makers.emplace_back([=, this] {
                own_rank = rank;
                const MpiAccess access{kQueues, wire_mutex, rank, size, last_tag, [this] { ++give_up_count_; }};
                transports_[static_cast<size_t>(rank)] =
                    std::make_unique<MpiTransport>(access, MpiTransportOptions{.timeout_ms = timeout_ms});
            });
        }
        for (std::thread& maker : makers) maker.join();
    }
    void TearDown() override {
        transports_.clear();
        ports.clear();
    }
    MpiTransport& of(int rank) { return *transports_[static_cast<size_t>(rank)]; }
    // One look by every rank.
    void turn(int count = 1) {
        for (int round = 0; round < count; ++round) {
            for (auto& transport : transports_) transport->progress(0);
        }
    }
    std::string error_at(int rank) {
        try {
            for (int round = 0; round < 100; ++round) of(rank).progress(10'000'000);
        } catch (const CommError& error) {
            return error.what();
        }
        return "no error";
    }

    std::vector<std::unique_ptr<MpiPort>> storage_;
    std::vector<std::unique_ptr<MpiTransport>> transports_;
    int give_up_count_ = 0;
};

struct Parcel {
    std::vector<std::byte> bytes;
    Transfer transfer;
    Parcel(int peer, uint64_t tag, size_t count, int first = -1) : bytes(count), transfer{.peer = peer, .tag = tag} {
        for (size_t index = 0; first >= 0 && index < count; ++index) {
            bytes[index] = static_cast<std::byte>((static_cast<size_t>(first) + index * 7) % 251);
        }
        transfer.data = bytes.data();
        transfer.bytes = count;
    }
};

TEST_F(MpiTransportTest, EveryMessageArrivesUnderItsTagWhateverTheOrderOfPosting) {
    make(3, 4);  // three tags for data: they run out
    RandomStream random(7, "mpi-transport-test", 0, 0);
    const size_t sizes[] = {1, 100, 3968, 3969, 100'000, 524'288, 524'289, 3'000'001};
    std::vector<std::unique_ptr<Parcel>> out, in;
    std::vector<std::pair<int, Transfer*>> sends, receives;
    for (int number = 0; number < 120; ++number) {
        const int from = static_cast<int>(random.next_u32() % 3);
        const int to = (from + 1 + static_cast<int>(random.next_u32() % 2)) % 3;
        const uint64_t tag = (uint64_t{1} << 63) + static_cast<uint64_t>(number);
        const size_t bytes = sizes[random.next_u32() % std::size(sizes)];
        out.push_back(std::make_unique<Parcel>(to, tag, bytes, number));
        in.push_back(std::make_unique<Parcel>(from, tag, bytes));
        sends.emplace_back(from, &out.back()->transfer);
        receives.emplace_back(to, &in.back()->transfer);
    }
    for (size_t index = receives.size() - 1; index > 0; --index)
        std::swap(receives[index], receives[random.next_u32() % (index + 1)]);
    for (size_t index = 0; index < sends.size(); ++index) {
        of(sends[index].first).post_send(*sends[index].second);
        if (index % 3 == 0) turn();
    }
    for (const auto& [rank, transfer] : receives) {
        of(rank).post_receive(*transfer);
        turn();
    }
    turn(200);
    for (size_t index = 0; index < out.size(); ++index) {
        ASSERT_TRUE(out[index]->transfer.complete()) << index;
        ASSERT_TRUE(in[index]->transfer.complete()) << index;
        ASSERT_EQ(in[index]->bytes, out[index]->bytes) << index;
    }
    EXPECT_LE(largest_call_bytes, 1 << 20) << "counts of MPI are 32-bit: nothing long goes there in one piece";
}

TEST_F(MpiTransportTest, MessagesOfOneTagArriveInOrderOfPostingSmallAndLargeMixed) {
    make(2, 2);  // one tag for data: every second large message waits
    const size_t sizes[] = {700'000, 5, 700'000, 4, 3, 9000, 2};
    std::vector<std::unique_ptr<Parcel>> out, in;
    for (const size_t bytes : sizes) {
        out.push_back(std::make_unique<Parcel>(1, 9, bytes, static_cast<int>(out.size())));
        in.push_back(std::make_unique<Parcel>(0, 9, bytes));
        of(0).post_send(out.back()->transfer);
    }
    for (auto& each : in) {
        turn(3);
        of(1).post_receive(each->transfer);
    }
    turn(100);
    for (size_t index = 0; index < out.size(); ++index) EXPECT_EQ(in[index]->bytes, out[index]->bytes) << index;
}

TEST_F(MpiTransportTest, ATransferSaysHowMuchHasMovedFromTheFront) {
    make(2, 100);
    Parcel out(1, 1, 5'000'000, 3), in(0, 1, 5'000'000);
    of(0).post_send(out.transfer);
    of(1).post_receive(in.transfer);
    size_t before = 0;
    for (int round = 0; round < 50 && !in.transfer.complete(); ++round) {
        turn();
        EXPECT_GE(in.transfer.moved, before);
        before = in.transfer.moved;
        EXPECT_TRUE(std::equal(in.bytes.begin(), in.bytes.begin() + static_cast<std::ptrdiff_t>(before), out.bytes.begin()));
    }
    EXPECT_TRUE(in.transfer.complete());
}

TEST_F(MpiTransportTest, AnUrgentSendOvertakesALargeOneThatIsUnderWay) {
    make(2, 100);
    Parcel slow(1, 1, 60'000'000, 1), slow_in(0, 1, 60'000'000), fast(1, 2, 20'000'000, 2), fast_in(0, 2, 20'000'000);
    fast.transfer.urgency = 5;
    of(1).post_receive(slow_in.transfer);
    of(1).post_receive(fast_in.transfer);
    of(0).post_send(slow.transfer);
    turn(2);
    of(0).post_send(fast.transfer);
    const size_t before = slow_in.transfer.moved;
    for (int round = 0; round < 100 && !fast_in.transfer.complete(); ++round) turn();
    EXPECT_TRUE(fast_in.transfer.complete());
    EXPECT_FALSE(slow_in.transfer.complete());
    EXPECT_LT(slow_in.transfer.moved - before, fast.transfer.bytes / 2) << "little more than was under way before";
    turn(200);
    EXPECT_TRUE(slow_in.transfer.complete());
}

TEST_F(MpiTransportTest, AMessageOfAnotherLengthIsAnErrorNamingBoth) {
    make(2, 100);
    Parcel out(1, 1, 2000), in(0, 1, 3000);
    of(0).post_send(out.transfer);
    of(1).post_receive(in.transfer);
    EXPECT_EQ(error_at(1), "rank 0 sends 2000 bytes where rank 1 expects 3000 (tag 1)");
    EXPECT_EQ(error_at(1), "rank 0 sends 2000 bytes where rank 1 expects 3000 (tag 1)") << "for ever";
}

TEST_F(MpiTransportTest, ManyMessagesWithoutReceivesStayWithMpiAndArriveLater) {
    make(2, 100);
    std::vector<std::unique_ptr<Parcel>> out, in;
    for (int number = 0; number < 5000; ++number) {
        out.push_back(std::make_unique<Parcel>(1, static_cast<uint64_t>(number), 10, number));
        in.push_back(std::make_unique<Parcel>(0, static_cast<uint64_t>(number), 10));
        of(0).post_send(out.back()->transfer);
        turn(2);
    }
    EXPECT_GT(ports[1]->arrivals.size(), 500U) << "a bound on what the transport keeps itself";
    for (auto& each : in) {
        of(1).post_receive(each->transfer);
        turn();
    }
    turn(2000);
    for (size_t index = 0; index < out.size(); ++index) EXPECT_EQ(in[index]->bytes, out[index]->bytes) << index;
}

TEST_F(MpiTransportTest, ASilentPeerIsNamedOnceATransferWithItIsPosted) {
    make(2, 100, 60);
    EXPECT_EQ(error_at(0), "no error");
    Parcel in(1, 1, 10);
    of(0).post_receive(in.transfer);
    EXPECT_THAT(error_at(0), HasSubstr("rank 1 has shown no progress for 0."));
}

TEST_F(MpiTransportTest, SignsOfLifeKeepAPeerAlive) {
    make(2, 100, 600);
    Parcel in(1, 1, 10);
    of(0).post_receive(in.transfer);
    for (int part = 0; part < 14; ++part) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        of(1).note_progress();
        of(0).progress(0);
    }
    EXPECT_FALSE(in.transfer.complete());
}

TEST_F(MpiTransportTest, AnAbortEndsThePeersAndTheOwnNextLook) {
    make(3, 100);
    of(2).abort("the disk is full");
    for (const int rank : {0, 1, 2}) EXPECT_EQ(error_at(rank), "rank 2 gave up: the disk is full");
    transports_.clear();
    EXPECT_EQ(give_up_count_, 3) << "MPI is not ended after a failure";
}

TEST_F(MpiTransportTest, APeerThatHasLeftIsNamedWhenItIsNeeded) {
    make(2, 100);
    transports_.pop_back();
    EXPECT_EQ(error_at(0), "no error");
    Parcel in(1, 1, 10);
    of(0).post_receive(in.transfer);
    EXPECT_EQ(error_at(0), "rank 1 has left the job");
}

TEST_F(MpiTransportTest, LeavesInOrderWithNothingHeld) {
    make(2, 100);
    transports_.clear();
    EXPECT_EQ(give_up_count_, 0);
    for (const MpiPort* port : ports) {
        for (const auto& request : port->requests) EXPECT_EQ(request.kind, MpiPort::Request::Kind::none);
    }
}

}  // namespace
}  // namespace lockstep
