// Checkpoints: RUN/checkpoints/step-000000123/ with
//   model.safetensors      values and running statistics under torchvision's names, plain layouts
//   optimizer.safetensors  momentum under the same names
//   config.yaml            the resolved configuration
//   manifest.json          everything else, and the checksum of the other files
// A folder under its final name is always whole: it is written under another name, synced and renamed. One process writes.
// docs/checkpoint_format.md describes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parameter_arena.h"
#include "nn/executor.h"
#include "trainer/manifest.h"
#include "trainer/snapshot.h"

namespace lockstep {

struct CheckpointFolderOptions {
    std::filesystem::path folder;  // RUN/checkpoints; made when needed
    int64_t keep_last = 2;
    std::string best;  // metric whose best checkpoint is kept besides; less is better where the name ends in "loss"; empty: none
};

struct FoundCheckpoint {
    std::filesystem::path path;
    Manifest manifest;
    std::vector<std::string> warnings;  // newer ones that are damaged, by name and reason
};

class CheckpointFolder {
public:
    explicit CheckpointFolder(CheckpointFolderOptions options) : options_(std::move(options)) {}

    // What a killed writer of ours left: unfinished saves and removals. Anything else in the folder is left alone.
    void clean_leftovers() const;

    // The sound checkpoint with the highest step, whatever the file times; stray files are ignored. Damaged newer ones are named in
    // `warnings`.
    std::optional<FoundCheckpoint> latest() const;

    // Writes a checkpoint and then removes those that are neither among the last nor the best. `manifest` comes without `files`.
    // Throws DivergedError naming the tensor when a value is NaN or Inf, DeviceError when the disk refuses; then nothing has
    // changed.
    std::filesystem::path save(const Snapshot& snapshot, Manifest manifest, std::string_view config_yaml) const;

    // Moves the checkpoints of later steps aside (-1: all), for a run that begins there; returns the new place, nullopt when there
    // was none.
    std::optional<std::filesystem::path> set_aside(int64_t step) const;

private:
    void remove_old() const;

    CheckpointFolderOptions options_;
};

// Folders that bear a checkpoint's name with their steps, newest first; whether they are sound is another question.
std::vector<std::pair<int64_t, std::filesystem::path>> list_checkpoints(const std::filesystem::path& folder);
bool is_better(const std::string& metric, double candidate, double champion);  // of losses the smaller, of all else the larger

// Of a folder that bears a checkpoint's name it must be that step's. Throws DataError naming the file.
Manifest read_manifest(const std::filesystem::path& checkpoint);
// Reads the manifest and checks every file against its checksum. Throws DataError naming the file.
Manifest verify_checkpoint(const std::filesystem::path& checkpoint);
// `place` is a checkpoint or a run folder, whose latest is taken. Throws DataError when there is none.
FoundCheckpoint open_checkpoint(const std::filesystem::path& place);

void load_checkpoint_model(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena);
void load_checkpoint_optimizer(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena);

}  // namespace lockstep
