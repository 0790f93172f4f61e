// libFuzzer target: LMDB files and the Datums inside them. The input is read as a file, as a Datum, and as the pages that follow
// two right descriptions, so that the fuzzer gets to the tree.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/datum.h"
#include "data_loader/lmdb_file.h"

using namespace lockstep;

namespace {

constexpr size_t kPage = 256;

template <typename Number>
void put(std::string& text, size_t offset, Number number) {
    std::memcpy(text.data() + offset, &number, sizeof number);
}

// Two descriptions of a tree whose root, size and depth the input chooses, then its bytes as pages of 256.
std::string with_descriptions(const uint8_t* data, size_t size) {
    std::string file(2 * kPage, '\0');
    for (const size_t begin : {size_t{0}, kPage}) {
        put(file, begin + 16, uint32_t{0xBEEFC0DE});
        put(file, begin + 20, uint32_t{1});
        put(file, begin + 40, static_cast<uint32_t>(kPage));
        put(file, begin + 120, uint64_t{size > 0 ? data[0] : 0U});
        put(file, begin + 128, uint64_t{size > 1 ? 2U + data[1] % 8U : 2U});
        put(file, begin + 144, static_cast<uint64_t>(begin));
    }
    return file.append(reinterpret_cast<const char*>(data), size);
}

void read_file(std::span<const std::byte> file) {
    try {
        for (const auto value : read_lmdb_values(file, "fuzz.mdb")) {
            if (value.empty()) continue;
            const bool inside = value.data() >= file.data() && value.data() + value.size() <= file.data() + file.size();
            if (!inside) __builtin_trap();
            parse_datum(value);
        }
    } catch (const DataError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    read_file(bytes);
    const std::string file = with_descriptions(data, size);
    read_file(std::as_bytes(std::span(file.data(), file.size())));
    if (const std::optional<Datum> datum = parse_datum(bytes); datum && !datum->encoded) {
        if (datum->data.size() !=
            static_cast<size_t>(datum->channels) * static_cast<size_t>(datum->height) * static_cast<size_t>(datum->width)) {
            __builtin_trap();
        }
    }
    return 0;
}
