// libFuzzer target: idx files, plain and gzipped, and lists of images.
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/idx.h"
#include "data_loader/image_list.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        parse_idx(std::as_bytes(std::span(data, size)), "fuzz");
    } catch (const DataError&) {
    }
    try {
        parse_image_list({reinterpret_cast<const char*>(data), size}, "fuzz.txt", 7);
    } catch (const DataError&) {
    }
    return 0;
}
