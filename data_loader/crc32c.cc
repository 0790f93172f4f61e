#include "data_loader/crc32c.h"

#include <array>
#include <cstring>

namespace lockstep {

namespace {

constexpr uint32_t kReflectedPolynomial = 0x82F63B78;

constexpr uint32_t shift_bits(uint32_t crc, int bits) {
    for (int bit = 0; bit < bits; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kReflectedPolynomial : 0U);
    return crc;
}

// Table k holds what a byte does to the sum when k more bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) tables[0][byte] = shift_bits(byte, 8);
    for (size_t table = 1; table < 8; ++table) {
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
        }
    }
    return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
    uint32_t crc = ~0U;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data(), 8);
        word ^= crc;
        crc = 0;
        for (size_t byte = 0; byte < 8; ++byte) crc ^= kTables[7 - byte][word >> (8 * byte) & 0xFFU];
    }
    for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xFFU];
    return ~crc;
}

uint32_t crc32c_reference(std::span<const std::byte> bytes) {
    uint32_t crc = ~0U;
    for (const std::byte byte : bytes) crc = shift_bits(crc ^ std::to_integer<uint32_t>(byte), 8);
    return ~crc;
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
    const uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace lockstep
