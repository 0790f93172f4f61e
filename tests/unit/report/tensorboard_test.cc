#include "report/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "core/files.h"

namespace lockstep {
namespace {

// Reads one protobuf message into field number -> raw values, knowing nothing of our writer.
std::multimap<int, std::string> fields_of(const std::string& message) {
    std::multimap<int, std::string> fields;
    size_t at = 0;
    const auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(message.at(at++));
            value |= uint64_t{byte & 0x7FU} << shift;
            if (byte < 0x80) return value;
        }
    };
    while (at < message.size()) {
        const uint64_t key = varint();
        const int field = static_cast<int>(key >> 3);
        switch (key & 7) {
            case 0:
                fields.emplace(field, std::to_string(varint()));
                break;
            case 1:
                fields.emplace(field, message.substr(at, 8));
                at += 8;
                break;
            case 2: {
                const uint64_t length = varint();
                fields.emplace(field, message.substr(at, length));
                at += length;
                break;
            }
            case 5:
                fields.emplace(field, message.substr(at, 4));
                at += 4;
                break;
            default:
                ADD_FAILURE() << "wire type " << (key & 7);
                return fields;
        }
    }
    EXPECT_EQ(at, message.size());
    return fields;
}

template <typename Number>
Number number_in(const std::string& bytes) {
    Number number{};
    EXPECT_EQ(bytes.size(), sizeof number);
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
}

std::vector<std::string> events_in(const std::string& file) {
    std::vector<std::string> events;
    size_t at = 0;
    while (at < file.size()) {
        const auto length = number_in<uint64_t>(file.substr(at, 8));
        EXPECT_EQ(number_in<uint32_t>(file.substr(at + 8, 4)), masked_crc32c(std::span(file).subspan(at, 8)));
        events.push_back(file.substr(at + 12, length));
        EXPECT_EQ(number_in<uint32_t>(file.substr(at + 12 + length, 4)), masked_crc32c(events.back()));
        at += 16 + length;
    }
    return events;
}

TEST(TensorBoard, ChecksumIsTheOneOfTheRfc) {
    // RFC 3720, appendix B.4, and the usual check value.
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
    EXPECT_EQ(crc32c(std::string("123456789")), 0xE3069283U);
}

TEST(TensorBoard, FilesReadBackAsEvents) {
    const fs::path folder = fs::path(testing::TempDir()) / ("tensorboard_" + std::to_string(getpid()));
    make_directories(folder);
    {
        TensorBoardWriter writer(folder, 40);
        writer.write({41, 1.0, {{"train.loss", 0.5}, {"val.loss", NAN}, {"lr", 0.125}}}, 1234.5);
        MetricsLine wide{42, 1.0, {}};
        for (int index = 0; index < 3000; ++index)
            wide.values.emplace_back("metric." + std::string(40, 'x') + std::to_string(index), index);
        writer.write(wide, 1235.5);
    }
    const fs::path path = fs::directory_iterator(folder)->path();
    EXPECT_EQ(path.filename().string().rfind("events.out.tfevents.", 0), 0U);
    const auto events = events_in(read_file(path));
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ(fields_of(events[0]).find(3)->second, "brain.Event:2");
    EXPECT_EQ(fields_of(events[1]).find(2)->second, "40");
    EXPECT_EQ(fields_of(fields_of(events[1]).find(7)->second).find(1)->second, "1");

    const auto event = fields_of(events[2]);
    EXPECT_EQ(number_in<double>(event.find(1)->second), 1234.5);
    EXPECT_EQ(event.find(2)->second, "41");
    std::map<std::string, float> values;
    const auto summary = fields_of(event.find(5)->second);
    for (const auto& [field, value] : summary) {
        const auto parts = fields_of(value);
        values[parts.find(1)->second] = number_in<float>(parts.find(2)->second);
    }
    EXPECT_EQ(values, (std::map<std::string, float>{{"train.loss", 0.5F}, {"lr", 0.125F}}));
    EXPECT_EQ(fields_of(fields_of(events[3]).find(5)->second).size(), 3000U);
    fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
