// libFuzzer target: Caffe's mean images.
#include <cstdint>
#include <span>

#include "core/error.h"
#include "data_loader/mean_image.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        const MeanImage mean = parse_mean_image(std::as_bytes(std::span(data, size)), "fuzz");
        const auto values = static_cast<size_t>(mean.channels) * static_cast<size_t>(mean.height) * static_cast<size_t>(mean.width);
        check(mean.values.size() == values, "a mean image has its values");
    } catch (const DataError&) {
    }
    return 0;
}
