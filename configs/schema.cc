#include "configs/schema.h"

#include <algorithm>

namespace lockstep {

namespace {

const Range kPositive{.min = 0.0, .above_min = true};
const Range kAtLeastOne{.min = 1.0};
const Range kUnitInterval{.min = 0.0, .max = 1.0};
const Range kBelowOne{.min = 0.0, .max = 1.0, .below_max = true};
const Range kDuration{.min = 0.0, .max = 1e9};
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

std::vector<SchemaRow> set_rows(const std::string& name, DataSetConfig Experiment::Data::*set) {
    const std::string prefix = "data." + name + ".";
    return {
        {.name = prefix + "source",
         .field = [set](Experiment& e) -> Field { return &(e.data.*set).source; },
         .doc = "Format of the data; `auto`: by what lies at the path.",
         .choices = {"auto", "folder", "tar", "webdataset", "list", "flat", "tfrecord", "mds", "lmdb", "beton", "mnist",
                     "cifar_bin", "synthetic", "synthetic_jpeg"}},
        {prefix + "path", [set](Experiment& e) -> Field { return &(e.data.*set).path; },
         name == "train" ? "Folder, file or shard pattern such as train-{000..127}.tar; relative to the working directory."
                         : "As data.train.path; empty: no validation."},
        {prefix + "labels", [set](Experiment& e) -> Field { return &(e.data.*set).labels; },
         "Label file of a flat folder, or of an MNIST set (empty: found beside the images)."},
        {.name = prefix + "first_label",
         .field = [set](Experiment& e) -> Field { return &(e.data.*set).first_label; },
         .doc = "What integer labels count from: 0, or 1 as in classic ImageNet TFRecords.",
         .range = {.min = 0, .max = 1}},
        {.name = prefix + "cifar100_labels",
         .field = [set](Experiment& e) -> Field { return &(e.data.*set).cifar100_labels; },
         .doc = "Which of CIFAR-100's labels: the 100 classes or the 20 superclasses.",
         .choices = {"fine", "coarse"}},
        {.name = prefix + "raw_colour",
         .field = [set](Experiment& e) -> Field { return &(e.data.*set).raw_colour; },
         .doc = "Which colour of raw pixels in an LMDB comes first: blue, as Caffe's convert_imageset writes them, or red.",
         .choices = {"bgr", "rgb"}},
        {prefix + "pipeline", [set](Experiment& e) -> Field { return &(e.data.*set).pipeline; },
         "What is done to each image, in order. The last size must be model.image_size."},
        {.name = prefix + "synthetic_size",
         .field = [set](Experiment& e) -> Field { return &(e.data.*set).synthetic_size; },
         .doc = "Number of images of a set that is made up (synthetic, synthetic_jpeg).",
         .range = {.min = 1, .max = 1e9}},
    };
}

std::vector<SchemaRow> data_rows() {
    return {
        {"data.mean", [](Experiment& e) -> Field { return &e.data.mean; },
         "Mean of each colour channel, of pixels in 0 to 1; subtracted. One number stands for all channels."},
        {"data.mean_file", [](Experiment& e) -> Field { return &e.data.mean_file; },
         "Mean of every pixel, subtracted in place of `data.mean`: a BlobProto of Caffe's compute_image_mean, as large as the "
         "network's "
         "input. Caffe, which scales nothing, is `data.stddev: 0.00392156862745098`."},
        {.name = "data.stddev",
         .field = [](Experiment& e) -> Field { return &e.data.stddev; },
         .doc = "Standard deviation of each colour channel; divided by. One number stands for all channels.",
         .range = kPositive},
        {.name = "data.workers",
         .field = [](Experiment& e) -> Field { return &e.data.workers; },
         .doc =
             "Threads of a rank that read, decode and augment; `auto`: begins with half of the compute threads, 1 to 8, and takes "
             "one more whenever a step had to wait for data, up to twice as many.",
         .range = {.min = 1, .max = 1024},
         .keyword = Keyword{"auto", 0}},
        {.name = "data.batches_ahead",
         .field = [](Experiment& e) -> Field { return &e.data.batches_ahead; },
         .doc = "Batches that are made ahead of their use.",
         .range = {.min = 1, .max = 1024}},
        {.name = "data.timeout",
         .field = [](Experiment& e) -> Field { return &e.data.timeout_ms; },
         .doc =
             "How long a step waits without a single image finished before the storage counts as dead. Other ranks wait with it.",
         .unit = ValueUnit::milliseconds,
         .range = {.min = 100, .max = 86'400'000.0}},
        {"data.shuffle", [](Experiment& e) -> Field { return &e.data.shuffle; },
         "A new order of all images each epoch; false: the order of the files."},
        {.name = "data.remainder",
         .field = [](Experiment& e) -> Field { return &e.data.remainder; },
         .doc = "Images that do not fill a last global batch: `keep` makes a smaller step of them, `drop` leaves them out of the "
                "epoch.",
         .choices = {"keep", "drop"}},
        {.name = "data.on_bad_image",
         .field = [](Experiment& e) -> Field { return &e.data.on_bad_image; },
         .doc =
             "An image that cannot be decoded: `stop` (or `error`) ends the run and names it. `substitute` (or `skip`) goes on: in "
             "training the next good one takes its place, so that steps keep their size; validation leaves it out; all are counted "
             "and listed in bad_images.txt of the run.",
         .choices = {"error", "stop", "skip", "substitute"}},
        {.name = "data.decode",
         .field = [](Experiment& e) -> Field { return &e.data.decode; },
         .doc =
             "JPEG files under a leading random_resized_crop. `exact`: what the crop needs, with the same pixels as `full`, which "
             "decodes all of the file and so finds damage wherever it is. `fast`: also a half, a quarter or an eighth of the size "
             "where the crop is that much larger than its target; other pixels.",
         .choices = {"exact", "fast", "full"}},
        {"data.apply_exif_orientation", [](Experiment& e) -> Field { return &e.data.apply_exif_orientation; },
         "Turn JPEG pictures as their camera noted; false: pixels as stored, as torchvision's loader."},
        {.name = "data.mixup",
         .field = [](Experiment& e) -> Field { return &e.data.mixup; },
         .doc = "MixUp in training: both parameters of the beta distribution of the shares, such as 0.2; 0: off. Images are mixed "
                "with "
                "others of the same virtual worker, so the number of ranks changes nothing.",
         .range = {.min = 0.0, .max = 1e3}},
        {.name = "data.cutmix",
         .field = [](Experiment& e) -> Field { return &e.data.cutmix; },
         .doc = "CutMix in training, likewise, such as 1; with data.mixup each of them has half of the virtual workers.",
         .range = {.min = 0.0, .max = 1e3}},
    };
}

std::vector<SchemaRow> batch_rows() {
    return {
        {.name = "batch.global",
         .field = [](Experiment& e) -> Field { return &e.batch.global; },
         .doc = "Images per step over all ranks: the primary number, from which rate and warmup follow. A multiple of "
                "batch.per_replica.",
         .range = {.min = 1, .max = 1 << 24}},
        {.name = "batch.per_replica",
         .field = [](Experiment& e) -> Field { return &e.batch.per_replica; },
         .doc = "Images of a virtual worker, the unit of batch-norm statistics. The global batch is cut into virtual workers, "
                "which are "
                "dealt to the ranks; a rank with several of them accumulates their gradients.",
         .range = {.min = 1, .max = 1 << 16}},
        {.name = "elastic.batch",
         .field = [](Experiment& e) -> Field { return &e.elastic.batch; },
         .doc = "When a run goes on with another number of ranks: `keep`: global batch, rate and its schedule stay. `scale`: the "
                "global batch grows and shrinks with the ranks, so that each has as much work as before, and the rate follows by "
                "lr.scaling; batch.global is that of the number of ranks the run began with. train.duration, lr.warmup and lr.at "
                "must then be in epochs.",
         .choices = {"keep", "scale"}},
    };
}

std::vector<SchemaRow> optim_rows() {
    return {
        {.name = "optim.name",
         .field = [](Experiment& e) -> Field { return &e.optim.name; },
         .doc = "The optimizer.",
         .choices = {"sgd"}},
        {.name = "optim.momentum",
         .field = [](Experiment& e) -> Field { return &e.optim.momentum; },
         .doc = "Share of the last update that is kept.",
         .range = kBelowOne},
        {"optim.nesterov", [](Experiment& e) -> Field { return &e.optim.nesterov; }, "Nesterov's form of momentum."},
        {"optim.folded_momentum", [](Experiment& e) -> Field { return &e.optim.folded_momentum; },
         "Fold the rate into the momentum buffer, with correction whenever the rate changes; gives the same weights up to "
         "rounding."},
        {.name = "optim.weight_decay",
         .field = [](Experiment& e) -> Field { return &e.optim.weight_decay; },
         .doc = "Decay of convolution and fully connected weights.",
         .range = kUnitInterval},
        {"optim.decay_bn", [](Experiment& e) -> Field { return &e.optim.decay_bn; }, "Decay also scale and shift of batch norms."},
        {"optim.decay_bias", [](Experiment& e) -> Field { return &e.optim.decay_bias; }, "Decay also biases."},
        {.name = "optim.sharded",
         .field = [](Experiment& e) -> Field { return &e.optim.sharded; },
         .doc = "`node`: the ranks of a node share out the update: each keeps the optimizer state of its slice alone, and the "
                "parameters lie once per node. The same bits and the same checkpoints as `off`; needs comm.backend auto or native.",
         .choices = {"off", "node"}},
    };
}

std::vector<SchemaRow> lr_rows() {
    return {
        {.name = "lr.base",
         .field = [](Experiment& e) -> Field { return &e.lr.base; },
         .doc = "Learning rate for a global batch of lr.base_batch.",
         .range = {.min = 0.0, .max = 1e4, .above_min = true}},
        {.name = "lr.base_batch",
         .field = [](Experiment& e) -> Field { return &e.lr.base_batch; },
         .doc = "The global batch that lr.base is meant for.",
         .range = {.min = 1, .max = 1 << 24}},
        {.name = "lr.scaling",
         .field = [](Experiment& e) -> Field { return &e.lr.scaling; },
         .doc = "How the peak rate follows the batch: `linear`: base * global / base_batch, `sqrt`: with the root of the quotient, "
                "`none`.",
         .choices = {"none", "sqrt", "linear"}},
        {.name = "lr.warmup",
         .field = [](Experiment& e) -> Field { return &e.lr.warmup; },
         .doc = "Length of the linear rise to the peak, one step per iteration; shorter than train.duration.",
         .range = kDuration},
        {.name = "lr.warmup_from",
         .field = [](Experiment& e) -> Field { return &e.lr.warmup_from; },
         .doc = "Rate where the warmup begins; `base`: lr.base. Capped at the peak.",
         .range = {.min = 0.0, .max = 1e4},
         .keyword = Keyword{"base", -1.0}},
        {.name = "lr.schedule",
         .field = [](Experiment& e) -> Field { return &e.lr.schedule; },
         .doc = "Shape of the rate after warmup. `step` and `multistep` multiply by lr.factor at each time of lr.at.",
         .choices = {"constant", "step", "multistep", "cosine", "polynomial"}},
        {.name = "lr.at",
         .field = [](Experiment& e) -> Field { return &e.lr.at; },
         .doc = "Times of the drops of `step` and `multistep`, rising.",
         .range = kPositiveDuration},
        {.name = "lr.factor",
         .field = [](Experiment& e) -> Field { return &e.lr.factor; },
         .doc = "What `step` and `multistep` multiply by.",
         .range = {.min = 0.0, .max = 1.0, .above_min = true}},
        {.name = "lr.power",
         .field = [](Experiment& e) -> Field { return &e.lr.power; },
         .doc = "Exponent of `polynomial`.",
         .range = {.min = 0.0, .max = 100.0, .above_min = true}},
        {.name = "lr.final_rate",
         .field = [](Experiment& e) -> Field { return &e.lr.final_rate; },
         .doc = "Where `cosine` and `polynomial` end.",
         .range = {.min = 0.0, .max = 1e4}},
    };
}

std::vector<SchemaRow> loss_and_bn_rows() {
    return {
        {.name = "loss.label_smoothing",
         .field = [](Experiment& e) -> Field { return &e.loss.label_smoothing; },
         .doc = "Share of the target that is spread evenly over all classes.",
         .range = kBelowOne},
        {.name = "batchnorm.keep",
         .field = [](Experiment& e) -> Field { return &e.batchnorm.keep; },
         .doc =
             "running = keep * running + (1 - keep) * new. PyTorch's \"momentum\" is 1 - keep. `auto`: the network's own, mostly "
             "0.9.",
         .range = kBelowOne,
         .keyword = Keyword{"auto", -1.0}},
        {.name = "batchnorm.epsilon",
         .field = [](Experiment& e) -> Field { return &e.batchnorm.epsilon; },
         .doc = "Added to the variance. `auto`: the network's own, mostly 1e-5.",
         .range = {.min = 0.0, .max = 1.0, .above_min = true},
         .keyword = Keyword{"auto", -1.0}},
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

std::vector<SchemaRow> compute_rows() {
    return {
        {.name = "compute.fusion",
         .field = [](Experiment& e) -> Field { return &e.compute.fusion; },
         .doc = "What is done in one pass over the data. `off`: every operation makes its own. `bn_relu`: a ReLU is applied by the "
                "operation in front of it. `all`: also batch norm, the addition of the shortcut and its ReLU together, batch norm "
                "and a "
                "sigmoid, and in evaluation a convolution with all that follows it. Results differ by rounding only.",
         .choices = {"off", "bn_relu", "all"}},
        {.name = "compute.autotune",
         .field = [](Experiment& e) -> Field { return &e.compute.autotune; },
         .doc = "What decides by which code a convolution is computed in fp32, the library's or our own: Winograd's for 3x3 and "
                "5x5 ones "
                "of stride 1, a plain one for 1x1. `off`: always the library's. `heuristic`: a fixed rule by shape, the same in "
                "every run. `measure`: rank 0 times both before "
                "the first step and keeps the answer in compute.cache; two runs may then differ by rounding.",
         .choices = {"off", "heuristic", "measure"}},
        {"compute.exact_convolution", [](Experiment& e) -> Field { return &e.compute.exact_convolution; },
         "true: no Winograd, whatever compute.autotune says: fp32 results stay within 1e-4 of other programs'."},
        {.name = "compute.recompute",
         .field = [](Experiment& e) -> Field { return &e.compute.recompute; },
         .doc = "What training computes again in the backward pass instead of keeping it from the forward pass. `norms`: results "
                "of batch "
                "norms, with the addition and the ReLU behind them, where only convolutions read them: the same results to the "
                "last bit "
                "in less memory, for ResNet-50 with 32 images 2.1 GiB in place of 2.8. Needs compute.fusion=all.",
         .choices = {"off", "norms"}},
        {"compute.cache", [](Experiment& e) -> Field { return &e.compute.cache; },
         "Folder of what compute.autotune=measure has measured; empty: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep."},
    };
}

std::vector<SchemaRow> comm_rows() {
    return {
        {.name = "comm.backend",
         .field = [](Experiment& e) -> Field { return &e.comm.backend; },
         .doc = "`native`: shared memory inside a node, TCP between nodes; `tcp`: TCP between all ranks; `mpi`: messages of the "
                "MPI that started the program; `gloo`: TCP by the Gloo library; `auto`: native.",
         .choices = {"auto", "native", "tcp", "mpi", "gloo"}},
        {.name = "comm.mpi",
         .field = [](Experiment& e) -> Field { return &e.comm.mpi; },
         .doc = "With comm.backend=mpi, which MPI; `auto`: the one that started the program.",
         .choices = {"auto", "openmpi", "mpich"}},
        {"comm.shared_memory", [](Experiment& e) -> Field { return &e.comm.shared_memory; },
         "false: native talks TCP inside a node too."},
        {.name = "comm.algorithm",
         .field = [](Experiment& e) -> Field { return &e.comm.algorithm; },
         .doc = "The schedule of an allreduce over TCP or MPI; `auto`: the fastest whose sums follow one tree over the ranks, by "
                "size and "
                "links (comm.probe); `hierarchical`: first inside the nodes, then between them. The others run over all ranks, "
                "whatever "
                "their nodes; ring and double_tree of more than two ranks add up in an order of their own.",
         .choices = {"auto", "exchange", "halving_doubling", "ring", "tree", "double_tree", "hierarchical"}},
        {.name = "comm.algorithm_radix",
         .field = [](Experiment& e) -> Field { return &e.comm.algorithm_radix; },
         .doc = "Of exchange and halving_doubling: how many ranks meet in a round; as many as there are ranks: one round.",
         .range = {.min = 2, .max = 1 << 16},
         .keyword = Keyword{"auto", 0}},
        {.name = "comm.chunks",
         .field = [](Experiment& e) -> Field { return &e.comm.chunks; },
         .doc = "Of ring, tree and double_tree: pieces that follow each other through the schedule.",
         .range = {.min = 1, .max = 1024},
         .keyword = Keyword{"auto", 0}},
        {.name = "comm.hierarchical_from",
         .field = [](Experiment& e) -> Field { return &e.comm.hierarchical_from_bytes; },
         .doc = "Over several nodes: gradients of at least this size are summed inside the nodes first. `auto`: by predicted time "
                "where both ways give the same bits (equal nodes of 1, 2, 4, 8, ... ranks), else all.",
         .unit = ValueUnit::bytes,
         .range = {.min = 0, .max = 1e12},
         .keyword = Keyword{"auto", -1}},
        {.name = "comm.probe",
         .field = [](Experiment& e) -> Field { return &e.comm.probe; },
         .doc =
             "By what `auto` chooses schedules over TCP and MPI: `auto`: the table that `lockstep tune` has kept for these "
             "machines "
             "and settings, else links measured at the start, in under a second; `never`: a fixed table. The choice changes times "
             "and no bit; with comm.wire other than fp32 it would, so the fixed table is taken there.",
         .choices = {"auto", "never"}},
        {"comm.tuning", [](Experiment& e) -> Field { return &e.comm.tuning; },
         "Folder of the tables that `lockstep tune` keeps; empty: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep. Rank 0 reads it."},
        {.name = "comm.wire",
         .field = [](Experiment& e) -> Field { return &e.comm.wire; },
         .doc =
             "Type in which gradients travel over TCP; sums are made in fp32. `bf16` and `fp16` halve the bytes and round every "
             "partial sum that is sent; all ranks still end with the same bits. Batch-norm statistics, counts and losses travel in "
             "fp32.",
         .choices = {"fp32", "bf16", "fp16"}},
        {.name = "comm.bucket",
         .field = [](Experiment& e) -> Field { return &e.comm.bucket_bytes; },
         .doc = "Gradients that travel together; a larger tensor travels alone.",
         .unit = ValueUnit::bytes,
         .range = {.min = 4, .max = 1e12}},
        {.name = "comm.last_bucket",
         .field = [](Experiment& e) -> Field { return &e.comm.last_bucket_bytes; },
         .doc =
             "Size of the last bucket of a step, the one whose transfer nothing can hide; `auto`: an eighth of the gradients, at "
             "most 1 MiB.",
         .unit = ValueUnit::bytes,
         .range = {.min = 4, .max = 1e12},
         .keyword = Keyword{"auto", 0}},
        {"comm.overlap", [](Experiment& e) -> Field { return &e.comm.overlap; },
         "Send buckets while back-propagation is still running; false: all at its end."},
        {.name = "comm.timeout",
         .field = [](Experiment& e) -> Field { return &e.comm.timeout_ms; },
         .doc = "Lack of progress of a peer after which it counts as lost. Over gloo a peer that computes shows no progress, so "
                "allow for "
                "the longest micro-batch there.",
         .unit = ValueUnit::milliseconds,
         .range = {.min = 100, .max = 86'400'000.0}},
        {.name = "comm.start_timeout",
         .field = [](Experiment& e) -> Field { return &e.comm.start_timeout_ms; },
         .doc = "How long ranks wait for each other at the start.",
         .unit = ValueUnit::milliseconds,
         .range = {.min = 100, .max = 86'400'000.0}},
        {"comm.interface", [](Experiment& e) -> Field { return &e.comm.interface; },
         "Network interface for TCP, such as eth0; empty: the one that reaches the store."},
        {"comm.congestion_control", [](Experiment& e) -> Field { return &e.comm.congestion_control; },
         "Congestion control of TCP connections between ranks, such as cubic or bbr; empty: the system's."},
        {.name = "comm.test_delay_per_kib",
         .field = [](Experiment& e) -> Field { return &e.comm.test_delay_ns_per_kib; },
         .doc = "For tests: an artificial delay of the transfer per KiB.",
         .unit = ValueUnit::nanoseconds,
         .range = {.min = 0, .max = 1e9}},
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
    std::vector<SchemaRow> rows;
    const auto append = [&rows](std::vector<SchemaRow> more) { std::move(more.begin(), more.end(), std::back_inserter(rows)); };
    append(run_rows());
    append(model_rows());
    append(set_rows("train", &Experiment::Data::train));
    append(set_rows("val", &Experiment::Data::val));
    append(data_rows());
    append(batch_rows());
    append(optim_rows());
    append(lr_rows());
    append(loss_and_bn_rows());
    append(train_rows());
    append(compute_rows());
    append(comm_rows());
    append(output_rows());
    return rows;
}

}  // namespace

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
