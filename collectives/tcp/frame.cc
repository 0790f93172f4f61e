#include "collectives/tcp/frame.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace lockstep::tcp {

namespace {

constexpr uint32_t kMagic = 0x46544C4C;  // "LLTF"

// Byte by byte, so that the order on the wire is the same everywhere; compilers make one store of it.
template <typename Value>
void put(std::byte* to, Value value) {
    for (size_t index = 0; index < sizeof value; ++index) to[index] = static_cast<std::byte>(value >> (8 * index));
}

template <typename Value>
Value get(const std::byte* from) {
    Value value = 0;
    for (size_t index = 0; index < sizeof value; ++index) {
        value = static_cast<Value>(value | static_cast<Value>(std::to_integer<Value>(from[index]) << (8 * index)));
    }
    return value;
}

// Not a secret, only a sieve: a stream that is out of step, or a header with a flipped bit, passes once in 2^32.
uint32_t check_of(const std::byte* bytes, uint64_t number) {
    uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ULL;
    for (const uint64_t word :
         {get<uint64_t>(bytes), get<uint64_t>(bytes + 8), get<uint64_t>(bytes + 16), uint64_t{get<uint32_t>(bytes + 24)}}) {
        mixed = (mixed ^ word) * 0xFF51AFD7ED558CCDULL;
        mixed ^= mixed >> 32;
    }
    return static_cast<uint32_t>(mixed);
}

// Lengths that no frame of this kind has; nullptr for a good one.
const char* complaint_about(const FrameHeader& header) {
    switch (header.kind) {
        case FrameKind::data:
            if (header.payload_bytes == 0) return "a data frame without data";
            if (header.payload_bytes > kMaxChunkBytes) return "a data frame over the limit";
            return header.payload_bytes > header.message_bytes ? "a data frame longer than its message" : nullptr;
        case FrameKind::heartbeat:
        case FrameKind::goodbye:
            return header.payload_bytes != 0 ? "a control frame with data" : nullptr;
        case FrameKind::abort:
            return header.payload_bytes > kMaxReasonBytes ? "an abort frame over the limit" : nullptr;
    }
    return "a frame of unknown kind";
}

}  // namespace

HeaderBytes encode(const FrameHeader& header, uint64_t number) {
    HeaderBytes bytes{};
    put(bytes.data(), kMagic);
    put(bytes.data() + 4, static_cast<uint32_t>(header.kind));
    put(bytes.data() + 8, header.tag);
    put(bytes.data() + 16, header.message_bytes);
    put(bytes.data() + 24, header.payload_bytes);
    put(bytes.data() + 28, check_of(bytes.data(), number));
    return bytes;
}

FrameParser::Answer FrameParser::refuse(std::string_view reason) {
    reason_ = reason;
    return Answer::invalid;
}

FrameParser::Answer FrameParser::take_header(std::span<const std::byte>& input) {
    check(payload_left_ == 0, "the payload is taken before the next header");
    if (!reason_.empty()) return Answer::invalid;
    const size_t taken = std::min(input.size(), kHeaderBytes - filled_);
    std::copy_n(input.begin(), taken, bytes_.begin() + static_cast<ptrdiff_t>(filled_));
    input = input.subspan(taken);
    filled_ += taken;
    if (filled_ < kHeaderBytes) return Answer::incomplete;

    const std::byte* bytes = bytes_.data();
    if (get<uint32_t>(bytes) != kMagic) return refuse("something that is no frame");
    if (get<uint32_t>(bytes + 28) != check_of(bytes, number_)) return refuse("a frame whose check is wrong");
    const auto kind = get<uint32_t>(bytes + 4);
    if (kind > 0xFF) return refuse("a frame of unknown kind");
    header_ = {.kind = static_cast<FrameKind>(kind),
               .tag = get<uint64_t>(bytes + 8),
               .message_bytes = get<uint64_t>(bytes + 16),
               .payload_bytes = get<uint32_t>(bytes + 24)};
    if (const char* complaint = complaint_about(header_)) return refuse(complaint);
    filled_ = 0;
    number_ += 1;
    payload_left_ = header_.payload_bytes;
    return Answer::complete;
}

}  // namespace lockstep::tcp
