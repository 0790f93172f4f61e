// The wire format: what is written is read back, however it is cut, and nothing else is believed.
#include "collectives/tcp/frame.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep::tcp {
namespace {

using Answer = FrameParser::Answer;

Answer parse(FrameParser& parser, const HeaderBytes& bytes) {
    std::span<const std::byte> input(bytes);
    return parser.take_header(input);
}

FrameHeader data_frame(uint32_t payload_bytes, uint64_t message_bytes) {
    return {.tag = 0x1122334455667788, .message_bytes = message_bytes, .payload_bytes = payload_bytes};
}

TEST(Frame, HeaderComesBackFromAnyCut) {
    const HeaderBytes bytes = encode(data_frame(70'000, uint64_t{5} << 32), 0);
    for (size_t cut = 0; cut <= kHeaderBytes; ++cut) {
        FrameParser parser;
        std::span<const std::byte> first(bytes.data(), cut);
        std::span<const std::byte> second(bytes.data() + cut, kHeaderBytes - cut);
        EXPECT_EQ(parser.take_header(first), cut == kHeaderBytes ? Answer::complete : Answer::incomplete);
        if (cut < kHeaderBytes) {
            EXPECT_FALSE(cut > 0 && parser.between_frames());
            EXPECT_EQ(parser.take_header(second), Answer::complete);
        }
        EXPECT_TRUE(first.empty());
        EXPECT_EQ(parser.header().kind, FrameKind::data);
        EXPECT_EQ(parser.header().tag, 0x1122334455667788U);
        EXPECT_EQ(parser.header().message_bytes, uint64_t{5} << 32);
        EXPECT_EQ(parser.payload_left(), 70'000U);
    }
}

TEST(Frame, TheBytesOnTheWireAreFixed) {
    const HeaderBytes bytes = encode({.kind = FrameKind::abort, .tag = 1, .message_bytes = 2, .payload_bytes = 3}, 0);
    const unsigned char expected[28] = {'L', 'L', 'T', 'F', 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0};
    for (size_t index = 0; index < sizeof expected; ++index) {
        EXPECT_EQ(std::to_integer<unsigned char>(bytes[index]), expected[index]) << "byte " << index;
    }
}

TEST(Frame, AFrameThatIsLostOrRepeatedIsNoticed) {
    FrameParser parser;
    EXPECT_EQ(parse(parser, encode({.kind = FrameKind::heartbeat}, 0)), Answer::complete);
    EXPECT_EQ(parse(parser, encode({.kind = FrameKind::heartbeat}, 1)), Answer::complete);
    FrameParser repeated = parser;
    EXPECT_EQ(parse(repeated, encode({.kind = FrameKind::heartbeat}, 1)), Answer::invalid);
    EXPECT_EQ(parse(parser, encode({.kind = FrameKind::heartbeat}, 3)), Answer::invalid);
    EXPECT_EQ(parse(parser, encode({.kind = FrameKind::heartbeat}, 2)), Answer::invalid) << "once broken, for ever broken";
}

TEST(Frame, EveryFlippedBitOfAHeaderIsNoticed) {
    const HeaderBytes good = encode(data_frame(4096, 4096), 0);
    for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
        HeaderBytes bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        FrameParser parser;
        EXPECT_EQ(parse(parser, bad), Answer::invalid) << "bit " << bit;
        EXPECT_FALSE(parser.reason().empty());
    }
}

TEST(Frame, LengthsThatNoFrameHasAreRefused) {
    const std::vector<FrameHeader> hostile = {
        data_frame(0, 100),                                 // nothing
        data_frame(101, 100),                               // more than its message
        data_frame(kMaxChunkBytes + 1, uint64_t{1} << 40),  // over the limit
        data_frame(UINT32_MAX, UINT64_MAX),
        {.kind = FrameKind::heartbeat, .payload_bytes = 1},
        {.kind = FrameKind::goodbye, .payload_bytes = 1},
        {.kind = FrameKind::abort, .payload_bytes = kMaxReasonBytes + 1},
        {.kind = static_cast<FrameKind>(0)},
        {.kind = static_cast<FrameKind>(5)},
    };
    for (const FrameHeader& header : hostile) {
        FrameParser parser;
        EXPECT_EQ(parse(parser, encode(header, 0)), Answer::invalid);
        EXPECT_EQ(parser.payload_left(), 0U);
    }
}

TEST(Frame, RandomBytesAreRefused) {
    RandomStream random(3, "frames");
    for (int round = 0; round < 2000; ++round) {
        HeaderBytes bytes;
        for (std::byte& each : bytes) each = static_cast<std::byte>(random.next_u32());
        FrameParser parser;
        EXPECT_EQ(parse(parser, bytes), Answer::invalid);
    }
}

}  // namespace
}  // namespace lockstep::tcp
