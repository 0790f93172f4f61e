// What a checkpoint says about itself: manifest.json. A folder without one is no checkpoint. It ends with a checksum of itself, so
// that a changed step or seed is noticed like a changed weight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data_loader/sampler.h"
#include "trainer/recipe.h"

namespace lockstep {

// Sums since the last line of metrics, so that a resumed run writes the same next line.
struct IntervalSums {
    double loss_sum = 0.0;
    int64_t correct = 0, images = 0;
    bool operator==(const IntervalSums&) const = default;
};

struct Manifest {
    static constexpr int kFormatVersion = 2;

    int64_t step = 0;    // steps made; the next one has this number
    double epoch = 0.0;  // the same, for people
    DataPlace place;     // the same, in the data
    int64_t steps_per_epoch = 1;
    int64_t total_steps = 0;   // planned for the run
    int64_t batch_global = 0;  // of the steps before this; the configured one is among the result keys
    uint64_t seed = 0;
    std::string config_hash;
    ResultKeys result_keys;  // what a run that continues from here must agree with
    int world_size = 1;
    std::vector<std::pair<std::string, double>> optimizer;
    std::map<std::string, double> metrics;  // of the evaluation at this step; empty when there was none
    IntervalSums interval;
    uint64_t train_fingerprint = 0;
    std::vector<std::string> class_names;
    int64_t num_classes = 0;
    std::map<std::string, std::string> files;  // name -> XXH3 of its content
    bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
// Throws DataError naming the file and what is wrong with it.
Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

}  // namespace lockstep
