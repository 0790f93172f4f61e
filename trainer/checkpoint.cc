#include "trainer/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/direct_file.h"
#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "interop/arena_tensors.h"

namespace lockstep {

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSaving = ".saving-step-";
constexpr std::string_view kRemoving = ".removing-step-";
constexpr int kStepDigits = 9;

std::string folder_name(int64_t step) { return fmt::format("{}{:0{}}", kPrefix, step, kStepDigits); }

// The step in a checkpoint's name; nullopt for a foreign file.
std::optional<int64_t> step_of(const fs::path& path) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) return std::nullopt;
    int64_t step = 0;
    const char* begin = name.data() + kPrefix.size();
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(begin, end, step);
    if (error != std::errc() || stop != end || end - begin < kStepDigits) return std::nullopt;
    return step;
}

void sync_folder(const fs::path& folder) {
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

void rename_folder(const fs::path& from, const fs::path& to) {
    std::error_code error;
    fs::rename(from, to, error);
    if (error) throw DeviceError(fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), error.message()));
}

// Under its final name a folder is whole, so one that is being removed loses that name first.
void remove_checkpoint(const fs::path& checkpoint) {
    const fs::path doomed = checkpoint.parent_path() /
                            fmt::format("{}{}-{}", kRemoving, checkpoint.filename().string().substr(kPrefix.size()), getpid());
    rename_folder(checkpoint, doomed);
    std::error_code ignored;  // what is left is cleaned at the next start
    fs::remove_all(doomed, ignored);
}

// The files of a checkpoint, the manifest last because it holds the others' checksums.
void write_files(const fs::path& folder, const Snapshot& snapshot, Manifest manifest, std::string_view config_yaml) {
    for (const Snapshot::File& file : snapshot.files()) {
        write_file_past_cache(folder / file.name, file.bytes);
        manifest.files[file.name] = hash_hex(hash_bytes(file.bytes.data(), file.bytes.size()));
    }
    write_file_atomically(folder / "config.yaml", config_yaml);
    manifest.files["config.yaml"] = hash_hex(hash_text(config_yaml));
    write_file_atomically(folder / "manifest.json", to_json(manifest));
}

// A checkpoint of the same step, damaged or made again, gives way in one moment: whoever looks finds the one or the other.
void move_into_place(const fs::path& temporary, const fs::path& final_path) {
    if (!fs::exists(final_path)) return rename_folder(temporary, final_path);
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) {
        std::error_code ignored;
        fs::remove_all(temporary, ignored);
        return;
    }
    remove_checkpoint(final_path);  // a file system that cannot exchange
    rename_folder(temporary, final_path);
}

// Only checkpoints whose manifest can be read take part.
std::optional<fs::path> find_best(const std::vector<std::pair<int64_t, fs::path>>& checkpoints, const std::string& metric) {
    std::optional<fs::path> best;
    double best_value = 0.0;
    for (const auto& [step, path] : checkpoints) {
        try {
            const fs::path file = path / "manifest.json";
            const Manifest manifest = parse_manifest(read_file(file), file);
            const auto value = manifest.metrics.find(metric);
            if (value == manifest.metrics.end() || (best && !is_better(metric, value->second, best_value))) continue;
            best = path;
            best_value = value->second;
        } catch (const DataError&) {
            continue;
        }
    }
    return best;
}

void load_file(const fs::path& path, const Backend& backend, const ParameterArena& arena, std::span<float> buffer, EntrySet set) {
    const auto file = SafetensorsFile::open(path);
    const TensorMatch match = match_tensors(arena, file->tensors(), set);
    if (!match.complete()) {
        throw DataError(fmt::format("{} does not fit this network, nothing was loaded: {}; use the configuration it was made with",
                                    path.string(), match.list()));
    }
    load_tensors(backend, arena, file->tensors(), match, buffer, path.string());
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& folder) {
    std::vector<std::pair<int64_t, fs::path>> found;
    std::error_code error;
    for (const auto& item : fs::directory_iterator(folder, error)) {
        const std::optional<int64_t> step = step_of(item.path());
        if (step && item.is_directory()) found.emplace_back(*step, item.path());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
}

bool is_better(const std::string& metric, double candidate, double champion) {
    return metric.ends_with("loss") ? candidate < champion : candidate > champion;
}

void CheckpointFolder::clean_leftovers() const {
    std::error_code error;
    std::vector<fs::path> leftovers;
    for (const auto& item : fs::directory_iterator(options_.folder, error)) {
        const std::string name = item.path().filename().string();
        if (name.starts_with(kSaving) || name.starts_with(kRemoving)) leftovers.push_back(item.path());
    }
    for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

std::optional<FoundCheckpoint> CheckpointFolder::latest() const {
    std::vector<std::string> warnings;
    for (const auto& [step, path] : list_checkpoints(options_.folder)) {
        try {
            return FoundCheckpoint{.path = path, .manifest = verify_checkpoint(path), .warnings = warnings};
        } catch (const DataError& error) {
            warnings.push_back(fmt::format("checkpoint {} is damaged and passed over: {}", path.string(), error.what()));
        }
    }
    if (!warnings.empty()) {
        throw DataError(fmt::format("no sound checkpoint is left in {}: {}; start anew with run.resume=never",
                                    options_.folder.string(), warnings.front()));
    }
    return std::nullopt;
}

std::filesystem::path CheckpointFolder::save(const Snapshot& snapshot, Manifest manifest, std::string_view config_yaml) const {
    snapshot.require_finite(manifest.step);
    make_directories(options_.folder);
    const fs::path final_path = options_.folder / folder_name(manifest.step);
    const fs::path temporary = options_.folder / fmt::format("{}{}-{}", kSaving, manifest.step, getpid());
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    make_directories(temporary);
    try {
        write_files(temporary, snapshot, std::move(manifest), config_yaml);
        sync_folder(temporary);
        move_into_place(temporary, final_path);
    } catch (...) {
        fs::remove_all(temporary, ignored);
        throw;
    }
    sync_folder(options_.folder);
    remove_old();
    return final_path;
}

void CheckpointFolder::remove_old() const {
    const auto checkpoints = list_checkpoints(options_.folder);
    const std::optional<fs::path> best = options_.best.empty() ? std::nullopt : find_best(checkpoints, options_.best);
    for (size_t index = static_cast<size_t>(std::max<int64_t>(1, options_.keep_last)); index < checkpoints.size(); ++index) {
        if (checkpoints[index].second != best) remove_checkpoint(checkpoints[index].second);
    }
}

std::optional<std::filesystem::path> CheckpointFolder::set_aside(int64_t step) const {
    auto later = list_checkpoints(options_.folder);
    std::erase_if(later, [&](const auto& each) { return each.first <= step; });
    if (later.empty()) return std::nullopt;
    fs::path aside;
    for (int number = 1; aside.empty() || fs::exists(aside); ++number) {
        aside = options_.folder.parent_path() / fmt::format("{}.old-{}", options_.folder.filename().string(), number);
    }
    make_directories(aside);
    for (const auto& [number, path] : later) rename_folder(path, aside / path.filename());
    return aside;
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
    const fs::path path = checkpoint / "manifest.json";
    Manifest manifest = parse_manifest(read_file(path), path);
    // Under a later step's name an old checkpoint would be the newest for ever, and every start would go back to it.
    const std::optional<int64_t> named = step_of(checkpoint);
    if (named && *named != manifest.step) {
        throw DataError(fmt::format("{}: the manifest is of step {}; give the folder its name {} back", checkpoint.string(),
                                    manifest.step, folder_name(manifest.step)));
    }
    return manifest;
}

Manifest verify_checkpoint(const std::filesystem::path& checkpoint) {
    Manifest manifest = read_manifest(checkpoint);
    for (const auto& [name, expected] : manifest.files) {
        const fs::path path = checkpoint / fs::path(name).filename();  // a manifest never leads out of its folder
        const MappedFile file(path);
        const std::string found = hash_hex(hash_bytes(file.bytes().data(), file.bytes().size()));
        if (found != expected) {
            throw DataError(fmt::format("{}: checksum {} is not the manifest's {}; the file was changed or cut", path.string(),
                                        found, expected));
        }
    }
    if (!manifest.files.contains(std::string(kModelFile))) {
        throw DataError(fmt::format("{}/manifest.json: lists no {}", checkpoint.string(), kModelFile));
    }
    return manifest;
}

FoundCheckpoint open_checkpoint(const std::filesystem::path& place) {
    if (fs::exists(place / "manifest.json")) return {.path = place, .manifest = verify_checkpoint(place)};
    std::optional<FoundCheckpoint> found = CheckpointFolder({.folder = place / "checkpoints"}).latest();
    if (!found) {
        throw DataError(fmt::format(
            "{} is neither a checkpoint nor a run folder that holds one; give RUN or RUN/checkpoints/step-N", place.string()));
    }
    return std::move(*found);
}

void load_checkpoint_model(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena) {
    load_file(checkpoint / kModelFile, backend, arena, arena.values(), EntrySet::all);
}

void load_checkpoint_optimizer(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena) {
    for (int index = 0; index < arena.state_buffer_count(); ++index) {
        load_file(checkpoint / state_file(index), backend, arena, arena.state(index), EntrySet::trainable);
    }
}

}  // namespace lockstep
