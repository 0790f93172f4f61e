// libFuzzer target: the index and the shards of MDS sets.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/mds.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    try {
        parse_mds_index({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    } catch (const DataError&) {
    }
    uint32_t samples = 0;
    if (size >= 4) std::memcpy(&samples, data, 4);
    const bool fixed = size > 4 && data[4] % 2 == 0;
    const MdsShard shard{.file = "fuzz.mds",
                         .samples = samples % 1000,
                         .bytes = size,
                         .columns = {{"image", "jpeg", 0}, {"label", fixed ? "uint8" : "int", fixed ? uint64_t{1} : uint64_t{8}}}};
    try {
        for (const MdsSample& sample : read_mds_shard(bytes, shard, "fuzz.mds")) {
            if (!sample.image.empty() && sample.image.data() + sample.image.size() > bytes.data() + bytes.size()) __builtin_trap();
        }
    } catch (const DataError&) {
    }
    return 0;
}
