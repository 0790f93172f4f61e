// TensorBoard event files. A file is a row of records: u64 length, u32 masked CRC32C of the length, payload, u32 masked CRC32C of
// the payload (TFRecord; masked = rotate right by 15, plus 0xa282ead8). Payloads are tensorflow.Event messages, of which these
// fields are written: wall_time = 1 (double), step = 2 (int64), file_version = 3, summary = 5 {value = 1 {tag = 1,
// simple_value = 2 (float)}}, session_log = 7 {status = 1: START}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "report/append_file.h"
#include "report/records.h"

namespace lockstep {

uint32_t crc32c(std::span<const char> bytes);  // Castagnoli, RFC 3720
uint32_t masked_crc32c(std::span<const char> bytes);

class TensorBoardWriter {
public:
    // Starts a file of its own in `folder`. Its session start makes TensorBoard forget what earlier files say about steps from
    // `start_step` on. Throws DeviceError.
    TensorBoardWriter(const std::filesystem::path& folder, int64_t start_step);

    // One event with every finite value of the line; values that are not finite are left out. Written at once; allocates only
    // while a line is longer than any before.
    void write(const MetricsLine& line, double wall_time_s);

private:
    void append_event(size_t payload_bytes);

    std::unique_ptr<AppendFile> file_;
    std::vector<char> record_;  // frame and payload
};

}  // namespace lockstep
