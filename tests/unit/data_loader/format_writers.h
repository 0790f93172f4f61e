// Files of other programs' formats, put together byte by byte from their published descriptions.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

template <typename Number>
std::string little_endian(Number number) {
    return {reinterpret_cast<const char*>(&number), sizeof number};
}
template <typename Number>
void put(std::string& text, size_t offset, Number number) {
    std::memcpy(text.data() + offset, &number, sizeof number);
}

// Protocol buffers.
inline std::string varint(uint64_t value) {
    std::string text;
    for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
    return text + static_cast<char>(value);
}
inline std::string bytes_field(int number, const std::string& bytes) {
    return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string number_field(int number, uint64_t value) { return varint(static_cast<uint64_t>(number) << 3) + varint(value); }

// Caffe's Datum.
inline std::string encoded_datum(const std::string& image, uint64_t label) {
    return number_field(1, 3) + bytes_field(4, image) + number_field(5, label) + number_field(7, 1);
}
inline std::string raw_datum(uint64_t channels, uint64_t height, uint64_t width, const std::string& pixels, uint64_t label) {
    return number_field(1, channels) + number_field(2, height) + number_field(3, width) + bytes_field(4, pixels) +
           number_field(5, label);
}

// An LMDB of these values under the keys "00000000", "00000001", ...: two descriptions, leaves and overflow pages, and over more
// than one leaf a branch.
class LmdbWriter {
public:
    explicit LmdbWriter(const std::vector<std::string>& values) : pages_(2 * kPage, '\0') {
        for (const std::string& value : values) add(value);
        close_leaf();
        if (leaves_.size() > 1) write_branch();
        for (const size_t begin : {size_t{0}, kPage}) {
            put(pages_, begin + 10, uint16_t{8});
            put(pages_, begin + 16, uint32_t{0xBEEFC0DE});
            put(pages_, begin + 20, uint32_t{1});
            put(pages_, begin + 40, static_cast<uint32_t>(kPage));
            // The first description is that of an older, empty tree.
            put(pages_, begin + 120, begin == 0 ? uint64_t{0} : uint64_t{values.size()});
            put(pages_, begin + 128, begin == 0 || values.empty() ? ~uint64_t{0} : pages_.size() / kPage - 1);
            put(pages_, begin + 144, static_cast<uint64_t>(begin == 0 ? 6 : 7));
        }
    }
    const std::string& file() const { return pages_; }

    static constexpr size_t kPage = 4096;

private:
    void add(const std::string& value) {
        char key[9];
        std::snprintf(key, sizeof key, "%08zu", count_++);
        const bool big = value.size() > kPage / 4;
        std::string node = little_endian(static_cast<uint32_t>(value.size())) + little_endian(static_cast<uint16_t>(big ? 1 : 0)) +
                           little_endian(uint16_t{8}) + key + (big ? little_endian(overflow(value)) : value);
        if (node.size() % 2 != 0) node += '\0';
        if (16 + 2 * (nodes_.size() + 1) + nodes_bytes_ + node.size() > kPage) close_leaf();
        nodes_bytes_ += node.size();
        nodes_.push_back(std::move(node));
        if (first_key_.empty()) first_key_ = key;
    }
    uint64_t overflow(const std::string& value) {
        const uint64_t number = pages_.size() / kPage;
        std::string page(16, '\0');
        put(page, 0, number);
        put(page, 10, uint16_t{4});
        page += value;
        page.resize((page.size() + kPage - 1) / kPage * kPage);
        put(page, 12, static_cast<uint32_t>(page.size() / kPage));
        pages_ += page;
        return number;
    }
    void close_leaf() {
        if (nodes_.empty()) return;
        leaves_.emplace_back(pages_.size() / kPage, first_key_);
        pages_ += page_of(2, nodes_);
        nodes_.clear();
        nodes_bytes_ = 0;
        first_key_.clear();
    }
    void write_branch() {
        std::vector<std::string> children;
        for (const auto& [number, key] : leaves_) {
            children.push_back(little_endian(static_cast<uint32_t>(number)) + little_endian(uint16_t{0}) +
                               little_endian(static_cast<uint16_t>(children.empty() ? 0 : 8)) + (children.empty() ? "" : key));
        }
        pages_ += page_of(1, children);
    }
    // Nodes lie at the page's end, the last one first.
    std::string page_of(uint16_t flags, const std::vector<std::string>& nodes) const {
        std::string page(kPage, '\0');
        put(page, 0, pages_.size() / kPage);
        put(page, 10, flags);
        size_t upper = kPage;
        for (size_t index = 0; index < nodes.size(); ++index) {
            upper -= nodes[index].size();
            page.replace(upper, nodes[index].size(), nodes[index]);
            put(page, 16 + 2 * index, static_cast<uint16_t>(upper));
        }
        put(page, 12, static_cast<uint16_t>(16 + 2 * nodes.size()));
        put(page, 14, static_cast<uint16_t>(upper));
        return page;
    }

    std::string pages_, first_key_;
    std::vector<std::string> nodes_;
    std::vector<std::pair<uint64_t, std::string>> leaves_;
    size_t nodes_bytes_ = 0, count_ = 0;
};
inline std::string lmdb_file(const std::vector<std::string>& values) { return LmdbWriter(values).file(); }

// A .beton with the fields image, score (a float) and label. Data begins on a page of 2 MiB, as FFCV lays it.
struct BetonInput {
    std::string data;
    uint16_t width = 0, height = 0;
    int64_t label = 0;
    bool raw = false;
};
inline std::string beton_file(const std::vector<BetonInput>& samples) {
    constexpr size_t kPage = size_t{1} << 21, kField = 1041, kRow = 32;
    std::string file = little_endian(uint16_t{2}) + little_endian(uint16_t{3}) + little_endian(static_cast<uint32_t>(kPage)) +
                       little_endian(uint64_t{samples.size()}) + little_endian(uint64_t{0});
    for (const auto& [type, name] : {std::pair(2, "image"), std::pair(0, "score"), std::pair(1, "label")}) {
        std::string field(kField, '\0');
        field[0] = static_cast<char>(type);
        field.replace(1, std::strlen(name), name);
        file += field;
    }
    const size_t rows = file.size();
    file.resize((rows + kRow * samples.size() + kPage - 1) / kPage * kPage);
    std::string table;
    for (size_t index = 0; index < samples.size(); ++index) {
        const BetonInput& sample = samples[index];
        const size_t row = rows + kRow * index;
        put(file, row, static_cast<uint8_t>(sample.raw ? 1 : 0));
        put(file, row + 1, sample.width);
        put(file, row + 3, sample.height);
        put(file, row + 5, uint64_t{file.size()});
        put(file, row + 16, 0.5);
        put(file, row + 24, sample.label);
        // Several writers put their pieces down in any order.
        const std::string piece =
            little_endian(uint64_t{index}) + little_endian(uint64_t{file.size()}) + little_endian(uint64_t{sample.data.size()});
        table = index % 2 == 0 ? table + piece : piece + table;
        file += sample.data;
    }
    put(file, 16, uint64_t{file.size()});
    return file + table;
}

}  // namespace lockstep
