// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, as in RFC 3720), and TFRecord's masked form of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

uint32_t crc32c(std::span<const std::byte> bytes);            // eight bytes at a time
uint32_t crc32c_reference(std::span<const std::byte> bytes);  // the slow twin: bit by bit

// ((crc >> 15) | (crc << 17)) + 0xa282ead8: so that a checksum of data that holds checksums stays a good one.
uint32_t masked_crc32c(std::span<const std::byte> bytes);

}  // namespace lockstep
