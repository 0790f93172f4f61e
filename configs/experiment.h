// An experiment, validated: what the rest of the program reads. Filled by configs/reader from YAML and overrides; every field has a
// row in the schema table (configs/schema) with its unit, range, default and text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// "5ep", "100it", or a fraction of an epoch "0.5ep".
struct Duration {
    enum class Unit : uint8_t { epochs, iterations } unit = Unit::epochs;
    double amount = 0.0;
    int64_t steps(int64_t steps_per_epoch) const;  // rounded to the nearest step
    bool operator==(const Duration&) const = default;
};

struct TransformConfig {        // one entry of data.*.pipeline
    std::string name;           // one of transform_rows() in configs/transforms.h
    std::vector<int64_t> size;  // {side} or {height, width}
    int64_t pad = 0;
    std::vector<double> scale, ratio;  // two each
    double probability = 0.5;
    std::map<std::string, double> numbers;  // the transform's other options, all of them
    std::map<std::string, std::string> words;
};

struct DataSetConfig {
    std::string source = "auto";  // as in data_loader/source.h
    std::string path;
    std::string labels;
    int64_t first_label = 0;               // what integer labels count from
    std::string cifar100_labels = "fine";  // fine | coarse
    std::string raw_colour = "bgr";        // of an lmdb: bgr | rgb
    std::vector<TransformConfig> pipeline;
    int64_t synthetic_size = 1024;

    bool is_made_up() const { return source == "synthetic" || source == "synthetic_jpeg"; }  // nothing is read
    bool is_given() const { return is_made_up() || !path.empty(); }
};

struct Experiment {
    struct Run {
        std::string name = "run";
        std::string dir = "runs/run";
        uint64_t seed = 42;
        std::string reproducible = "same_world";  // off | same_world | any_world
        bool any_world() const { return reproducible == "any_world"; }
        std::string resume = "auto";  // auto (continue when dir holds a checkpoint) | never | PATH of a checkpoint
        bool audit = false;           // log the samples of each step
    } run;
    struct Model {
        std::string arch = "resnet50", variant = "auto", weights;  // weights: a safetensors file to start from
        bool partial_weights = false;
        int64_t num_classes = 0;  // 0: from the data
        int64_t image_size = 224, channels = 3;
        bool zero_init_last_bn = true;
        double dropout = 0.0;
    } model;
    struct Data {
        DataSetConfig train, val;  // val.path empty: no validation
        std::array<double, 3> mean{0.485, 0.456, 0.406}, stddev{0.229, 0.224, 0.225};
        std::string mean_file;  // empty: `mean`
        int64_t workers = 0;    // 0: auto
        int64_t batches_ahead = 4;
        int64_t timeout_ms = 60'000;  // without a finished image
        bool shuffle = true;
        std::string remainder = "keep";      // keep | drop
        std::string on_bad_image = "error";  // error or stop | skip or substitute
        std::string decode = "exact";        // exact | fast | full
        bool apply_exif_orientation = false;
        double mixup = 0.0, cutmix = 0.0;  // 0: off
    } data;
    struct Batch {
        int64_t global = 256;
        int64_t per_replica = 32;  // size of a virtual worker (micro-batch)
    } batch;
    struct Elastic {
        std::string batch = "keep";  // keep | scale
        bool scales() const { return batch == "scale"; }
    } elastic;
    struct Optim {
        std::string name = "sgd";
        double momentum = 0.9;
        bool nesterov = true;
        bool folded_momentum = false;
        double weight_decay = 1e-4;
        bool decay_bn = false, decay_bias = false;
        std::string sharded = "off";  // off | node
        bool shared_out() const { return sharded == "node"; }
    } optim;
    struct Lr {
        double base = 0.1;
        int64_t base_batch = 256;
        std::string scaling = "linear";  // none | sqrt | linear
        Duration warmup{Duration::Unit::epochs, 0.0};
        double warmup_from = -1.0;      // < 0: base
        std::string schedule = "step";  // constant | step | multistep | cosine | polynomial
        std::vector<Duration> at{{Duration::Unit::epochs, 30.0}, {Duration::Unit::epochs, 60.0}, {Duration::Unit::epochs, 80.0}};
        double factor = 0.1, power = 2.0, final_rate = 0.0;
    } lr;
    struct Loss {
        double label_smoothing = 0.0;
    } loss;
    struct BatchNorm {
        double keep = -1.0, epsilon = -1.0;  // negative: the network's own
    } batchnorm;
    struct Train {
        Duration duration{Duration::Unit::epochs, 90.0};
        std::string backend = "onednn";                                              // onednn | reference
        std::string precision = "fp32";                                              // fp32 | bf16
        int64_t threads = 0;                                                         // per rank; 0: allowed cores / local ranks
        std::optional<Duration> eval_every = Duration{Duration::Unit::epochs, 1.0};  // nullopt: never
        int64_t log_every = 50;                                                      // steps between metrics lines
        bool stop_on_nan = true;
        std::optional<Duration> check_replicas = Duration{Duration::Unit::iterations, 100.0};  // nullopt: never
    } train;
    struct Compute {
        std::string fusion = "all";          // off | bn_relu | all
        std::string autotune = "heuristic";  // off | heuristic | measure
        bool exact_convolution = false;
        std::string recompute = "off";  // off | norms
        std::string cache;              // folder; empty: the user's
    } compute;
    struct Comm {
        std::string backend = "auto";  // auto | native | tcp | mpi | gloo
        std::string mpi = "auto";      // auto | openmpi | mpich
        bool shared_memory = true;
        std::string algorithm = "auto";        // auto | exchange | halving_doubling | ring | tree | double_tree | hierarchical
        int64_t algorithm_radix = 0;           // 0: auto
        int64_t chunks = 0;                    // 0: auto
        int64_t hierarchical_from_bytes = -1;  // -1: auto
        std::string probe = "auto";            // auto | never
        std::string tuning;                    // cache folder; empty: the user's
        std::string wire = "fp32";             // fp32 | bf16 | fp16
        int64_t bucket_bytes = 8 << 20;
        int64_t last_bucket_bytes = 0;  // 0: auto, an eighth of the gradients, at most 1 MiB
        bool overlap = true;
        int64_t timeout_ms = 10'000;
        int64_t start_timeout_ms = 60'000;  // how long ranks wait for each other before step 0
        std::string interface;
        std::string congestion_control;
        int64_t test_delay_ns_per_kib = 0;
    } comm;
    struct Checkpoint {
        std::optional<Duration> every = Duration{Duration::Unit::epochs, 1.0};
        int64_t keep_last = 2;
        std::string best = "val.top1";  // metric whose best checkpoint is kept; empty: none
        bool async = true;              // written while training goes on
    } checkpoint;
    struct Report {
        bool html = true, tensorboard = true;
        int64_t trace_steps = 20;
    } report;

    std::string resolved_yaml;  // every key with its value, as kept in the run folder
    std::string hash;           // of resolved_yaml without run.dir: equal on all ranks or no step is made

    std::vector<std::string> warnings;  // one line each; to be shown once by whoever starts the run
};

// Reads `path`, applies `key=value` overrides, validates everything. Throws ConfigError: "file:line:column: key: found …; allowed
// …".
Experiment read_experiment(const std::string& path, const std::vector<std::string>& overrides);

// The checks that need to know the run's surroundings. Each throws ConfigError naming the numbers and the nearest that work.
//
// Every rank needs at least one virtual worker: batch.global / batch.per_replica >= world_size. Uneven numbers of virtual workers
// per rank are allowed: gradients are summed and divided once by batch.global, so averaging stays exact.
void check_world(const Experiment& experiment, int world_size);
// The warmup must end before the run does; what read_experiment cannot see when one is in epochs and the other in iterations.
void check_schedule(const Experiment& experiment, int64_t steps_per_epoch);

}  // namespace lockstep
