// libFuzzer target: side indexes and the tars they belong to. The checksum is made right now and then, so that the fuzzer gets past
// it.
#include <cstdint>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/hash.h"
#include "data_loader/shard_index.h"

using namespace lockstep;

namespace {

std::string with_right_checksum(const uint8_t* data, size_t size) {
    std::string text(reinterpret_cast<const char*>(data), size);
    if (size < 8) return text;
    const uint64_t checksum = hash_bytes(text.data(), size - 8);
    std::memcpy(text.data() + size - 8, &checksum, 8);
    return text;
}

void try_index(std::span<const std::byte> bytes, std::span<const std::byte> tar) {
    try {
        const ShardIndex index = parse_shard_index(bytes, "fuzz.idx");
        mismatch(index, tar);
        for (size_t entry = 0; entry < index.entries().size(); ++entry) index.name(entry);
        const std::string again = encode(index);
        if (again.size() != bytes.size()) __builtin_trap();
    } catch (const DataError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    try_index(bytes, bytes);
    const std::string right = with_right_checksum(data, size);
    try_index(std::as_bytes(std::span(right.data(), right.size())), bytes);
    try {
        ShardIndex scanned = scan_shard(bytes, "fuzz.tar");
        read_contents(bytes, "fuzz.tar", scanned);
    } catch (const DataError&) {
    }
    return 0;
}
