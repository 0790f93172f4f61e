#include "trainer/recipe.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"

namespace lockstep {

namespace {

LearningRateOptions::Scaling scaling_of(const std::string& name) {
    if (name == "none") return LearningRateOptions::Scaling::none;
    if (name == "sqrt") return LearningRateOptions::Scaling::sqrt;
    return LearningRateOptions::Scaling::linear;
}

LearningRateOptions::Shape shape_of(const std::string& name) {
    if (name == "cosine") return LearningRateOptions::Shape::cosine;
    if (name == "polynomial") return LearningRateOptions::Shape::polynomial;
    if (name == "constant") return LearningRateOptions::Shape::constant;
    return LearningRateOptions::Shape::step;
}

std::string text_of(const Duration& duration) {
    return fmt::format("{}{}", duration.amount, duration.unit == Duration::Unit::epochs ? "ep" : "it");
}

std::string text_of(const std::vector<TransformConfig>& pipeline) {
    std::string text;
    for (const TransformConfig& step : pipeline) {
        text += fmt::format("{}(size {}, pad {}, scale {}, ratio {}, probability {}) ", step.name, step.size, step.pad, step.scale,
                            step.ratio, step.probability);
        if (!step.numbers.empty()) text += fmt::format("{} ", step.numbers);
        if (!step.words.empty()) text += fmt::format("{} ", step.words);
    }
    return text;
}

// Negative stands for `auto`: the network's own.
std::optional<float> unless_auto(double value) {
    if (value < 0.0) return std::nullopt;
    return static_cast<float>(value);
}

std::string text_unless_auto(double value) { return value < 0.0 ? "auto" : fmt::format("{}", value); }

}  // namespace

ModelOptions model_options(const Experiment& experiment, int64_t num_classes) {
    return {.arch = experiment.model.arch,
            .variant = experiment.model.variant,
            .num_classes = num_classes,
            .image_size = experiment.model.image_size,
            .channels = experiment.model.channels,
            .zero_init_last_bn = experiment.model.zero_init_last_bn,
            .label_smoothing = static_cast<float>(experiment.loss.label_smoothing),
            .bn_epsilon = unless_auto(experiment.batchnorm.epsilon),
            .bn_keep = unless_auto(experiment.batchnorm.keep),
            .dropout = static_cast<float>(experiment.model.dropout)};
}

Precision precision_of(const Experiment& experiment) {
    return experiment.train.precision == "bf16" ? Precision::bf16 : Precision::fp32;
}

Fusion fusion_named(std::string_view name) {
    return name == "off" ? Fusion::off : name == "bn_relu" ? Fusion::bn_relu : Fusion::all;
}

Autotune autotune_named(std::string_view name) {
    return name == "off" ? Autotune::off : name == "measure" ? Autotune::measure : Autotune::heuristic;
}

Recompute recompute_named(std::string_view name) { return name == "norms" ? Recompute::norms : Recompute::off; }

BackendOptions backend_options(const Experiment& experiment, int threads) {
    return {.threads = threads,
            .precision = precision_of(experiment),
            .fusion = fusion_named(experiment.compute.fusion),
            .autotune = autotune_named(experiment.compute.autotune),
            .exact_convolution = experiment.compute.exact_convolution,
            .recompute = recompute_named(experiment.compute.recompute)};
}

SgdOptions sgd_options(const Experiment& experiment) {
    return {.momentum = experiment.optim.momentum,
            .nesterov = experiment.optim.nesterov,
            .folded = experiment.optim.folded_momentum,
            .weight_decay = experiment.optim.weight_decay,
            .decay_batch_norm = experiment.optim.decay_bn,
            .decay_bias = experiment.optim.decay_bias};
}

LearningRateOptions learning_rate_options(const Experiment& experiment, int64_t steps_per_epoch, int64_t total_steps) {
    LearningRateOptions options{.scaling = scaling_of(experiment.lr.scaling),
                                .shape = shape_of(experiment.lr.schedule),
                                .base = experiment.lr.base,
                                .base_batch = experiment.lr.base_batch,
                                .batch_global = experiment.batch.global,
                                .warmup_steps = experiment.lr.warmup.steps(steps_per_epoch),
                                .warmup_from = experiment.lr.warmup_from,
                                .factor = experiment.lr.factor,
                                .power = experiment.lr.power,
                                .final_rate = experiment.lr.final_rate,
                                .total_steps = total_steps};
    for (const Duration& at : experiment.lr.at) options.step_at.push_back(at.steps(steps_per_epoch));
    return options;
}

SamplerOptions sampler_options(const Experiment& experiment, int64_t sample_count) {
    return {.sample_count = sample_count,
            .batch_global = experiment.batch.global,
            .per_replica = experiment.batch.per_replica,
            .shuffle = experiment.data.shuffle,
            .keep_remainder = experiment.data.remainder == "keep",
            .fixed_places = experiment.run.any_world(),
            .seed = experiment.run.seed};
}

namespace {

SourceOptions source_options(const Experiment& experiment, const DataSetConfig& data, bool train) {
    return {.kind = data.source,
            .path = data.path,
            .labels_path = data.labels,
            .num_classes = experiment.model.num_classes,
            .first_label = static_cast<int>(data.first_label),
            .coarse_labels = data.cifar100_labels == "coarse",
            .raw_colour = data.raw_colour,
            .train = train,
            .synthetic_size = data.synthetic_size,
            .image_size = static_cast<int>(experiment.model.image_size),
            .channels = static_cast<int>(experiment.model.channels),
            .seed = experiment.run.seed};
}

}  // namespace

SourceOptions training_source_options(const Experiment& experiment) {
    return source_options(experiment, experiment.data.train, true);
}

SourceOptions validation_source_options(const Experiment& experiment, const std::vector<std::string>& class_names,
                                        int64_t num_classes) {
    SourceOptions options = source_options(experiment, experiment.data.val, false);
    options.class_names = class_names;
    options.num_classes = num_classes;
    return options;
}

int loader_threads(const Experiment& experiment, int compute_threads) {
    if (experiment.data.workers > 0) return static_cast<int>(experiment.data.workers);
    return std::clamp(compute_threads / 2, 1, 8);
}

LoaderOptions training_loader_options(const Experiment& experiment, int worker_threads) {
    LoaderOptions options = loader_options(experiment, pipeline_options(experiment, experiment.data.train), worker_threads);
    options.mix = {.mixup = experiment.data.mixup, .cutmix = experiment.data.cutmix};
    return options;
}

LoaderOptions loader_options(const Experiment& experiment, PipelineOptions pipeline, int worker_threads) {
    return {.pipeline = std::move(pipeline),
            .worker_threads = worker_threads,
            .batches_ahead = static_cast<int>(experiment.data.batches_ahead),
            .slot_capacity = static_cast<int>(experiment.batch.per_replica),
            .max_worker_threads = experiment.data.workers > 0 ? worker_threads : 2 * worker_threads,
            .timeout_ms = experiment.data.timeout_ms};
}

namespace {

// What the file holds counts, not where it lies.
std::string mean_file_key(const std::string& path) {
    const std::string file = read_file(path);
    return fmt::format("image {:016x}", hash_bytes(file.data(), file.size()));
}

}  // namespace

ResultKeys result_keys(const Experiment& experiment, int64_t num_classes) {
    const auto& [run, model, data, batch, optim, lr, loss, batchnorm] =
        std::tie(experiment.run, experiment.model, experiment.data, experiment.batch, experiment.optim, experiment.lr,
                 experiment.loss, experiment.batchnorm);
    std::vector<std::string> drops;
    for (const Duration& at : lr.at) drops.push_back(text_of(at));
    const auto text = [](const auto& value) { return fmt::format("{}", value); };
    return {{"run.seed", text(run.seed)},
            {"model.arch", model.arch},
            {"model.variant", model.variant},
            {"model.num_classes", text(num_classes)},
            {"model.image_size", text(model.image_size)},
            {"model.channels", text(model.channels)},
            {"model.dropout", text(model.dropout)},
            {"model.zero_init_last_bn", text(model.zero_init_last_bn)},
            {"train.precision", experiment.train.precision},
            {"comm.wire", experiment.comm.wire},
            {"data.train.pipeline", text_of(data.train.pipeline)},
            {"data.train.raw_colour", data.train.raw_colour},
            {"data.mean", data.mean_file.empty() ? text(data.mean) : mean_file_key(data.mean_file)},
            {"data.stddev", text(data.stddev)},
            {"data.decode", data.decode == "fast" ? "fast" : "exact"},  // full gives the pixels of exact
            {"data.apply_exif_orientation", text(data.apply_exif_orientation)},
            {"data.mixup", text(data.mixup)},
            {"data.cutmix", text(data.cutmix)},
            {"data.shuffle", text(data.shuffle)},
            {"data.remainder", data.remainder},
            {"batch.global", text(batch.global)},
            {"batch.per_replica", text(batch.per_replica)},
            {"optim.name", optim.name},
            {"optim.momentum", text(optim.momentum)},
            {"optim.nesterov", text(optim.nesterov)},
            {"optim.folded_momentum", text(optim.folded_momentum)},
            {"optim.weight_decay", text(optim.weight_decay)},
            {"optim.decay_bn", text(optim.decay_bn)},
            {"optim.decay_bias", text(optim.decay_bias)},
            {"lr.base", text(lr.base)},
            {"lr.base_batch", text(lr.base_batch)},
            {"lr.scaling", lr.scaling},
            {"lr.warmup", text_of(lr.warmup)},
            {"lr.warmup_from", text(lr.warmup_from)},
            {"lr.schedule", lr.schedule},
            {"lr.at", fmt::format("{}", fmt::join(drops, " "))},
            {"lr.factor", text(lr.factor)},
            {"lr.power", text(lr.power)},
            {"lr.final_rate", text(lr.final_rate)},
            {"loss.label_smoothing", text(loss.label_smoothing)},
            {"batchnorm.keep", text_unless_auto(batchnorm.keep)},
            {"batchnorm.epsilon", text_unless_auto(batchnorm.epsilon)}};
}

}  // namespace lockstep
