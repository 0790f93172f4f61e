#include "trainer/checkpoint_look.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "interop/safetensors.h"

namespace lockstep {

namespace {

fs::path folder_of(const fs::path& place) {
    const fs::path inside = place / "checkpoints";
    return fs::is_directory(inside) ? inside : place;
}

void measure_files(CheckpointSummary& summary) {
    std::error_code error;
    for (const auto& item : fs::directory_iterator(summary.path, error)) {
        if (item.is_regular_file(error)) summary.bytes += static_cast<int64_t>(item.file_size(error));
    }
    const auto time = fs::last_write_time(summary.path, error);
    if (error) return;
    const auto seconds = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time));
    summary.written = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

CheckpointSummary summary_of(int64_t step, const fs::path& path, bool verify) {
    CheckpointSummary summary{.path = path, .step = step};
    measure_files(summary);
    try {
        summary.manifest = verify ? verify_checkpoint(path) : read_manifest(path);
    } catch (const DataError& error) {
        summary.damage = error.what();
    }
    return summary;
}

std::vector<float> values_of(const NamedTensor& tensor) {
    std::vector<float> values(tensor.type == DataType::f32 ? tensor.bytes.size() / sizeof(float) : 0);
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
}

double norm_of(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

std::vector<std::string> tensor_files(const fs::path& checkpoint) {
    std::vector<std::string> names{std::string(kModelFile)};
    for (int index = 0; fs::exists(checkpoint / state_file(index)); ++index) names.push_back(state_file(index));
    return names;
}

// The tensors of one file by name; none where the file is missing.
struct OpenTensors {
    std::unique_ptr<SafetensorsFile> file;
    std::map<std::string, const NamedTensor*> by_name;

    explicit OpenTensors(const fs::path& path) {
        if (!fs::exists(path)) return;
        file = SafetensorsFile::open(path);
        for (const NamedTensor& tensor : file->tensors()) by_name.emplace(tensor.name, &tensor);
    }
    const NamedTensor* find(const std::string& name) const {
        const auto found = by_name.find(name);
        return found == by_name.end() ? nullptr : found->second;
    }
};

// Of two tensors of one name, either of which may be missing; nullopt when they are equal.
std::optional<TensorDifference> difference_of(const NamedTensor* first, const NamedTensor* second) {
    if (first == nullptr || second == nullptr) {
        return TensorDifference{.problem = first != nullptr ? "only in the first" : "only in the second"};
    }
    if (first->shape != second->shape) {
        return TensorDifference{.problem = fmt::format("shapes {} and {}", to_string(first->shape), to_string(second->shape))};
    }
    if (first->type != second->type) {
        return TensorDifference{.problem = fmt::format("types {} and {}", to_string(first->type), to_string(second->type))};
    }
    if (std::ranges::equal(first->bytes, second->bytes)) return std::nullopt;
    const std::vector<float> left = values_of(*first);
    const std::vector<float> right = values_of(*second);
    TensorDifference difference{.count = element_count(first->shape)};
    if (left.empty()) difference.problem = fmt::format("values of type {}", to_string(first->type));
    double squares = 0.0;
    for (size_t index = 0; index < left.size(); ++index) {
        if (std::memcmp(&left[index], &right[index], sizeof(float)) == 0) continue;
        const double off = std::abs(static_cast<double>(left[index]) - static_cast<double>(right[index]));
        ++difference.differing;
        difference.largest = std::max(difference.largest, off);
        squares += off * off;
    }
    const double norm = norm_of(left);
    difference.relative = norm > 0.0 ? std::sqrt(squares) / norm : (squares > 0.0 ? 1.0 : 0.0);
    return difference;
}

}  // namespace

std::vector<CheckpointSummary> look_at_checkpoints(const fs::path& place, bool verify, const std::string& best) {
    std::vector<CheckpointSummary> found;
    for (const auto& [step, path] : list_checkpoints(folder_of(place))) found.push_back(summary_of(step, path, verify));
    if (found.empty()) {
        throw DataError(fmt::format("{}: no checkpoint there; give a run folder or its folder checkpoints", place.string()));
    }
    CheckpointSummary* champion = nullptr;  // of equals the newest, as in the folder itself
    for (CheckpointSummary& summary : found) {
        if (!summary.manifest.metrics.contains(best)) continue;
        const double value = summary.manifest.metrics.at(best);
        if (champion == nullptr || is_better(best, value, champion->manifest.metrics.at(best))) champion = &summary;
    }
    if (champion != nullptr) champion->is_best = true;
    std::ranges::reverse(found);
    return found;
}

fs::path checkpoint_at(const fs::path& place) {
    if (fs::exists(place / "manifest.json") || fs::exists(place / kModelFile)) return place;
    const auto found = list_checkpoints(folder_of(place));
    if (!found.empty()) return found.front().second;
    throw DataError(fmt::format("{} is neither a checkpoint nor a run folder that holds one; give RUN or RUN/checkpoints/step-N",
                                place.string()));
}

std::vector<TensorFacts> tensors_of(const fs::path& checkpoint) {
    std::vector<TensorFacts> facts;
    for (const std::string& name : tensor_files(checkpoint)) {
        const auto file = SafetensorsFile::open(checkpoint / name);
        for (const NamedTensor& tensor : file->tensors()) {
            const std::vector<float> values = values_of(tensor);
            TensorFacts fact{
                .file = name, .name = tensor.name, .type = tensor.type, .shape = tensor.shape, .norm = norm_of(values)};
            for (const float value : values) fact.largest = std::max(fact.largest, std::abs(static_cast<double>(value)));
            facts.push_back(std::move(fact));
        }
    }
    return facts;
}

std::vector<TensorDifference> compare_checkpoints(const fs::path& first, const fs::path& second) {
    std::set<std::string> files;
    for (const fs::path& checkpoint : {first, second}) {
        for (std::string& name : tensor_files(checkpoint)) files.insert(std::move(name));
    }
    std::vector<TensorDifference> differences;
    for (const std::string& file : files) {
        const OpenTensors left(first / file);
        const OpenTensors right(second / file);
        std::set<std::string> names;
        for (const OpenTensors* side : {&left, &right}) {
            for (const auto& [name, tensor] : side->by_name) names.insert(name);
        }
        for (const std::string& name : names) {
            auto difference = difference_of(left.find(name), right.find(name));
            if (!difference) continue;
            difference->file = file;
            difference->name = name;
            differences.push_back(std::move(*difference));
        }
    }
    std::ranges::stable_sort(differences, [](const auto& a, const auto& b) {
        return std::pair(a.problem.empty(), -a.relative) < std::pair(b.problem.empty(), -b.relative);
    });
    return differences;
}

std::vector<FactDifference> compare_manifests(const Manifest& first, const Manifest& second) {
    const auto facts_of = [](const Manifest& manifest) {
        std::map<std::string, std::string> facts(manifest.result_keys.begin(), manifest.result_keys.end());
        facts["step"] = fmt::format("{}", manifest.step);
        facts["total_steps"] = fmt::format("{}", manifest.total_steps);
        facts["steps_per_epoch"] = fmt::format("{}", manifest.steps_per_epoch);
        facts["batch_global (of this start)"] = fmt::format("{}", manifest.batch_global);
        facts["world_size"] = fmt::format("{}", manifest.world_size);
        facts["config_hash"] = manifest.config_hash;
        facts["train_fingerprint"] = fmt::format("{:016x}", manifest.train_fingerprint);
        for (const auto& [key, value] : manifest.optimizer) facts["optimizer." + key] = fmt::format("{:.9g}", value);
        for (const auto& [key, value] : manifest.metrics) facts[key] = fmt::format("{:.9g}", value);
        return facts;
    };
    const auto left = facts_of(first);
    const auto right = facts_of(second);
    std::set<std::string> keys;
    for (const auto& [key, value] : left) keys.insert(key);
    for (const auto& [key, value] : right) keys.insert(key);
    const auto text = [](const auto& facts, const std::string& key) {
        const auto found = facts.find(key);
        return found == facts.end() ? std::string("absent") : found->second;
    };
    std::vector<FactDifference> differences;
    for (const std::string& key : keys) {
        if (text(left, key) != text(right, key)) differences.push_back({key, text(left, key), text(right, key)});
    }
    return differences;
}

}  // namespace lockstep
