// The fields of a serialised protocol buffer, one after another: enough for the few messages that data sets hold.
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep {

class WireReader {
public:
    struct Field {
        uint32_t number = 0;
        bool has_bytes = false;            // a message, text or packed numbers
        uint64_t value = 0;                // else
        std::span<const std::byte> bytes;  // inside the message
    };

    explicit WireReader(std::span<const std::byte> message) : left_(message) {}

    // False at the end and at the first damaged field; ok() tells them apart.
    bool next(Field& field) {
        if (left_.empty() || !ok_) return false;
        const uint64_t key = varint();
        field = {.number = static_cast<uint32_t>(key >> 3)};
        ok_ = ok_ && key >> 3 != 0 && key >> 32 == 0;
        switch (key & 7U) {
            case 0:
                field.value = varint();
                break;
            case 1:
                field.value = fixed(8);
                break;
            case 2:
                field.has_bytes = true;
                field.bytes = take(varint());
                break;
            case 5:
                field.value = fixed(4);
                break;
            default:
                ok_ = false;
        }
        return ok_;
    }
    bool ok() const { return ok_; }
    bool at_end() const { return left_.empty(); }

    // Base-128, seven bits a byte, the lowest first.
    uint64_t varint() {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (left_.empty()) break;
            const uint64_t byte = std::to_integer<uint64_t>(left_.front());
            left_ = left_.subspan(1);
            value |= (byte & 0x7FU) << shift;
            if (byte < 0x80U) return value;
        }
        ok_ = false;
        return 0;
    }

private:
    std::span<const std::byte> take(uint64_t count) {
        if (!ok_ || count > left_.size()) {
            ok_ = false;
            return {};
        }
        const auto taken = left_.first(count);
        left_ = left_.subspan(count);
        return taken;
    }
    uint64_t fixed(size_t count) {  // little-endian
        uint64_t value = 0;
        const auto bytes = take(count);
        if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
        return value;
    }

    std::span<const std::byte> left_;
    bool ok_ = true;
};

}  // namespace lockstep
