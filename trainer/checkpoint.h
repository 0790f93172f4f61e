// Checkpoints: RUN/checkpoints/step-000000123/ with
//   model.safetensors      values and running statistics under torchvision's names, plain layouts
//   optimizer.safetensors  momentum under the same names
//   config.yaml            the resolved configuration
//   manifest.json          everything else, and the checksum of the other files
// A folder under its final name is always whole: it is written under another name, synced and renamed. One process writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/parameter_arena.h"
#include "nn/executor.h"
#include "trainer/manifest.h"

namespace lockstep {

struct CheckpointFolderOptions {
    std::filesystem::path folder;  // RUN/checkpoints; made when needed
    int64_t keep_last = 2;
    std::string best;  // metric whose best checkpoint is kept besides; less is better where the name ends in "loss"; empty: none
};

struct CheckpointContent {
    Manifest manifest;  // without `files`
    const Backend* backend = nullptr;
    const ParameterArena* arena = nullptr;
    std::vector<std::span<const float>> states;  // of the optimizer, each in the arena's layout
    std::string config_yaml;
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

    // Writes a checkpoint and then removes those that are neither among the last nor the best. Throws DivergedError naming the
    // tensor when a value is NaN or Inf, DeviceError when the disk refuses; then nothing has changed.
    std::filesystem::path save(CheckpointContent content) const;

    // Moves the whole folder aside, for a run that starts anew; returns the new place, nullopt when there was nothing.
    std::optional<std::filesystem::path> set_aside() const;

private:
    void remove_old() const;

    CheckpointFolderOptions options_;
};

// Reads the manifest and checks every file against its checksum. Throws DataError naming the file.
Manifest verify_checkpoint(const std::filesystem::path& checkpoint);
// `place` is a checkpoint or a run folder, whose latest is taken. Throws DataError when there is none.
FoundCheckpoint open_checkpoint(const std::filesystem::path& place);

void load_checkpoint_model(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena);
void load_checkpoint_optimizer(const std::filesystem::path& checkpoint, const Backend& backend, ParameterArena& arena);

}  // namespace lockstep
