#include "data_loader/mds.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

namespace {

// Encodings of integers with their sizes; "int" is NumPy's int64.
struct IntegerKind {
    std::string_view name;
    size_t bytes;
    bool is_signed;
};
constexpr std::array<IntegerKind, 9> kIntegers{{{"int", 8, true},
                                                {"int8", 1, true},
                                                {"int16", 2, true},
                                                {"int32", 4, true},
                                                {"int64", 8, true},
                                                {"uint8", 1, false},
                                                {"uint16", 2, false},
                                                {"uint32", 4, false},
                                                {"uint64", 8, false}}};

const IntegerKind* integer_kind(std::string_view encoding) {
    const auto found =
        std::find_if(kIntegers.begin(), kIntegers.end(), [&](const IntegerKind& kind) { return kind.name == encoding; });
    return found == kIntegers.end() ? nullptr : &*found;
}

bool is_image(const MdsColumn& column) {
    return column.encoding == "jpeg" || column.encoding == "png" || column.encoding == "bytes";
}
bool is_label(const MdsColumn& column) { return integer_kind(column.encoding) != nullptr; }

// The one column that fits, or the one of them with a usual name.
template <typename Fits>
size_t choose(const MdsShard& shard, Fits fits, std::initializer_list<std::string_view> names, std::string_view what,
              const std::filesystem::path& path) {
    std::vector<size_t> fitting, named;
    for (size_t column = 0; column < shard.columns.size(); ++column) {
        if (!fits(shard.columns[column])) continue;
        fitting.push_back(column);
        if (std::find(names.begin(), names.end(), shard.columns[column].name) != names.end()) named.push_back(column);
    }
    if (fitting.size() == 1) return fitting[0];
    if (named.size() == 1) return named[0];
    std::string columns;
    for (const MdsColumn& column : shard.columns) columns += fmt::format(" {} ({})", column.name, column.encoding);
    throw DataError(
        fmt::format("{}: cannot tell which column is the {}; there are:{}; write the set with one", path.string(), what, columns));
}

class ShardReader {
public:
    ShardReader(std::span<const std::byte> file, const MdsShard& shard, const std::filesystem::path& path)
        : file_(file), shard_(shard), path_(path) {
        image_ = choose(shard, is_image, {"image", "jpg", "jpeg", "png"}, "image (jpeg, png or bytes)", path);
        label_ = choose(shard, is_label, {"label", "class", "cls", "y"}, "label (an integer)", path);
    }

    std::vector<MdsSample> run() {
        if (file_.size() != shard_.bytes) fail(0, 0, fmt::format("{} bytes, the index says {}", file_.size(), shard_.bytes));
        if (file_.size() < 4 || number(0) != shard_.samples) fail(0, 0, "another number of samples than in the index");
        const uint64_t table_end = 4 + 4 * (shard_.samples + 1);
        if (table_end > file_.size()) fail(0, 0, "the file ends inside the table of offsets");
        std::vector<MdsSample> samples(shard_.samples);
        for (uint64_t sample = 0; sample < shard_.samples; ++sample) {
            const uint64_t begin = number(4 + 4 * sample), end = number(8 + 4 * sample);
            if (begin < table_end || end < begin || end > file_.size()) {
                fail(sample, begin, fmt::format("it claims to end at {}", end));
            }
            samples[sample] = parse(sample, begin, end);
        }
        return samples;
    }

private:
    uint32_t number(uint64_t offset) const {
        uint32_t value = 0;
        std::memcpy(&value, file_.data() + offset, sizeof value);
        return value;
    }
    [[noreturn]] void fail(uint64_t sample, uint64_t offset, std::string_view reason) const {
        throw DataError(fmt::format("{}: record {} at offset {}: {}; the shard is damaged, copy or make it again", path_.string(),
                                    sample, offset, reason));
    }

    MdsSample parse(uint64_t sample, uint64_t begin, uint64_t end) const {
        uint64_t sizes = begin, data = begin;
        for (const MdsColumn& column : shard_.columns) data += column.size == 0 ? 4 : 0;
        MdsSample result{.offset = begin};
        for (size_t index = 0; index < shard_.columns.size(); ++index) {
            uint64_t size = shard_.columns[index].size;
            if (size == 0) {
                if (sizes + 4 > end) fail(sample, begin, "it ends inside its sizes");
                size = number(sizes);
                sizes += 4;
            }
            if (data > end || size > end - data) {
                fail(sample, begin, fmt::format("column {} claims {} bytes", shard_.columns[index].name, size));
            }
            const auto bytes = file_.subspan(data, size);
            if (index == image_) result.image = bytes;
            if (index == label_) result.label = integer(sample, begin, bytes);
            data += size;
        }
        if (data != end) fail(sample, begin, "its columns do not fill it");
        return result;
    }

    int64_t integer(uint64_t sample, uint64_t begin, std::span<const std::byte> bytes) const {
        const IntegerKind& kind = *integer_kind(shard_.columns[label_].encoding);
        if (bytes.size() != kind.bytes) fail(sample, begin, "a label of another size than its kind has");
        uint64_t value = 0;
        std::memcpy(&value, bytes.data(), bytes.size());
        const unsigned unused = static_cast<unsigned>(64 - 8 * kind.bytes);
        return kind.is_signed ? static_cast<int64_t>(value << unused) >> unused : static_cast<int64_t>(value);
    }

    std::span<const std::byte> file_;
    const MdsShard& shard_;
    const std::filesystem::path& path_;
    size_t image_ = 0, label_ = 0;
};

MdsShard parse_shard(const nlohmann::json& json, const std::filesystem::path& path) {
    if (json.at("format") != "mds" || json.at("version") != 2) {
        throw DataError(fmt::format("{}: format {} of version {}; this program reads mds of version 2", path.string(),
                                    json.at("format").dump(), json.at("version").dump()));
    }
    const nlohmann::json& raw = json.at("raw_data");
    MdsShard shard{.file = raw.at("basename"), .samples = json.at("samples"), .bytes = raw.at("bytes"), .columns = {}};
    if (shard.samples > shard.bytes || shard.file.find('/') != std::string::npos) {
        throw DataError(fmt::format("{}: shard \"{}\" of {} samples in {} bytes is impossible", path.string(), shard.file,
                                    shard.samples, shard.bytes));
    }
    const nlohmann::json &names = json.at("column_names"), &encodings = json.at("column_encodings"),
                         &sizes = json.at("column_sizes");
    for (size_t column = 0; column < names.size(); ++column) {
        const nlohmann::json& size = sizes.at(column);
        shard.columns.push_back({names.at(column), encodings.at(column), size.is_null() ? uint64_t{0} : size.get<uint64_t>()});
    }
    return shard;
}

}  // namespace

std::vector<MdsShard> parse_mds_index(std::string_view text, const std::filesystem::path& path) {
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        if (json.at("version") != 2) throw DataError(fmt::format("{}: not version 2 of MDS", path.string()));
        std::vector<MdsShard> shards;
        for (const nlohmann::json& shard : json.at("shards")) shards.push_back(parse_shard(shard, path));
        if (shards.empty()) throw DataError(fmt::format("{}: it names no shard", path.string()));
        return shards;
    } catch (const nlohmann::json::exception& error) {
        throw DataError(fmt::format("{}: no index of an MDS set: {}; make it again", path.string(), error.what()));
    }
}

std::vector<MdsSample> read_mds_shard(std::span<const std::byte> file, const MdsShard& shard, const std::filesystem::path& path) {
    return ShardReader(file, shard, path).run();
}

}  // namespace lockstep
