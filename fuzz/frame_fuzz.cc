// libFuzzer target: whatever a peer may send. The first bytes choose how the stream is cut and which receives are posted, the rest
// is the stream; headers are made valid now and then, so that the fuzzer gets past the check. Built and run by scripts/fuzz.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/inbox.h"

namespace {

using namespace lockstep;
using namespace lockstep::tcp;

class Bytes {
public:
    Bytes(const uint8_t* data, size_t size) : left_(data, size) {}
    bool empty() const { return left_.empty(); }
    uint8_t next() {
        if (left_.empty()) return 0;
        const uint8_t value = left_.front();
        left_ = left_.subspan(1);
        return value;
    }
    uint32_t next_u32() { return next() | next() << 8 | next() << 16 | static_cast<uint32_t>(next()) << 24; }
    std::span<const uint8_t> take(size_t count) {
        const auto taken = left_.first(std::min(count, left_.size()));
        left_ = left_.subspan(taken.size());
        return taken;
    }

private:
    std::span<const uint8_t> left_;
};

void append(std::vector<std::byte>& stream, std::span<const std::byte> bytes) {
    stream.insert(stream.end(), bytes.begin(), bytes.end());
}

// Frames with valid headers and fields chosen by the input, mixed with its raw bytes.
std::vector<std::byte> make_stream(Bytes& input) {
    std::vector<std::byte> stream;
    uint64_t number = 0;
    while (!input.empty() && stream.size() < 100'000) {
        const uint8_t choice = input.next();
        if (choice % 8 == 0) {
            append(stream, std::as_bytes(input.take(input.next())));
            continue;
        }
        const uint32_t payload = choice % 8 == 1 ? input.next_u32() : input.next() * (choice % 4 == 3 ? 16U : 1U);
        const uint64_t message = choice % 8 == 2 ? (uint64_t{input.next_u32()} << 32 | payload) : payload + input.next() * 16U;
        const FrameHeader header{.kind = static_cast<FrameKind>(choice >= 240 ? input.next() : 1 + choice / 200),
                                 .tag = input.next() % 4U,
                                 .message_bytes = message,
                                 .payload_bytes = payload};
        append(stream, encode(header, number++));
        stream.resize(stream.size() + std::min<size_t>(payload, 5000));
    }
    return stream;
}

void feed(Inbox& inbox, std::span<const std::byte> stream, size_t piece_bytes) {
    while (!stream.empty() && inbox.fault().empty() && !inbox.stalled()) {
        // As the connection does it: payload straight to its place where there is one.
        const std::span<std::byte> room = inbox.payload_room();
        const size_t direct = std::min({room.size(), stream.size(), piece_bytes});
        if (direct > 0) {
            std::memcpy(room.data(), stream.data(), direct);
            inbox.payload_filled(direct);
            stream = stream.subspan(direct);
            continue;
        }
        const size_t offered = std::min(stream.size(), piece_bytes);
        const size_t taken = inbox.consume(stream.first(offered));
        stream = stream.subspan(taken);
        if (taken < offered) break;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Bytes input(data, size);
    const size_t piece_bytes = size_t{1} + input.next() * 8U;
    const uint8_t posted = input.next();
    std::vector<std::vector<std::byte>> memory;
    std::vector<Transfer> transfers;
    for (uint64_t tag = 0; tag < 4; ++tag) memory.emplace_back(size_t{1} + input.next() * 16U);
    for (uint64_t tag = 0; tag < 4; ++tag) {
        transfers.push_back({.peer = 1, .tag = tag, .data = memory[tag].data(), .bytes = memory[tag].size()});
    }
    const std::vector<std::byte> stream = make_stream(input);

    Inbox inbox(0, 1, 3 * KeptBlock::kBlockBytes);
    for (size_t index = 0; index < 4; ++index) {
        if ((posted >> index & 1) != 0) inbox.post(transfers[index]);
    }
    const std::span<const std::byte> all(stream);
    feed(inbox, all.first(all.size() / 2), piece_bytes);
    for (size_t index = 0; index < 4; ++index) {
        if ((posted >> index & 1) == 0) inbox.post(transfers[index]);
    }
    feed(inbox, all.last(all.size() - all.size() / 2), piece_bytes);

    Handshake listener =
        Handshake::as_listener({.rank = 0, .size = 4, .job = "job", .secret = "secret"}, [](int) { return std::string(); });
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    listener.receive(text.substr(0, size / 2));
    if (listener.state() == Handshake::State::under_way) listener.receive(text.substr(size / 2));
    if (listener.state() == Handshake::State::done) __builtin_trap();
    return 0;
}
