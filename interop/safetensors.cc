#include "interop/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr int kMaxDepth = 3;                       // {name: {shape: [..]}}
constexpr size_t kDataAlignment = 64;

constexpr std::array<std::pair<std::string_view, DataType>, 7> kTypes{{{"F32", DataType::f32},
                                                                       {"BF16", DataType::bf16},
                                                                       {"F16", DataType::f16},
                                                                       {"F64", DataType::f64},
                                                                       {"I32", DataType::i32},
                                                                       {"I64", DataType::i64},
                                                                       {"U8", DataType::u8}}};

std::string_view type_name(DataType type) {
    return std::find_if(kTypes.begin(), kTypes.end(), [type](const auto& row) { return row.second == type; })->first;
}

class Reader final : public SafetensorsFile {
public:
    explicit Reader(const std::filesystem::path& path) : file_(path) {
        const uint64_t header_bytes = read_header_length();
        data_begin_ = kLengthBytes + header_bytes;
        const Json header = parse_header(header_bytes);
        if (!header.is_object()) refuse(kLengthBytes, "the header is not a JSON object");
        for (const auto& [name, value] : header.items()) {
            if (name == "__metadata__") {
                read_metadata(value);
            } else {
                tensors_.push_back(read_tensor(name, value));
            }
        }
        check_ranges();
        std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    }

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    const std::map<std::string, std::string>& metadata() const override { return metadata_; }

private:
    [[noreturn]] void refuse(uint64_t offset, const std::string& reason) const {
        throw DataError(fmt::format("{}: not a sound safetensors file, at offset {}: {}; copy or export the file again",
                                    file_.path().string(), offset, reason));
    }

    uint64_t data_bytes() const { return file_.bytes().size() - data_begin_; }

    uint64_t read_header_length() const {
        const uint64_t file_bytes = file_.bytes().size();
        if (file_bytes < kLengthBytes) refuse(0, fmt::format("the file has {} bytes, the header length alone needs 8", file_bytes));
        uint64_t length = 0;
        std::memcpy(&length, file_.bytes().data(), sizeof length);
        if (length > kMaxHeaderBytes)
            refuse(0, fmt::format("a header of {} bytes is claimed, {} are allowed", length, kMaxHeaderBytes));
        if (length > file_bytes - kLengthBytes) {
            refuse(0, fmt::format("a header of {} bytes is claimed, {} remain", length, file_bytes - kLengthBytes));
        }
        return length;
    }

    // The JSON library keeps the last of two equal keys and nests without limit; both are refused here while parsing.
    Json parse_header(uint64_t header_bytes) const {
        const auto* text = reinterpret_cast<const char*>(file_.bytes().data()) + kLengthBytes;
        std::array<std::set<std::string>, kMaxDepth + 1> keys;
        const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
            const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
            if (opens && depth >= kMaxDepth) refuse(kLengthBytes, "the header is nested too deeply");
            if (event == Json::parse_event_t::object_start) keys.at(static_cast<size_t>(depth) + 1).clear();
            if (event == Json::parse_event_t::key &&
                !keys.at(static_cast<size_t>(depth)).insert(parsed.get<std::string>()).second) {
                refuse(kLengthBytes, fmt::format("the name \"{}\" comes twice in the header", parsed.get<std::string>()));
            }
            return true;
        };
        try {
            return Json::parse(text, text + header_bytes, watch);
        } catch (const Json::exception& error) {
            refuse(kLengthBytes, fmt::format("the header is not JSON ({})", error.what()));
        }
    }

    void read_metadata(const Json& value) {
        if (!value.is_object()) refuse(kLengthBytes, "__metadata__ is not an object");
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) refuse(kLengthBytes, fmt::format("__metadata__.{} is not a text", key));
            metadata_.emplace(key, text.get<std::string>());
        }
    }

    NamedTensor read_tensor(const std::string& name, const Json& value) const {
        const auto field = [&](const char* key) -> const Json& {
            if (!value.is_object() || !value.contains(key)) {
                refuse(kLengthBytes, fmt::format("tensor \"{}\" has no field {}", name, key));
            }
            return value.at(key);
        };
        NamedTensor tensor{.name = name, .type = read_type(name, field("dtype")), .shape = read_shape(name, field("shape"))};
        const std::vector<uint64_t> range = read_numbers(name, "data_offsets", field("data_offsets"));
        if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes()) {
            refuse(kLengthBytes, fmt::format("tensor \"{}\": data_offsets do not lie in the {} bytes of data", name, data_bytes()));
        }
        const std::optional<uint64_t> wanted = byte_count(tensor);
        if (wanted != range[1] - range[0]) {
            refuse(data_begin_ + range[0], fmt::format("tensor \"{}\" of shape {} and type {} does not fit its {} bytes", name,
                                                       to_string(tensor.shape), to_string(tensor.type), range[1] - range[0]));
        }
        tensor.bytes = file_.bytes().subspan(data_begin_ + range[0], range[1] - range[0]);
        return tensor;
    }

    DataType read_type(const std::string& name, const Json& value) const {
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        for (const auto& [known, type] : kTypes) {
            if (known == text) return type;
        }
        refuse(kLengthBytes, fmt::format("tensor \"{}\" has type {}, allowed are F32, BF16, F16, F64, I32, I64, U8", name, text));
    }

    Shape read_shape(const std::string& name, const Json& value) const {
        Shape shape;
        for (const uint64_t length : read_numbers(name, "shape", value)) {
            if (length > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
                refuse(kLengthBytes, fmt::format("tensor \"{}\": a side of {} is impossible", name, length));
            }
            shape.push_back(static_cast<int64_t>(length));
        }
        return shape;
    }

    std::vector<uint64_t> read_numbers(const std::string& name, const char* key, const Json& value) const {
        if (!value.is_array()) refuse(kLengthBytes, fmt::format("tensor \"{}\": {} is not a list", name, key));
        std::vector<uint64_t> numbers;
        for (const Json& number : value) {
            if (!number.is_number_unsigned()) {
                refuse(kLengthBytes, fmt::format("tensor \"{}\": {} holds {}, not a whole number", name, key, number.dump()));
            }
            numbers.push_back(number.get<uint64_t>());
        }
        return numbers;
    }

    static std::optional<uint64_t> byte_count(const NamedTensor& tensor) {  // nullopt: more than 64 bits can say
        uint64_t bytes = bytes_per_element(tensor.type);
        for (const int64_t length : tensor.shape) {
            if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(length), &bytes)) return std::nullopt;
        }
        return bytes;
    }

    // In order of their place the ranges must follow one another exactly, from the first byte of data to the last.
    void check_ranges() const {
        std::vector<std::pair<uint64_t, const NamedTensor*>> places;
        for (const NamedTensor& tensor : tensors_) {
            places.emplace_back(static_cast<uint64_t>(tensor.bytes.data() - file_.bytes().data()), &tensor);
        }
        std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
            return std::pair(a.first, a.second->bytes.size()) < std::pair(b.first, b.second->bytes.size());
        });
        uint64_t expected = data_begin_;
        for (const auto& [offset, tensor] : places) {
            if (offset != expected) {
                refuse(offset, fmt::format("tensor \"{}\" {} the one before it", tensor->name,
                                           offset < expected ? "overlaps" : "leaves a hole after"));
            }
            expected += tensor->bytes.size();
        }
        if (expected != file_.bytes().size()) {
            refuse(expected, fmt::format("{} bytes follow the last tensor", file_.bytes().size() - expected));
        }
    }

    MappedFile file_;
    uint64_t data_begin_ = 0;
    std::vector<NamedTensor> tensors_;
    std::map<std::string, std::string> metadata_;
};

size_t bytes_of(const NamedTensor& tensor) {
    return static_cast<size_t>(element_count(tensor.shape)) * bytes_per_element(tensor.type);
}

std::string make_header(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    uint64_t offset = 0;
    for (const NamedTensor& tensor : tensors) {
        check(!header.contains(tensor.name), "tensor names are unique");
        header[tensor.name] = {
            {"dtype", type_name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes_of(tensor)}}};
        offset += bytes_of(tensor);
    }
    std::string text = header.dump();
    const size_t begin = kLengthBytes + text.size();
    text.append((kDataAlignment - begin % kDataAlignment) % kDataAlignment, ' ');
    return text;
}

}  // namespace

std::unique_ptr<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) { return std::make_unique<Reader>(path); }

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    const std::string header = make_header(tensors, metadata);
    const uint64_t header_bytes = header.size();
    std::vector<std::string_view> parts{{reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes}, header};
    for (const NamedTensor& tensor : tensors) {
        check(bytes_of(tensor) == tensor.bytes.size(), "a tensor's bytes must fit its shape");
        parts.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    write_file_atomically(path, parts);
}

SafetensorsImage::SafetensorsImage(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
    const std::string header = make_header(tensors, metadata);
    const uint64_t header_bytes = header.size();
    size_t end = kLengthBytes + header.size();
    for (const NamedTensor& tensor : tensors) {
        places_.emplace_back(end, bytes_of(tensor));
        end += bytes_of(tensor);
    }
    buffer_ = pool_.allocate(end);
    std::memcpy(buffer_.data(), &header_bytes, kLengthBytes);
    std::ranges::copy(std::as_bytes(std::span(header)), buffer_.bytes().begin() + kLengthBytes);
}

}  // namespace lockstep
