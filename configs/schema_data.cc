// The rows of the data section.
#include "configs/schema_rows.h"

namespace lockstep {

namespace {

const Range kPositive{.min = 0.0, .above_min = true};

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

}  // namespace

std::vector<SchemaRow> schema_data_rows() {
    return joined({set_rows("train", &Experiment::Data::train), set_rows("val", &Experiment::Data::val), data_rows()});
}

}  // namespace lockstep
