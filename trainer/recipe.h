// From a validated Experiment to the options of the parts that the trainer joins. Pure, but for data.mean_file, which is read; the
// parts themselves know no Experiment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/experiment.h"
#include "data_loader/loader.h"
#include "data_loader/sampler.h"
#include "data_loader/source.h"
#include "models/models.h"
#include "nn/executor.h"
#include "optim/learning_rate.h"
#include "optim/optimizer.h"

namespace lockstep {

ModelOptions model_options(const Experiment& experiment, int64_t num_classes);
Precision precision_of(const Experiment& experiment);
Fusion fusion_named(std::string_view name);        // off, bn_relu, all
Autotune autotune_named(std::string_view name);    // off, heuristic, measure
Recompute recompute_named(std::string_view name);  // off, norms
BackendOptions backend_options(const Experiment& experiment, int threads);
SgdOptions sgd_options(const Experiment& experiment);
LearningRateOptions learning_rate_options(const Experiment& experiment, int64_t steps_per_epoch, int64_t total_steps);
SamplerOptions sampler_options(const Experiment& experiment, int64_t sample_count);
PipelineOptions pipeline_options(const Experiment& experiment, const DataSetConfig& data);

SourceOptions training_source_options(const Experiment& experiment);
// Validation uses the class map of training: its names, or where there are none its number.
SourceOptions validation_source_options(const Experiment& experiment, const std::vector<std::string>& class_names,
                                        int64_t num_classes);

// data.workers, or for 0 half of the compute threads, 1 to 8: decoding shares the cores with the arithmetic.
int loader_threads(const Experiment& experiment, int compute_threads);
LoaderOptions training_loader_options(const Experiment& experiment, int worker_threads);
LoaderOptions loader_options(const Experiment& experiment, PipelineOptions pipeline, int worker_threads);

// What a run's result depends on, as key and value: a resumed run must have the same (trainer/resume.h).
using ResultKeys = std::vector<std::pair<std::string, std::string>>;
ResultKeys result_keys(const Experiment& experiment, int64_t num_classes);

}  // namespace lockstep
