#include "report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "core/clock.h"

namespace lockstep {

namespace {

using Wire = google::protobuf::internal::WireFormatLite;

enum EventField : int { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum ValueField : int { kTag = 1, kSimpleValue = 2 };
constexpr int kSummaryValue = 1;
constexpr int kSessionStatus = 1;
constexpr int kSessionStart = 1;

constexpr size_t kHeadBytes = 12;   // length and its checksum
constexpr size_t kFieldBytes = 24;  // at least tag, length and a number

constexpr std::array<uint32_t, 256> make_crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
        table[byte] = crc;
    }
    return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

size_t value_bytes(const std::string& tag) {
    return Wire::TagSize(kTag, Wire::TYPE_STRING) + Wire::LengthDelimitedSize(tag.size()) +
           Wire::TagSize(kSimpleValue, Wire::TYPE_FLOAT) + Wire::kFloatSize;
}

size_t summary_bytes(const MetricsLine& line) {
    size_t bytes = 0;
    for (const auto& [tag, value] : line.values) {
        if (std::isfinite(value))
            bytes += Wire::TagSize(kSummaryValue, Wire::TYPE_MESSAGE) + Wire::LengthDelimitedSize(value_bytes(tag));
    }
    return bytes;
}

uint8_t* put_message_head(int field, size_t bytes, uint8_t* at) {
    at = Wire::WriteTagToArray(field, Wire::WIRETYPE_LENGTH_DELIMITED, at);
    return google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(bytes), at);
}

uint8_t* put_text(int field, std::string_view text, uint8_t* at) {
    at = put_message_head(field, text.size(), at);
    std::memcpy(at, text.data(), text.size());
    return at + text.size();
}

uint8_t* put_time_and_step(double wall_time_s, int64_t step, uint8_t* at) {
    at = Wire::WriteDoubleToArray(kWallTime, wall_time_s, at);
    return Wire::WriteInt64ToArray(kStep, step, at);
}

uint8_t* put_summary(const MetricsLine& line, uint8_t* at) {
    at = put_message_head(kSummary, summary_bytes(line), at);
    for (const auto& [tag, value] : line.values) {
        if (!std::isfinite(value)) continue;
        at = put_message_head(kSummaryValue, value_bytes(tag), at);
        at = put_text(kTag, tag, at);
        at = Wire::WriteFloatToArray(kSimpleValue, static_cast<float>(value), at);
    }
    return at;
}

std::filesystem::path new_file_name(const std::filesystem::path& folder) {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "unknown");
    return folder / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(wall_clock_s()), host.data(), getpid());
}

}  // namespace

uint32_t crc32c(std::span<const char> bytes) {
    uint32_t crc = 0xFFFFFFFFU;
    for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
    return ~crc;
}

uint32_t masked_crc32c(std::span<const char> bytes) {
    const uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, int64_t start_step)
    : file_(std::make_unique<AppendFile>(new_file_name(folder))), record_(size_t{64} << 10) {
    const double now_s = wall_clock_s();
    auto* const begin = reinterpret_cast<uint8_t*>(record_.data() + kHeadBytes);
    uint8_t* at = put_text(kFileVersion, "brain.Event:2", put_time_and_step(now_s, 0, begin));
    append_event(static_cast<size_t>(at - begin));

    at = put_message_head(kSessionLog, 2, put_time_and_step(now_s, start_step, begin));
    at = Wire::WriteEnumToArray(kSessionStatus, kSessionStart, at);
    append_event(static_cast<size_t>(at - begin));
}

void TensorBoardWriter::write(const MetricsLine& line, double wall_time_s) {
    const size_t needed = kHeadBytes + 4 * kFieldBytes + summary_bytes(line);
    if (record_.size() < needed) record_.resize(2 * needed);
    auto* const begin = reinterpret_cast<uint8_t*>(record_.data() + kHeadBytes);
    const uint8_t* const end = put_summary(line, put_time_and_step(wall_time_s, line.step, begin));
    append_event(static_cast<size_t>(end - begin));
}

void TensorBoardWriter::append_event(size_t payload_bytes) {
    const auto length = static_cast<uint64_t>(payload_bytes);
    char* const data = record_.data();
    std::memcpy(data, &length, sizeof length);
    const uint32_t length_crc = masked_crc32c({data, sizeof length});
    std::memcpy(data + sizeof length, &length_crc, sizeof length_crc);
    const uint32_t payload_crc = masked_crc32c({data + kHeadBytes, payload_bytes});
    std::memcpy(data + kHeadBytes + payload_bytes, &payload_crc, sizeof payload_crc);
    file_->append(std::span<const char>(data, kHeadBytes + payload_bytes + sizeof payload_crc));
}

}  // namespace lockstep
