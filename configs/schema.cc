#include "configs/schema.h"

#include <algorithm>

#include "configs/schema_rows.h"

namespace lockstep {

namespace {

const Range kBelowOne{.min = 0.0, .max = 1.0, .below_max = true};
const Range kPositiveDuration{.min = 0.0, .max = 1e9, .above_min = true};

std::vector<SchemaRow> run_rows() {
    return {
        {"run.name", [](Experiment& e) -> Field { return &e.run.name; },
         "Name of the run, for reports; ${run.name} elsewhere in the file."},
        {"run.dir", [](Experiment& e) -> Field { return &e.run.dir; },
         "Folder of the run: checkpoints, metrics, report and the resolved configuration. Made when missing; relative to the "
         "working "
         "directory."},
        {"run.seed", [](Experiment& e) -> Field { return &e.run.seed; },
         "Source of all randomness: first weights, order of the images, augmentation, dropout."},
        {.name = "run.reproducible",
         .field = [](Experiment& e) -> Field { return &e.run.reproducible; },
         .doc =
             "`same_world`: a run repeated on the same number of ranks gives the same bits. `any_world`: so does one on 1, 2, 4, "
             "8, ... ranks; the virtual workers of a step and the ranks are powers of two, train.threads is a number and comm.wire "
             "fp32. `off`: comm.algorithm auto takes the fastest schedule, whatever the order of its additions, so a repeated run "
             "may differ "
             "in the last bits where links were measured anew.",
         .choices = {"off", "same_world", "any_world"}},
        {"run.resume", [](Experiment& e) -> Field { return &e.run.resume; },
         "`auto`: continue when run.dir holds a checkpoint; `never`: start anew; else the path of a checkpoint to continue from."},
        {"run.audit", [](Experiment& e) -> Field { return &e.run.audit; },
         "Log the samples of each step, per rank, in run.dir/audit; `lockstep data audit RUN` proves from it that each sample was "
         "used "
         "once in each epoch."},
    };
}

std::vector<SchemaRow> model_rows() {
    return {
        {"model.arch", [](Experiment& e) -> Field { return &e.model.arch; },
         "The network: resnet18, resnet34, resnet50, resnet101, resnet152, alexnet, vgg_a (VGG-11), vgg16, googlenet, "
         "inception_v3; resnet20, resnet32, resnet44, resnet56, resnet110 and cifar10_full_sigmoid_bn for 32x32 images; mnist_cnn; "
         "tiny_cnn and tiny_bn for tests."},
        {.name = "model.variant",
         .field = [](Experiment& e) -> Field { return &e.model.variant; },
         .doc = "`auto`: the network's usual form. ResNet-50 and deeper: `v1.5` (usual) has the stride on the 3x3 convolution of a "
                "bottleneck, `v1` on the first 1x1. alexnet: `one_tower` (usual, torchvision's) or `grouped`, with local response "
                "normalisation and two groups as in Caffe. vgg_a, vgg16: `plain` (usual) or `bn`. googlenet: `bn` (usual, "
                "torchvision's), `bn_no_aux` without the auxiliary heads, or `lrn`, the paper's. inception_v3: `aux` (usual) or "
                "`no_aux`.",
         .choices = {"auto", "v1.5", "v1", "one_tower", "grouped", "plain", "bn", "bn_no_aux", "lrn", "aux", "no_aux"}},
        {"model.weights", [](Experiment& e) -> Field { return &e.model.weights; },
         "A safetensors file to start from; empty: random first weights."},
        {"model.partial_weights", [](Experiment& e) -> Field { return &e.model.partial_weights; },
         "Load what fits of model.weights and list the rest; false: anything missing, extra or misshapen is an error."},
        {.name = "model.num_classes",
         .field = [](Experiment& e) -> Field { return &e.model.num_classes; },
         .doc = "Number of classes; `auto`: as many as the training data has.",
         .range = {.min = 1, .max = 1e6},
         .keyword = Keyword{"auto", 0}},
        {.name = "model.image_size",
         .field = [](Experiment& e) -> Field { return &e.model.image_size; },
         .doc = "Height and width of the images that the network sees, in pixels.",
         .range = {.min = 1, .max = 4096}},
        {.name = "model.channels",
         .field = [](Experiment& e) -> Field { return &e.model.channels; },
         .doc = "Colour channels of the images: 3, or 1 for grey.",
         .range = {.min = 1, .max = 3}},
        {"model.zero_init_last_bn", [](Experiment& e) -> Field { return &e.model.zero_init_last_bn; },
         "Start the last batch norm of each residual block with scale 0, so that blocks begin as identity."},
        {.name = "model.dropout",
         .field = [](Experiment& e) -> Field { return &e.model.dropout; },
         .doc = "Probability of dropping a feature before the last layer, and wherever the network drops of its own; 0: the "
                "network's own.",
         .range = kBelowOne},
    };
}

std::vector<SchemaRow> train_rows() {
    return {
        {.name = "train.duration",
         .field = [](Experiment& e) -> Field { return &e.train.duration; },
         .doc = "Length of the run.",
         .range = kPositiveDuration},
        {.name = "train.backend",
         .field = [](Experiment& e) -> Field { return &e.train.backend; },
         .doc = "What computes: `onednn`, or `reference` (plain loops: slow, for comparison).",
         .choices = {"onednn", "reference"}},
        {.name = "train.precision",
         .field = [](Experiment& e) -> Field { return &e.train.precision; },
         .doc = "`bf16`: activations and convolution inputs; weights, gradients and updates stay fp32.",
         .choices = {"fp32", "bf16"}},
        {.name = "train.threads",
         .field = [](Experiment& e) -> Field { return &e.train.threads; },
         .doc = "Compute threads of a rank; `auto`: allowed cores divided by the ranks of the node.",
         .range = {.min = 1, .max = 4096},
         .keyword = Keyword{"auto", 0}},
        {.name = "train.eval_every",
         .field = [](Experiment& e) -> Field { return &e.train.eval_every; },
         .doc = "Time between evaluations on the validation set.",
         .range = kPositiveDuration},
        {.name = "train.log_every",
         .field = [](Experiment& e) -> Field { return &e.train.log_every; },
         .doc = "Steps between progress lines and lines of metrics.jsonl.",
         .range = {.min = 1, .max = 1e9}},
        {"train.stop_on_nan", [](Experiment& e) -> Field { return &e.train.stop_on_nan; },
         "Stop all ranks before the update when the loss or a gradient is not finite."},
        {.name = "train.check_replicas",
         .field = [](Experiment& e) -> Field { return &e.train.check_replicas; },
         .doc = "Time between comparisons of all ranks' weights, by a hash; a difference names rank and tensor and ends the run.",
         .range = kPositiveDuration},
    };
}

std::vector<SchemaRow> output_rows() {
    return {
        {.name = "checkpoint.every",
         .field = [](Experiment& e) -> Field { return &e.checkpoint.every; },
         .doc = "Time between checkpoints.",
         .range = kPositiveDuration},
        {.name = "checkpoint.keep_last",
         .field = [](Experiment& e) -> Field { return &e.checkpoint.keep_last; },
         .doc = "Newest checkpoints that are kept.",
         .range = {.min = 1, .max = 1e6}},
        {.name = "checkpoint.best",
         .field = [](Experiment& e) -> Field { return &e.checkpoint.best; },
         .doc = "Metric whose best checkpoint is kept too, highest for accuracies and lowest for losses; empty: none.",
         .choices = {"val.top1", "val.top5", "val.loss", ""}},
        {"checkpoint.async", [](Experiment& e) -> Field { return &e.checkpoint.async; },
         "Write checkpoints while training goes on, from a copy in memory of rank 0 as large as the files; false: training waits "
         "for the disk. The same files either way."},
        {"report.html", [](Experiment& e) -> Field { return &e.report.html; }, "Write report.html at the end of the run."},
        {"report.tensorboard", [](Experiment& e) -> Field { return &e.report.tensorboard; }, "Write TensorBoard events."},
        {.name = "report.trace_steps",
         .field = [](Experiment& e) -> Field { return &e.report.trace_steps; },
         .doc = "Steps in the trace of all ranks.",
         .range = {.min = 0, .max = 100'000}},
    };
}

std::vector<SchemaRow> make_schema() {
    return joined(
        {run_rows(), model_rows(), schema_data_rows(), schema_learning_rows(), train_rows(), schema_machine_rows(), output_rows()});
}

}  // namespace

std::vector<SchemaRow> joined(std::initializer_list<std::vector<SchemaRow>> parts) {
    std::vector<SchemaRow> rows;
    for (const std::vector<SchemaRow>& part : parts) rows.insert(rows.end(), part.begin(), part.end());
    return rows;
}

const std::vector<SchemaRow>& schema() {
    static const std::vector<SchemaRow> rows = make_schema();
    return rows;
}

const SchemaRow* find_row(std::string_view name) {
    const auto row = std::find_if(schema().begin(), schema().end(), [name](const SchemaRow& r) { return r.name == name; });
    return row == schema().end() ? nullptr : &*row;
}

bool is_section(std::string_view name) {
    const std::string prefix = std::string(name) + ".";
    return std::any_of(schema().begin(), schema().end(), [&prefix](const SchemaRow& r) { return r.name.starts_with(prefix); });
}

const std::vector<SectionText>& section_texts() {
    static const std::vector<SectionText> texts{
        {"run", "The run as a whole."},
        {"model", "The network and its first weights."},
        {"data", "Where images come from and how they become batches."},
        {"data.train", "The training set."},
        {"data.val", "The validation set. It uses the class map of the training set."},
        {"batch", "The batch contract: global = virtual workers x per_replica, whatever the number of ranks."},
        {"elastic", "What follows when the number of ranks changes between two starts of a run."},
        {"optim", "The update of the weights."},
        {"lr", "The learning rate over time, the same for any number of ranks."},
        {"loss", "Softmax cross-entropy."},
        {"batchnorm", "Batch normalisation."},
        {"train", "The loop."},
        {"compute", "How the compute backend does its work."},
        {"comm", "How gradients travel between ranks."},
        {"checkpoint", "What is kept."},
        {"report", "What is written about the run."},
    };
    return texts;
}

}  // namespace lockstep
