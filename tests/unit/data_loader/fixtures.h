// What the data tests share: the case files, a scratch folder, sets made on the spot.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/decoder.h"
#include "data_loader/source.h"

namespace lockstep {

inline fs::path case_file(const std::string& name) { return fs::path(LOCKSTEP_TESTS_DIR) / "cases" / name; }
inline fs::path golden_file(const std::string& name) { return fs::path(LOCKSTEP_TESTS_DIR) / "golden" / name; }

// Of this process, now.
inline int64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    int64_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * 4096;
}

// The text of the DataError that `action` throws; "" when it throws none.
template <typename Action>
std::string data_error_of(Action action) {
    try {
        action();
    } catch (const DataError& error) {
        return error.what();
    }
    return "";
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

inline Record record_of(const fs::path& path) {
    Record record{.key = path.string()};
    const std::string text = read_file(path);
    const auto bytes = bytes_of(text);
    record.storage.assign(bytes.begin(), bytes.end());
    record.bytes = record.storage;
    return record;
}

class ScratchTest : public ::testing::Test {
protected:
    void SetUp() override {
        const auto* info = testing::UnitTest::GetInstance()->current_test_info();
        folder_ = fs::path(testing::TempDir()) / (std::string("data_") + info->name() + "_" + std::to_string(getpid()));
        make_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    fs::path write(const std::string& name, std::string_view content) const {
        make_directories((folder_ / name).parent_path());
        // Many small files: without the sync of a file that must outlive a crash.
        std::ofstream(folder_ / name, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
        return folder_ / name;
    }
    fs::path folder_;
};

// A ustar file, member by member.
class TarWriter {
public:
    TarWriter& add(const std::string& name, std::string_view content, char type = '0') {
        std::string header(512, '\0');
        header.replace(0, name.size(), name);
        header.replace(100, 7, "0000644");
        char size[13];
        std::snprintf(size, sizeof size, "%011zo", content.size());
        header.replace(124, 11, size);
        header[156] = type;
        header.replace(257, 8, std::string_view("ustar\00000", 8));
        set_checksum(header);
        text_ += header;
        text_ += content;
        text_.resize((text_.size() + 511) / 512 * 512, '\0');
        return *this;
    }
    std::string finish() const { return text_ + std::string(1024, '\0'); }
    std::string unfinished() const { return text_; }

    static void set_checksum(std::string& header) {
        header.replace(148, 8, "        ");
        unsigned sum = 0;
        for (const char byte : header) sum += static_cast<unsigned char>(byte);
        char text[8];
        std::snprintf(text, sizeof text, "%06o", sum);
        header.replace(148, 7, std::string_view(text, 7));
    }

private:
    std::string text_;
};

}  // namespace lockstep
