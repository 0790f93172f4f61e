// libFuzzer target: FFCV's .beton files. The input is read as a file, and as what follows a right head and the fields of a picture
// and a label, so that the fuzzer gets to samples and allocations.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/beton.h"

using namespace lockstep;

namespace {

template <typename Number>
void put(std::string& text, size_t offset, Number number) {
    std::memcpy(text.data() + offset, &number, sizeof number);
}

std::string with_head(const uint8_t* data, size_t size) {
    std::string file(24 + 2 * 1041, '\0');
    put(file, 0, uint16_t{2});
    put(file, 2, uint16_t{2});
    put(file, 4, uint32_t{1} << 21);
    put(file, 8, uint64_t{size > 0 ? data[0] % 16U : 0U});
    file[24] = 2;
    file[24 + 1041] = 1;
    file.append(reinterpret_cast<const char*>(data), size);
    // The table begins wherever the input says, a whole number of rows before the end.
    const size_t rows = size > 1 ? data[1] % 16U : 0U;
    put(file, 16, static_cast<uint64_t>(file.size() - std::min(file.size(), 24 * rows)));
    return file;
}

void read_file(std::span<const std::byte> file) {
    try {
        for (const BetonSample& sample : read_beton(file, "fuzz.beton")) {
            const bool inside = sample.data.empty() || (sample.data.data() >= file.data() &&
                                                        sample.data.data() + sample.data.size() <= file.data() + file.size());
            const auto pixels = size_t{3} * static_cast<size_t>(sample.width) * static_cast<size_t>(sample.height);
            if (!inside || (sample.raw && sample.data.size() != pixels)) __builtin_trap();
        }
    } catch (const DataError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    read_file(std::as_bytes(std::span(data, size)));
    const std::string file = with_head(data, size);
    read_file(std::as_bytes(std::span(file.data(), file.size())));
    return 0;
}
