#include "interop/arena_tensors.h"

#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/finite.h"

namespace lockstep {

namespace {

constexpr std::string_view kForeignCounter = "num_batches_tracked";

bool belongs(const ParameterEntry& entry, EntrySet set) {
    if (entry.spec.kind == ParameterKind::control) return false;
    return set == EntrySet::all || is_trainable(entry.spec.kind);
}

bool is_foreign_counter(std::string_view name) {
    return name == kForeignCounter || name.ends_with("." + std::string(kForeignCounter));
}

std::vector<size_t> entries_of(const ParameterArena& arena, EntrySet set) {
    std::vector<size_t> found;
    for (size_t index = 0; index < arena.entries().size(); ++index) {
        if (belongs(arena.entries()[index], set)) found.push_back(index);
    }
    return found;
}

std::vector<NamedTensor> layout_of(const ParameterArena& arena, const std::vector<size_t>& entries) {
    std::vector<NamedTensor> tensors;
    for (const size_t entry : entries) {
        const ParameterSpec& spec = arena.entries()[entry].spec;
        tensors.push_back({.name = spec.name, .type = DataType::f32, .shape = spec.shape});
    }
    return tensors;
}

// The file's floats; a file's data need not be aligned for float access, so they are copied.
std::vector<float> floats_of(const NamedTensor& tensor) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
}

// The shortest prefix in front of a known name that all of the file's unknown names share.
std::string find_common_prefix(const ParameterArena& arena, const std::vector<NamedTensor>& tensors) {
    std::string prefix;
    for (const ParameterEntry& entry : arena.entries()) {
        for (const NamedTensor& tensor : tensors) {
            const std::string& name = entry.spec.name;
            if (tensor.name.size() > name.size() && tensor.name.ends_with("." + name)) {
                prefix = tensor.name.substr(0, tensor.name.size() - name.size());
                break;
            }
        }
        if (!prefix.empty()) break;
    }
    if (prefix.empty()) return {};
    for (const NamedTensor& tensor : tensors) {
        if (!tensor.name.starts_with(prefix)) return {};
    }
    return prefix;
}

}  // namespace

PlainTensors::PlainTensors(const Backend& backend, const ParameterArena& arena, std::span<const float> buffer, EntrySet set) {
    size_t count = 0;
    for (const ParameterEntry& entry : arena.entries()) {
        if (belongs(entry, set)) count += static_cast<size_t>(element_count(entry.spec.shape));
    }
    storage_.resize(count);
    size_t begin = 0;
    for (const ParameterEntry& entry : arena.entries()) {
        if (!belongs(entry, set)) continue;
        const std::span<float> plain(storage_.data() + begin, static_cast<size_t>(element_count(entry.spec.shape)));
        backend.to_plain(entry, buffer.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.physical_count)),
                         plain);
        tensors_.push_back(
            {.name = entry.spec.name, .type = DataType::f32, .shape = entry.spec.shape, .bytes = std::as_bytes(plain)});
        begin += plain.size();
    }
}

std::string PlainTensors::first_non_finite() const {
    for (const NamedTensor& tensor : tensors_) {
        const std::span<const float> values(reinterpret_cast<const float*>(tensor.bytes.data()),
                                            tensor.bytes.size() / sizeof(float));
        if (!all_finite(values)) return tensor.name;
    }
    return {};
}

ArenaImage::ArenaImage(const ParameterArena& arena, EntrySet set)
    : entries_(entries_of(arena, set)), image_(layout_of(arena, entries_), {{"format", "pt"}}) {}

std::string ArenaImage::fill(const Backend& backend, const ParameterArena& arena, std::span<const float> buffer) {
    std::string bad;
    for (size_t index = 0; index < entries_.size(); ++index) {
        const ParameterEntry& entry = arena.entries()[entries_[index]];
        const std::span<std::byte> bytes = image_.tensor(index);
        const std::span<float> plain(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
        backend.to_plain(entry, buffer.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.physical_count)),
                         plain);
        if (bad.empty() && !all_finite(plain)) bad = entry.spec.name;
    }
    return bad;
}

std::string TensorMatch::list() const {
    std::string text = fmt::format("{}", fmt::join(problems, "; "));
    if (!common_prefix.empty()) text += fmt::format("; all names begin with \"{}\": strip it from the file's names", common_prefix);
    return text;
}

TensorMatch match_tensors(const ParameterArena& arena, const std::vector<NamedTensor>& tensors, EntrySet set) {
    std::map<std::string_view, size_t> by_name;
    for (size_t index = 0; index < tensors.size(); ++index) {
        if (!is_foreign_counter(tensors[index].name)) by_name.emplace(tensors[index].name, index);
    }
    TensorMatch match;
    for (size_t index = 0; index < arena.entries().size(); ++index) {
        const ParameterEntry& entry = arena.entries()[index];
        if (!belongs(entry, set)) continue;
        const auto found = by_name.find(entry.spec.name);
        if (found == by_name.end()) {
            match.problems.push_back(fmt::format("missing {} ({})", entry.spec.name, to_string(entry.spec.shape)));
            continue;
        }
        const NamedTensor& tensor = tensors[found->second];
        if (tensor.type != DataType::f32) {
            match.problems.push_back(fmt::format("mistyped {}: found {}, wanted f32", tensor.name, to_string(tensor.type)));
        } else if (tensor.shape != entry.spec.shape) {
            match.problems.push_back(fmt::format("misshapen {}: found {}, wanted {}", tensor.name, to_string(tensor.shape),
                                                 to_string(entry.spec.shape)));
        } else {
            match.pairs.push_back({index, found->second});
        }
        by_name.erase(found);
    }
    for (const auto& [name, index] : by_name) {
        match.problems.push_back(fmt::format("extra {} ({})", name, to_string(tensors[index].shape)));
    }
    if (!match.problems.empty()) match.common_prefix = find_common_prefix(arena, tensors);
    return match;
}

void load_tensors(const Backend& backend, const ParameterArena& arena, const std::vector<NamedTensor>& tensors,
                  const TensorMatch& match, std::span<float> buffer, std::string_view origin) {
    for (const TensorMatch::Pair& pair : match.pairs) {
        if (all_finite(floats_of(tensors[pair.tensor]))) continue;
        throw DataError(fmt::format("{}: tensor {} holds NaN or Inf; start from other weights", origin, tensors[pair.tensor].name));
    }
    for (const TensorMatch::Pair& pair : match.pairs) {
        const ParameterEntry& entry = arena.entries()[pair.entry];
        backend.from_plain(entry, floats_of(tensors[pair.tensor]),
                           buffer.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.physical_count)));
    }
}

}  // namespace lockstep
