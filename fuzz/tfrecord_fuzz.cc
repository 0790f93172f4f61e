// libFuzzer target: TFRecord files and the messages inside them.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "data_loader/crc32c.h"
#include "data_loader/tfrecord.h"

using namespace lockstep;

namespace {

// One record with right checksums around the input.
std::string framed(std::span<const std::byte> data) {
    std::string text(12, '\0');
    const uint64_t size = data.size();
    std::memcpy(text.data(), &size, 8);
    const uint32_t head = masked_crc32c(std::as_bytes(std::span(text.data(), 8))), tail = masked_crc32c(data);
    std::memcpy(text.data() + 8, &head, 4);
    text.append(reinterpret_cast<const char*>(data.data()), data.size());
    text.append(reinterpret_cast<const char*>(&tail), 4);
    return text;
}

void read_all(std::span<const std::byte> file) {
    try {
        int64_t number = 0;
        for (const TfRecord& record : read_tfrecord_index(file, "fuzz")) {
            check_tfrecord(file, record, number++, "fuzz");
            const auto data = file.subspan(record.offset, record.size);
            const std::optional<TfExample> example = parse_tf_example(data);
            if (!example || example->image.empty()) continue;
            const bool inside =
                example->image.data() >= data.data() && example->image.data() + example->image.size() <= data.data() + data.size();
            if (!inside) __builtin_trap();
        }
    } catch (const DataError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (crc32c(bytes) != crc32c_reference(bytes)) __builtin_trap();
    read_all(bytes);
    const std::string file = framed(bytes);
    read_all(std::as_bytes(std::span(file.data(), file.size())));
    return 0;
}
