// Looking at checkpoints: what a folder holds, whether it is sound, in what two of them differ. Behind `lockstep checkpoint`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "trainer/checkpoint.h"

namespace lockstep {

struct CheckpointSummary {
    std::filesystem::path path;
    int64_t step = 0;      // from the folder's name
    int64_t bytes = 0;     // of its files
    std::string written;   // "2030-01-31T12:34:56Z"
    std::string damage;    // why it cannot be used; empty: sound
    Manifest manifest;     // where there is no damage
    bool is_best = false;  // by the metric asked for
};

// Of a run folder or a folder of checkpoints, by step. `verify`: every file against its checksum; else the manifests alone. `best`:
// the metric that marks one of them, such as val.top1. Throws DataError when there is none.
std::vector<CheckpointSummary> look_at_checkpoints(const std::filesystem::path& place, bool verify, const std::string& best);

// One checkpoint: `place` itself, or the newest of a run folder, damaged or not.
std::filesystem::path checkpoint_at(const std::filesystem::path& place);

struct TensorFacts {
    std::string file, name;
    DataType type = DataType::f32;
    Shape shape;
    double norm = 0.0, largest = 0.0;  // over the values: root of the sum of squares, largest magnitude
};
// All tensors, the model's first. Throws DataError naming a file that is damaged.
std::vector<TensorFacts> tensors_of(const std::filesystem::path& checkpoint);

struct TensorDifference {
    std::string file, name;
    std::string problem;               // "only in the first", "shapes 3x3 and 5x5"; empty: the values differ
    int64_t count = 0, differing = 0;  // elements, compared bit by bit
    double largest = 0.0;              // magnitude of a difference
    double relative = 0.0;             // norm of the difference over the norm of the first
};
// What differs, largest relative difference first. Equal tensors are left out.
std::vector<TensorDifference> compare_checkpoints(const std::filesystem::path& first, const std::filesystem::path& second);

// What the manifests say differently: key, first value, second value.
struct FactDifference {
    std::string key, first, second;
};
std::vector<FactDifference> compare_manifests(const Manifest& first, const Manifest& second);

}  // namespace lockstep
