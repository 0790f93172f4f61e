// libFuzzer target: tar files. The checksums of headers are made right, so that the fuzzer gets past them.
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/tar.h"

using namespace lockstep;

namespace {

constexpr size_t kBlock = 512;

void set_checksum(std::string& text, size_t header) {
    text.replace(header + 148, 8, "        ");
    unsigned sum = 0;
    for (size_t place = header; place < header + kBlock; ++place) sum += static_cast<unsigned char>(text[place]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    text.replace(header + 148, 7, std::string(digits, 7));
}

void read_index(std::span<const std::byte> file) {
    try {
        for (const TarMember& member : read_tar_index(file, "fuzz.tar").members) {
            if (member.offset > file.size() || member.size > file.size() - member.offset) __builtin_trap();
        }
    } catch (const DataError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    read_index(std::as_bytes(std::span(data, size)));
    std::string text(reinterpret_cast<const char*>(data), size);
    for (size_t header = 0; header + kBlock <= text.size(); header += kBlock) {
        if ((static_cast<unsigned char>(text[header + 511]) & 1U) == 0) set_checksum(text, header);
    }
    read_index(std::as_bytes(std::span(text.data(), text.size())));
    return 0;
}
