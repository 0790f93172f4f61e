#include "data_loader/beton.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kHeadBytes = 24, kFieldBytes = 1041, kNameBytes = 16, kAllocationBytes = 24;
constexpr uint16_t kVersion = 2, kMaxFields = 256;
constexpr uint8_t kInteger = 1, kPicture = 2, kCustom = 255;

// Of a field in a sample, by type: float, integer, picture, bytes, array, JSON, tensor.
struct Layout {
    uint64_t bytes, alignment;
};
constexpr std::array<Layout, 7> kLayouts{{{8, 8}, {8, 8}, {13, 1}, {16, 1}, {8, 8}, {16, 1}, {8, 8}}};

template <typename Number>
Number number_at(std::span<const std::byte> file, uint64_t offset) {
    Number number = 0;
    std::memcpy(&number, file.data() + offset, sizeof number);
    return number;
}

struct Field {
    std::string name;
    uint8_t type = 0;
    uint64_t offset = 0;  // in a sample
};

struct Allocation {
    uint64_t offset, bytes;
};

uint64_t rounded_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class BetonReader {
public:
    BetonReader(std::span<const std::byte> file, const std::filesystem::path& path) : file_(file), path_(path) {}

    std::vector<BetonSample> run() {
        read_head();
        read_fields();
        read_table();
        const Field &picture = choose(kPicture, {"image", "img", "x"}, "picture"),
                    &label = choose(kInteger, {"label", "class", "cls", "target", "y"}, "label (an integer)");
        std::vector<BetonSample> samples(sample_count_);
        for (uint64_t number = 0; number < sample_count_; ++number) {
            const uint64_t begin = samples_begin_ + number * sample_bytes_;
            samples[number] = sample_at(number, begin, begin + picture.offset);
            samples[number].label = number_at<int64_t>(file_, begin + label.offset);
        }
        return samples;
    }

private:
    [[noreturn]] void fail(uint64_t record, uint64_t offset, std::string_view reason) const {
        throw DataError(fmt::format("{}: record {} at offset {}: {}; the .beton file is damaged or cut, copy or make it again",
                                    path_.string(), record, offset, reason));
    }
    [[noreturn]] void fail_head(uint64_t offset, std::string_view reason) const {
        throw DataError(fmt::format("{}: offset {}: {}; no .beton file of version {}, or it is damaged or cut", path_.string(),
                                    offset, reason, kVersion));
    }

    void read_head() {
        if (file_.size() < kHeadBytes) fail_head(0, fmt::format("{} bytes", file_.size()));
        if (const auto version = number_at<uint16_t>(file_, 0); version != kVersion)
            fail_head(0, fmt::format("version {}", version));
        field_count_ = number_at<uint16_t>(file_, 2);
        sample_count_ = number_at<uint64_t>(file_, 8);
        table_begin_ = number_at<uint64_t>(file_, 16);
        samples_begin_ = kHeadBytes + kFieldBytes * field_count_;
        if (field_count_ == 0 || field_count_ > kMaxFields) fail_head(2, fmt::format("{} fields", field_count_));
        if (table_begin_ > file_.size() || table_begin_ < samples_begin_) {
            fail_head(16, fmt::format("the allocation table lies at {} of {} bytes", table_begin_, file_.size()));
        }
    }

    void read_fields() {
        uint64_t end = 0, alignment = 1;
        for (uint64_t number = 0; number < field_count_; ++number) {
            const uint64_t begin = kHeadBytes + number * kFieldBytes;
            Field field{.name = {}, .type = number_at<uint8_t>(file_, begin)};
            const char* name = reinterpret_cast<const char*>(file_.data() + begin + 1);
            field.name.assign(name, strnlen(name, kNameBytes));
            if (field.type >= kLayouts.size()) {
                fail_head(begin, field.type == kCustom ? fmt::format("field {} is of a kind of its own", field.name)
                                                       : fmt::format("field {} of unknown type {}", number, field.type));
            }
            const Layout layout = kLayouts[field.type];
            field.offset = rounded_up(end, layout.alignment);
            end = field.offset + layout.bytes;
            alignment = std::max(alignment, layout.alignment);
            fields_.push_back(std::move(field));
        }
        sample_bytes_ = rounded_up(end, alignment);
        if (sample_count_ > (table_begin_ - samples_begin_) / sample_bytes_) {
            fail_head(8, fmt::format("{} samples do not fit before the allocation table", sample_count_));
        }
        data_begin_ = samples_begin_ + sample_count_ * sample_bytes_;
    }

    void read_table() {
        const uint64_t bytes = file_.size() - table_begin_;
        if (bytes % kAllocationBytes != 0) fail_head(table_begin_, fmt::format("{} bytes are no allocation table", bytes));
        for (uint64_t offset = table_begin_; offset < file_.size(); offset += kAllocationBytes) {
            const Allocation piece{number_at<uint64_t>(file_, offset + 8), number_at<uint64_t>(file_, offset + 16)};
            if (piece.offset < data_begin_ || piece.offset > table_begin_ || piece.bytes > table_begin_ - piece.offset) {
                fail_head(offset, fmt::format("the table names {} bytes at {}", piece.bytes, piece.offset));
            }
            allocations_.push_back(piece);
        }
        std::ranges::sort(allocations_, {}, &Allocation::offset);
    }

    const Field& choose(uint8_t type, std::initializer_list<std::string_view> names, std::string_view what) const {
        std::vector<const Field*> fitting, named;
        std::string all;
        for (const Field& field : fields_) {
            all += fmt::format(" {} (type {})", field.name, field.type);
            if (field.type != type) continue;
            fitting.push_back(&field);
            if (std::ranges::find(names, field.name) != names.end()) named.push_back(&field);
        }
        if (fitting.size() == 1) return *fitting[0];
        if (named.size() == 1) return *named[0];
        throw DataError(
            fmt::format("{}: cannot tell which field is the {}; there are:{}; write the set with one", path_.string(), what, all));
    }

    BetonSample sample_at(uint64_t record, uint64_t begin, uint64_t picture) const {
        const auto mode = number_at<uint8_t>(file_, picture);
        const auto offset = number_at<uint64_t>(file_, picture + 5);
        if (mode > 1) fail(record, picture, fmt::format("mode {} of a picture", mode));
        BetonSample sample{.raw = mode == 1,
                           .width = number_at<uint16_t>(file_, picture + 1),
                           .height = number_at<uint16_t>(file_, picture + 3),
                           .data = {},
                           .offset = begin};
        const auto piece = std::ranges::lower_bound(allocations_, offset, {}, &Allocation::offset);
        if (piece == allocations_.end() || piece->offset != offset) {
            fail(record, picture, fmt::format("the allocation table has nothing at {}", offset));
        }
        const uint64_t pixels = uint64_t{3} * static_cast<uint64_t>(sample.width) * static_cast<uint64_t>(sample.height);
        if (pixels == 0 || (sample.raw && pixels != piece->bytes)) {
            fail(record, picture, fmt::format("{}x{} pixels in {} bytes", sample.width, sample.height, piece->bytes));
        }
        sample.data = file_.subspan(offset, piece->bytes);
        return sample;
    }

    std::span<const std::byte> file_;
    const std::filesystem::path& path_;
    uint64_t field_count_ = 0, sample_count_ = 0, sample_bytes_ = 0;
    uint64_t samples_begin_ = 0, data_begin_ = 0, table_begin_ = 0;
    std::vector<Field> fields_;
    std::vector<Allocation> allocations_;  // by offset
};

}  // namespace

std::vector<BetonSample> read_beton(std::span<const std::byte> file, const std::filesystem::path& path) {
    return BetonReader(file, path).run();
}

}  // namespace lockstep
