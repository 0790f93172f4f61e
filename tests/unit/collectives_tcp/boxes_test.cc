// Outbox and inbox back to back, without a socket: order, urgency, messages nobody asked for yet, and streams that lie.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/tcp/inbox.h"
#include "collectives/tcp/outbox.h"
#include "core/random.h"

namespace lockstep::tcp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kChunk = 1000;

// A transfer with memory of its own.
struct Message {
    Message(uint64_t tag, size_t length, std::byte fill = {}, int32_t urgency = 0) : bytes(length, fill) {
        transfer = {.peer = 1, .tag = tag, .data = bytes.data(), .bytes = length, .urgency = urgency};
    }
    std::vector<std::byte> bytes;
    Transfer transfer;
};

// Moves what the outbox has to the inbox, in pieces of at most `limit`; what the inbox does not take stays in between.
class Pipe {
public:
    explicit Pipe(size_t kept_bytes = size_t{1} << 20) : outbox(kChunk), inbox(0, 1, kept_bytes) {}

    // False when nothing could be moved.
    bool move(size_t limit) {
        bool moved = false;
        Outbox::Pieces pieces;
        if (const int count = outbox.next(pieces); count > 0 && in_between_.size() < 100'000) {
            size_t written = 0;
            for (int index = 0; index < count && written < limit; ++index) {
                const iovec& piece = pieces[static_cast<size_t>(index)];
                const size_t bytes = std::min(piece.iov_len, limit - written);
                const auto* data = static_cast<const std::byte*>(piece.iov_base);
                in_between_.insert(in_between_.end(), data, data + bytes);
                written += bytes;
            }
            outbox.wrote(written);
            moved = true;
        }
        const size_t taken = inbox.consume(std::span(in_between_).first(std::min(limit, in_between_.size())));
        in_between_.erase(in_between_.begin(), in_between_.begin() + static_cast<ptrdiff_t>(taken));
        return moved || taken > 0;
    }
    void move_all(size_t limit = 1 << 20) {
        while (move(limit)) {
        }
    }

    Outbox outbox;
    Inbox inbox;

private:
    std::vector<std::byte> in_between_;
};

// The tags of the frames that the outbox gives away, in order.
std::vector<uint64_t> frame_tags(Outbox& outbox) {
    std::vector<uint64_t> tags;
    FrameParser parser;
    Outbox::Pieces pieces;
    while (outbox.next(pieces) > 0) {
        const auto* header = static_cast<const std::byte*>(pieces[0].iov_base);
        std::span<const std::byte> input(header, kHeaderBytes);
        EXPECT_EQ(parser.take_header(input), FrameParser::Answer::complete);
        parser.payload_taken(parser.payload_left());
        tags.push_back(parser.header().kind == FrameKind::data ? parser.header().tag
                                                               : 1000 + static_cast<uint64_t>(parser.header().kind));
        outbox.wrote(kHeaderBytes + parser.header().payload_bytes);
    }
    return tags;
}

TEST(Boxes, AMessageArrivesWhole) {
    Pipe pipe;
    Message sent(7, 3456, std::byte{42});
    Message received(7, 3456);
    pipe.inbox.post(received.transfer);
    pipe.outbox.post(sent.transfer);
    pipe.move_all(100);
    EXPECT_TRUE(sent.transfer.complete());
    EXPECT_TRUE(received.transfer.complete());
    EXPECT_EQ(received.bytes, sent.bytes);
    EXPECT_TRUE(pipe.outbox.empty());
    EXPECT_FALSE(pipe.inbox.has_posted());
}

TEST(Boxes, BytesCountFromTheFrontWhileTheyCome) {
    Pipe pipe;
    Message sent(7, 2500, std::byte{1});
    Message received(7, 2500);
    pipe.inbox.post(received.transfer);
    pipe.outbox.post(sent.transfer);
    size_t before = 0;
    while (pipe.move(50)) {
        EXPECT_GE(received.transfer.moved, before);
        before = received.transfer.moved;
        EXPECT_EQ(std::count(received.bytes.begin(), received.bytes.end(), std::byte{1}), static_cast<ptrdiff_t>(before));
    }
    EXPECT_EQ(before, 2500U);
}

TEST(Boxes, AnUrgentMessageGoesBetweenTheChunksOfALargeOne) {
    Outbox outbox(kChunk);
    Message large(1, 3 * kChunk);
    Message urgent(2, 10, {}, 5);
    outbox.post(large.transfer);
    Outbox::Pieces pieces;
    EXPECT_EQ(outbox.next(pieces), 2);
    outbox.wrote(kHeaderBytes + 1);  // its first chunk is under way
    outbox.post(urgent.transfer);
    EXPECT_EQ(outbox.next(pieces), 1);
    outbox.wrote(kChunk - 1);
    EXPECT_EQ(outbox.next(pieces), 2);
    EXPECT_EQ(pieces[1].iov_len, 10U);
    outbox.wrote(kHeaderBytes + 10);
    EXPECT_TRUE(urgent.transfer.complete());
    EXPECT_EQ(large.transfer.moved, kChunk);
}

TEST(Boxes, UrgencyFirstThenOrderOfPosting) {
    Outbox outbox(kChunk);
    Message first(1, 10), second(2, 10), third(3, 10, {}, 1), fourth(4, 10, {}, 1);
    for (Message* each : {&first, &second, &third, &fourth}) outbox.post(each->transfer);
    EXPECT_THAT(frame_tags(outbox), ElementsAre(3, 4, 1, 2));
}

TEST(Boxes, AnUrgentMessageDoesNotOvertakeItsOwnTag) {
    Pipe pipe;
    Message elder(1, 2 * kChunk, std::byte{1}), other(2, 10), urgent(1, 20, std::byte{2}, 9);
    for (Message* each : {&elder, &other, &urgent}) pipe.outbox.post(each->transfer);
    Message first(1, 2 * kChunk), second(1, 20);
    pipe.inbox.post(first.transfer);
    pipe.inbox.post(second.transfer);
    pipe.move_all();
    EXPECT_EQ(first.bytes, elder.bytes);
    EXPECT_EQ(second.bytes, urgent.bytes);
}

TEST(Boxes, OwnWordsGoBeforeMessagesAndGoodbyeLast) {
    Outbox outbox(kChunk);
    Message message(1, 2 * kChunk);
    outbox.post(message.transfer);
    outbox.queue_goodbye();
    EXPECT_THAT(frame_tags(outbox), ElementsAre(1, 1, 1004));

    Outbox second(kChunk);
    second.post(message.transfer);
    second.queue_heartbeat(5, true);
    second.queue_heartbeat(6, true);
    EXPECT_THAT(frame_tags(second), ElementsAre(1002, 1, 1));

    Outbox third(kChunk);
    third.post(message.transfer);
    third.queue_abort("enough");
    third.queue_heartbeat(6, true);
    third.queue_abort("again");
    EXPECT_THAT(frame_tags(third), ElementsAre(1003));
    third.queue_goodbye();
    EXPECT_TRUE(third.empty());
}

TEST(Boxes, AMessageThatComesEarlyIsKept) {
    Pipe pipe;
    Message sent(7, 50'000, std::byte{9}), also_sent(8, 3, std::byte{8});
    pipe.outbox.post(sent.transfer);
    pipe.outbox.post(also_sent.transfer);
    pipe.move_all();
    EXPECT_TRUE(sent.transfer.complete());
    Message received(7, 50'000), also_received(8, 3);
    pipe.inbox.post(also_received.transfer);
    pipe.inbox.post(received.transfer);
    EXPECT_TRUE(received.transfer.complete() && also_received.transfer.complete());
    EXPECT_EQ(received.bytes, sent.bytes);
    EXPECT_EQ(also_received.bytes, also_sent.bytes);
}

TEST(Boxes, AReceivePostedInTheMiddleOfAnEarlyMessageTakesItOver) {
    for (size_t until = 0; until < 3 * (kChunk + kHeaderBytes); until += 333) {
        Pipe pipe;
        Message sent(7, 3 * kChunk, std::byte{9}), received(7, 3 * kChunk);
        pipe.outbox.post(sent.transfer);
        for (size_t moved = 0; moved < until; moved += 37) pipe.move(37);
        pipe.inbox.post(received.transfer);
        pipe.move_all(37);
        EXPECT_TRUE(received.transfer.complete()) << until;
        EXPECT_EQ(received.bytes, sent.bytes);
    }
}

TEST(Boxes, BeyondTheBoundNothingIsTakenUntilAReceiveIsPosted) {
    const size_t bound = 4 * KeptBlock::kBlockBytes;
    Pipe pipe(bound);
    Message large(1, 100'000, std::byte{1}), small(2, 10, std::byte{2});
    pipe.outbox.post(large.transfer);
    pipe.outbox.post(small.transfer);
    pipe.move_all();
    EXPECT_TRUE(pipe.inbox.stalled());
    EXPECT_EQ(pipe.inbox.data_bytes(), 4 * KeptBlock::kRoomBytes);

    Message received(1, 100'000), also_received(2, 10);
    pipe.inbox.post(received.transfer);
    EXPECT_FALSE(pipe.inbox.stalled());
    pipe.move_all();
    EXPECT_EQ(received.bytes, large.bytes);
    pipe.inbox.post(also_received.transfer);
    EXPECT_EQ(also_received.bytes, small.bytes);
}

TEST(Boxes, ANewMessageWithoutABlockWaitsForItsReceive) {
    Pipe pipe(1);  // one block
    Message first(1, 10, std::byte{1}), second(2, 10, std::byte{2}), third(3, 10, std::byte{3});
    for (Message* each : {&first, &second, &third}) pipe.outbox.post(each->transfer);
    pipe.move_all();
    EXPECT_TRUE(pipe.inbox.stalled());
    Message third_in(3, 10), second_in(2, 10), first_in(1, 10);
    pipe.inbox.post(third_in.transfer);
    pipe.move_all();
    EXPECT_TRUE(pipe.inbox.stalled()) << "another tag's receive does not help";
    pipe.inbox.post(second_in.transfer);
    pipe.move_all();
    pipe.inbox.post(first_in.transfer);
    EXPECT_TRUE(first_in.transfer.complete() && second_in.transfer.complete() && third_in.transfer.complete());
    EXPECT_EQ(second_in.bytes, second.bytes);
    EXPECT_EQ(third_in.bytes, third.bytes);
}

TEST(Boxes, ALengthThatDiffersIsNamed) {
    for (const bool posted_first : {true, false}) {
        for (const size_t expected : {size_t{99}, size_t{101}, 5 * kChunk}) {
            Pipe pipe;
            Message sent(7, 100), received(7, expected);
            if (posted_first) pipe.inbox.post(received.transfer);
            pipe.outbox.post(sent.transfer);
            pipe.move_all();
            if (!posted_first) pipe.inbox.post(received.transfer);
            EXPECT_THAT(pipe.inbox.fault(),
                        AllOf(HasSubstr("rank 1 sends a message of 100 bytes"),
                              HasSubstr("rank 0 expects " + std::to_string(expected)), HasSubstr("plans differ")));
            EXPECT_FALSE(received.transfer.complete());
        }
    }
}

TEST(Boxes, WordsOfThePeerAreUnderstood) {
    Pipe pipe;
    pipe.outbox.queue_heartbeat(1234, true);
    pipe.move_all(5);
    EXPECT_EQ(pipe.inbox.heartbeat_count(), 1U);
    EXPECT_EQ(pipe.inbox.heartbeat_age_ns(), 1234);
    EXPECT_TRUE(pipe.inbox.peer_waits());
    pipe.outbox.queue_abort("rank 1 has had enough");
    pipe.move_all(5);
    EXPECT_EQ(pipe.inbox.abort_reason(), "rank 1 has had enough");

    Pipe second;
    second.outbox.queue_goodbye();
    second.move_all();
    EXPECT_TRUE(second.inbox.peer_left());
}

std::vector<std::byte> stream_of(const std::vector<FrameHeader>& headers) {
    std::vector<std::byte> stream;
    uint64_t number = 0;
    for (const FrameHeader& header : headers) {
        const HeaderBytes bytes = encode(header, number++);
        stream.insert(stream.end(), bytes.begin(), bytes.end());
        stream.resize(stream.size() + header.payload_bytes);
    }
    return stream;
}

TEST(Boxes, AFrameBeyondItsMessageIsRefused) {
    for (const bool posted : {true, false}) {
        Inbox inbox(0, 1, 1 << 20);
        Message received(7, 100);
        if (posted) inbox.post(received.transfer);
        inbox.consume(stream_of(
            {{.tag = 7, .message_bytes = 100, .payload_bytes = 60}, {.tag = 7, .message_bytes = 100, .payload_bytes = 60}}));
        EXPECT_THAT(inbox.fault(), HasSubstr("sends a message of 120 bytes"));
    }
}

TEST(Boxes, AMessageWhoseLengthChangesOnTheWayIsRefused) {
    Inbox inbox(0, 1, 1 << 20);
    inbox.consume(
        stream_of({{.tag = 7, .message_bytes = 100, .payload_bytes = 60}, {.tag = 7, .message_bytes = 90, .payload_bytes = 30}}));
    EXPECT_FALSE(inbox.fault().empty());
}

// The slow twin: what a map of queues would deliver. Random messages on a few tags, random pieces, receives posted early or late.
TEST(Boxes, RandomTrafficArrivesAsInAMapOfQueues) {
    RandomStream random(5, "boxes");
    for (int round = 0; round < 60; ++round) {
        Pipe pipe(random.below(3) == 0 ? 1 << 14 : 1 << 20);
        std::map<uint64_t, std::deque<std::vector<std::byte>>> model;
        std::deque<std::unique_ptr<Message>> sends, receives;
        std::vector<uint64_t> tags;
        for (int index = 0; index < 40; ++index) {
            const uint64_t tag = random.below(4);
            const size_t bytes = 1 + random.below(random.below(2) == 0 ? 20 : 5000);
            auto message = std::make_unique<Message>(tag, bytes, std::byte{}, static_cast<int32_t>(random.below(3)));
            for (std::byte& each : message->bytes) each = static_cast<std::byte>(random.next_u32());
            model[tag].push_back(message->bytes);
            tags.push_back(tag);
            sends.push_back(std::move(message));
        }
        size_t posted_sends = 0;
        std::map<uint64_t, size_t> posted_receives;
        std::vector<std::pair<uint64_t, size_t>> order;
        for (const auto& [tag, queue] : model) {
            for (size_t index = 0; index < queue.size(); ++index) order.emplace_back(tag, index);
        }
        // Post in the order of sending, most of the time, so that the bound cannot lock the two up for ever.
        std::map<uint64_t, size_t> seen;
        order.clear();
        for (const uint64_t tag : tags) order.emplace_back(tag, seen[tag]++);
        size_t next_receive = 0;
        const auto unfinished = [&] {
            return posted_sends < sends.size() || next_receive < order.size() || !pipe.outbox.empty() || pipe.inbox.has_posted();
        };
        for (int step = 0; unfinished() && step < 1'000'000; ++step) {
            const uint64_t choice = random.below(4);
            if (choice == 0 && posted_sends < sends.size()) {
                pipe.outbox.post(sends[posted_sends++]->transfer);
            } else if (choice == 1 && next_receive < order.size()) {
                const auto [tag, index] = order[next_receive++];
                receives.push_back(std::make_unique<Message>(tag, model[tag][index].size()));
                pipe.inbox.post(receives.back()->transfer);
            } else {
                pipe.move(1 + random.below(3000));
            }
        }
        ASSERT_FALSE(unfinished()) << pipe.inbox.fault();
        for (size_t index = 0; index < order.size(); ++index) {
            EXPECT_TRUE(receives[index]->transfer.complete());
            EXPECT_EQ(receives[index]->bytes, model[order[index].first][order[index].second]);
        }
    }
}

// A stream with flipped, lost and doubled bytes may end in a fault, never in memory that is not its own (run under the sanitizers).
TEST(Boxes, DamagedStreamsAreSurvived) {
    const std::vector<std::byte> good = stream_of({{.tag = 1, .message_bytes = 3000, .payload_bytes = 1000},
                                                   {.kind = FrameKind::heartbeat, .tag = 5, .message_bytes = 1},
                                                   {.tag = 2, .message_bytes = 50, .payload_bytes = 50},
                                                   {.tag = 1, .message_bytes = 3000, .payload_bytes = 2000},
                                                   {.kind = FrameKind::abort, .payload_bytes = 20}});
    RandomStream random(6, "damage");
    int faults = 0;
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::byte> bytes = good;
        for (uint64_t change = 0; change <= random.below(4); ++change) {
            const auto place = static_cast<ptrdiff_t>(random.below(bytes.size()));
            if (random.below(3) == 0) {
                bytes.erase(bytes.begin() + place);
            } else if (random.below(2) == 0) {
                bytes.insert(bytes.begin() + place, std::byte{7});
            } else {
                bytes[static_cast<size_t>(place)] ^= static_cast<std::byte>(1 + random.below(255));
            }
        }
        Inbox inbox(0, 1, 8192);
        Message first(1, 3000), second(2, 50);
        inbox.post(first.transfer);
        if (random.below(2) == 0) inbox.post(second.transfer);
        for (size_t done = 0; done < bytes.size();) {
            const size_t piece = std::min<size_t>(1 + random.below(500), bytes.size() - done);
            const size_t taken = inbox.consume(std::span(bytes).subspan(done, piece));
            done += taken;
            if (taken < piece) break;
        }
        faults += inbox.fault().empty() ? 0 : 1;
    }
    EXPECT_GT(faults, 500);
}

}  // namespace
}  // namespace lockstep::tcp
