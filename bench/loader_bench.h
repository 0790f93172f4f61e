// How fast pictures become batches, stage by stage, beside libjpeg-turbo's decode alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "data_loader/loader.h"
#include "data_loader/source.h"
#include "data_loader/stage_times.h"

namespace lockstep::bench {

struct LoaderBenchOptions {
    PipelineOptions pipeline;
    std::vector<int> threads{1};  // each number is measured
    int64_t images = 500;         // of a turn: evenly spaced ones of the set; 0: all
    int rounds = 5;
    int batch = 32, batches_ahead = 4;
    double consumer_images_per_s = 0.0;  // > 0: also the loader against somebody who takes that many
};

// `read`: the stored bytes, every page touched. `libjpeg-turbo`: read and decode to RGB as the library does it by itself; nothing
// where the set has no JPEG. `pipeline`: read, decode, augment and normalise, every thread for itself. `loader`: the same through
// the ring of batches. `loader, paced`: against a consumer that sleeps between batches.
struct LoaderBenchRow {
    std::string what;
    int threads = 1;
    Spread images_per_s;                         // of all threads together, over the rounds
    double cpu_us = 0.0;                         // processor time of an image, median; neighbours on the machine move it less
    double of_libjpeg = 0.0;                     // images/s over those of libjpeg-turbo in the same round, median; 0: no such row
    double wait_share = 0.0;                     // paced: of the time, the consumer waited
    double start_ms = 0.0;                       // loader: from nothing to the first batch, median
    std::array<double, kStageCount> stage_us{};  // of an image, medians; pipeline and loader
};

struct LoaderBenchResult {
    LoaderBenchOptions options;
    std::string source;        // its description
    int64_t images = 0;        // of a turn
    int64_t left_out = 0;      // bad ones; where there are JPEG files, also all others
    double mean_bytes = 0.0;   // of a file
    double mean_pixels = 0.0;  // of a stored picture; 0: no JPEG
    std::vector<LoaderBenchRow> rows;
    double steal_share = 0.0;  // by the hypervisor while it ran
};

// In each round every contestant has its turn at every number of threads. DataError when no image is good.
LoaderBenchResult run_loader_bench(const Source& source, const LoaderBenchOptions& options);

std::string to_text(const LoaderBenchResult& result);
std::string to_json(const LoaderBenchResult& result);  // on one line, with the machine's facts
std::string to_svg(const LoaderBenchResult& result);   // bars: images/s per thread, and the stages of an image

}  // namespace lockstep::bench
