// What must hold between keys.
#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "configs/reader.h"
#include "configs/scalars.h"
#include "core/error.h"

namespace lockstep {

namespace {

class ContractChecker {
public:
    ContractChecker(Experiment& experiment, const std::map<std::string, Place>& origins, const std::string& file)
        : experiment_(experiment), origins_(origins), file_(file) {}

    void check_all() {
        check_run();
        check_data();
        check_batch();
        check_any_world();
        check_elastic();
        check_sharded();
        check_warmup();
        check_drops();
        check_pipeline_size("data.train.pipeline", experiment_.data.train.pipeline);
        check_pipeline_size("data.val.pipeline", experiment_.data.val.pipeline);
        check_evaluation();
    }

private:
    std::string place(const std::string& name) const {
        const auto origin = origins_.find(name);
        return origin == origins_.end() ? file_ : origin->second.text();
    }
    bool is_set(const std::string& name) const { return origins_.contains(name); }
    [[noreturn]] void fail(const std::string& name, const std::string& text) const {
        throw ConfigError(fmt::format("{}: {}: {}", place(name), name, text));
    }
    void warn(const std::string& name, const std::string& text) {
        experiment_.warnings.push_back(fmt::format("{}: {}: {}", place(name), name, text));
    }

    void check_run() const {
        if (experiment_.run.dir.empty())
            fail("run.dir", "found nothing; allowed: the path of a folder, which is made when missing");
        const int64_t channels = experiment_.model.channels;
        if (channels != 1 && channels != 3) fail("model.channels", fmt::format("found {}; allowed: 3, or 1 for grey", channels));
    }

    void check_data() const {
        const DataSetConfig& train = experiment_.data.train;
        if (!train.is_given()) {
            fail("data.train.path", "found nothing; allowed: a folder, file or shard pattern, or data.train.source: synthetic");
        }
        const int64_t classes = experiment_.model.num_classes;
        if (train.source == "synthetic_jpeg" && classes > 0 && classes < 10) {
            fail("model.num_classes",
                 fmt::format("found {}, but synthetic_jpeg draws ten classes; allowed: 10 or more, or auto", classes));
        }
    }

    // Sums inside the compute library depend on its threads, and `auto` would give each world its own number; so do sums by what a
    // clock has chosen.
    void check_any_world() const {
        if (!experiment_.run.any_world()) return;
        const int64_t workers = experiment_.batch.global / experiment_.batch.per_replica;
        if (!std::has_single_bit(static_cast<uint64_t>(workers))) {
            fail("run.reproducible",
                 fmt::format("any_world needs a power of two of virtual workers; batch.global {} with batch.per_replica {} is {}",
                             experiment_.batch.global, experiment_.batch.per_replica, workers));
        }
        if (experiment_.train.threads == 0) {
            fail("run.reproducible",
                 "any_world needs the same number of compute threads in every world; set train.threads, say to 1");
        }
        if (experiment_.compute.autotune == "measure") {
            fail("run.reproducible",
                 "any_world needs the same arithmetic in every run, and compute.autotune measure lets the clock choose it; set "
                 "compute.autotune=heuristic");
        }
        if (experiment_.comm.wire != "fp32") {
            fail("run.reproducible",
                 fmt::format("any_world needs exact sums, and comm.wire {} rounds them where the number of ranks says; set "
                             "comm.wire=fp32",
                             experiment_.comm.wire));
        }
    }

    // With another batch a step is another share of an epoch: what is told in steps would be another length of training.
    void check_elastic() const {
        if (!experiment_.elastic.scales()) return;
        if (experiment_.run.any_world()) {
            fail("elastic.batch",
                 "scale changes the result with the number of ranks, and run.reproducible any_world promises that "
                 "it does not; set elastic.batch=keep or run.reproducible=same_world");
        }
        const auto require_epochs = [this](const std::string& name, const Duration& duration) {
            if (duration.unit == Duration::Unit::epochs || duration.amount == 0) return;
            fail(name,
                 fmt::format("found {}; allowed with elastic.batch scale: epochs, such as 5ep, since a step is not always the "
                             "same number of images; or set elastic.batch=keep",
                             format_duration(duration)));
        };
        require_epochs("train.duration", experiment_.train.duration);
        require_epochs("lr.warmup", experiment_.lr.warmup);
        const bool drops = experiment_.lr.schedule == "step" || experiment_.lr.schedule == "multistep";
        for (const Duration& at : experiment_.lr.at) {
            if (drops) require_epochs("lr.at", at);
        }
    }

    void check_sharded() const {
        const auto& comm = experiment_.comm;
        const bool shares_memory = (comm.backend == "auto" || comm.backend == "native") && comm.shared_memory;
        if (!experiment_.optim.shared_out() || shares_memory) return;
        fail("optim.sharded",
             fmt::format(
                 "node needs memory that the ranks of a node share, which comm.backend {} with comm.shared_memory {} has not; "
                 "set comm.backend=native and comm.shared_memory=true, or optim.sharded=off",
                 comm.backend, comm.shared_memory));
    }

    void check_batch() const {
        const int64_t global = experiment_.batch.global, per_replica = experiment_.batch.per_replica;
        if (global % per_replica == 0) return;
        const int64_t below = global / per_replica * per_replica, above = below + per_replica;
        int64_t divisor = std::min(per_replica, global);
        while (global % divisor != 0) --divisor;
        fail("batch.global",
             fmt::format("found {}, not a multiple of batch.per_replica {}; the nearest that work: batch.global {}{}, or "
                         "batch.per_replica {}",
                         global, per_replica, below > 0 ? fmt::format("{} or ", below) : "", above, divisor));
    }

    void check_warmup() {
        const auto& lr = experiment_.lr;
        const Duration& run = experiment_.train.duration;
        if (lr.warmup.unit == run.unit && lr.warmup.amount > 0 && lr.warmup.amount >= run.amount) {
            fail("lr.warmup", fmt::format("found {}; allowed: shorter than train.duration {}", format_duration(lr.warmup),
                                          format_duration(run)));
        }
        const double peak = peak_rate();
        if (lr.warmup.amount > 0 && lr.warmup_from > peak) {
            warn("lr.warmup_from", fmt::format("{} is above the peak {:.6g}; the warmup starts at the peak", lr.warmup_from, peak));
        }
        if ((lr.schedule == "cosine" || lr.schedule == "polynomial") && lr.final_rate > peak) {
            fail("lr.final_rate", fmt::format("found {}; allowed: at most the peak {:.6g}", lr.final_rate, peak));
        }
    }

    double peak_rate() const {
        const double quotient = static_cast<double>(experiment_.batch.global) / static_cast<double>(experiment_.lr.base_batch);
        if (experiment_.lr.scaling == "linear") return experiment_.lr.base * quotient;
        if (experiment_.lr.scaling == "sqrt") return experiment_.lr.base * std::sqrt(quotient);
        return experiment_.lr.base;
    }

    void check_drops() {
        const auto& lr = experiment_.lr;
        const bool drops = lr.schedule == "step" || lr.schedule == "multistep";
        if (!drops) {
            if (is_set("lr.at") && !lr.at.empty()) warn("lr.at", fmt::format("not used by lr.schedule {}", lr.schedule));
            return;
        }
        if (lr.at.empty())
            fail("lr.at", fmt::format("found an empty list; lr.schedule {} needs times such as [30ep, 60ep]", lr.schedule));
        for (size_t index = 1; index < lr.at.size(); ++index) {
            if (lr.at[index].unit == lr.at[index - 1].unit && lr.at[index].amount <= lr.at[index - 1].amount) {
                fail("lr.at", fmt::format("found {} after {}; allowed: rising times", format_duration(lr.at[index]),
                                          format_duration(lr.at[index - 1])));
            }
        }
        const Duration& run = experiment_.train.duration;
        if (lr.at.front().unit == run.unit && lr.at.front().amount >= run.amount) {
            warn("lr.at", fmt::format("the first drop, {}, lies at or after the end of the run, {}: the rate stays constant",
                                      format_duration(lr.at.front()), format_duration(run)));
        }
    }

    void check_pipeline_size(const std::string& name, const std::vector<TransformConfig>& pipeline) const {
        const auto last =
            std::find_if(pipeline.rbegin(), pipeline.rend(), [](const TransformConfig& t) { return !t.size.empty(); });
        if (last == pipeline.rend()) return;
        // A resize of the shorter side gives the right size for square pictures, if it gives it at all.
        const int64_t wanted = experiment_.model.image_size, height = last->size.front(), width = last->size.back();
        if (height == wanted && width == wanted) return;
        fail(name, fmt::format("{} gives images of {}x{}, but model.image_size is {}; make the two equal", last->name, height,
                               width, wanted));
    }

    void check_evaluation() {
        if (experiment_.data.val.is_given()) return;
        if (is_set("train.eval_every") && experiment_.train.eval_every)
            warn("train.eval_every", "not used: data.val.path is empty");
    }

    Experiment& experiment_;
    const std::map<std::string, Place>& origins_;
    const std::string& file_;  // named when the key has its default
};

}  // namespace

void check_contract(Experiment& experiment, const std::map<std::string, Place>& origins, const std::string& file) {
    ContractChecker(experiment, origins, file).check_all();
}

void check_world(const Experiment& experiment, int world_size) {
    const int64_t global = experiment.batch.global, per_replica = experiment.batch.per_replica;
    const int64_t workers = global / per_replica;
    if (experiment.run.any_world() && !std::has_single_bit(static_cast<unsigned>(world_size))) {
        throw ConfigError(fmt::format(
            "run.reproducible any_world adds gradients along a binary tree over ranks, which {} ranks do not fill; start 1, "
            "2, 4, 8, ... ranks or set run.reproducible=same_world",
            world_size));
    }
    if (workers >= world_size) return;
    const int64_t fitting_replica = global / world_size;
    int64_t divisor = std::max<int64_t>(fitting_replica, 1);
    while (divisor > 1 && global % divisor != 0) --divisor;
    throw ConfigError(fmt::format(
        "batch.global {} with batch.per_replica {} is {} virtual worker{}, too few for {} ranks; the nearest that work: "
        "batch.global {}{}, or "
        "at most {} rank{}",
        global, per_replica, workers, workers == 1 ? "" : "s", world_size, per_replica * world_size,
        fitting_replica >= 1 ? fmt::format(", or batch.per_replica {}", divisor) : "", workers, workers == 1 ? "" : "s"));
}

void check_schedule(const Experiment& experiment, int64_t steps_per_epoch) {
    const int64_t total = experiment.train.duration.steps(steps_per_epoch);
    const int64_t warmup = experiment.lr.warmup.steps(steps_per_epoch);
    if (total < 1) {
        throw ConfigError(fmt::format("train.duration {} is no whole step at {} steps per epoch; allowed: at least 1it",
                                      format_duration(experiment.train.duration), steps_per_epoch));
    }
    if (warmup == 0 || warmup < total) return;
    throw ConfigError(fmt::format(
        "lr.warmup {} is {} steps, no shorter than the run of {} steps ({} per epoch); make it shorter than train.duration {}",
        format_duration(experiment.lr.warmup), warmup, total, steps_per_epoch, format_duration(experiment.train.duration)));
}

}  // namespace lockstep
