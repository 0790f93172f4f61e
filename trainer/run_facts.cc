#include "trainer/run_facts.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "trainer/recipe.h"

namespace lockstep {

namespace {

std::string rate_line(const LearningRate& rate) {
    const LearningRateOptions& options = rate.options();
    const std::string scaled = options.scaling == LearningRateOptions::Scaling::none
                                   ? "for any batch"
                                   : fmt::format("for {} images, scaled to {}", options.base_batch, options.batch_global);
    const std::string warmup = options.warmup_steps == 0
                                   ? "no warmup"
                                   : fmt::format("warmup of {} from {:.6g}", counted(options.warmup_steps, "step"), rate.start());
    return fmt::format("peak {:.6g} = base {:.6g} {}; {}", rate.peak(), options.base, scaled, warmup);
}

std::string images_line(const Sampler& sampler) {
    const int64_t used = sampler.samples_used_per_epoch();
    return fmt::format("{} images used, {} dropped, {} steps", used, sampler.options().sample_count - used,
                       sampler.steps_per_epoch());
}

std::string state_line(const RunParts& run) {
    const ParameterArena& arena = run.replica.arena();
    const auto state_of = [&](int64_t floats) {
        return data_size(floats * arena.state_buffer_count() * static_cast<int64_t>(sizeof(float)));
    };
    const std::string whole = state_of(arena.total_count());
    if (run.sharding == nullptr) return whole + " per rank";
    return fmt::format("{} per rank, shared out over {} ranks of this node (whole: {}); parameters once per node",
                       state_of(run.sharding->owned_count()), run.world.local_size, whole);
}

std::string world_line(const RunParts& run, const RunFacts& facts) {
    if (facts.world_size == 1) return "1 rank, nothing to communicate";
    return fmt::format("{} on {}, started by {}, communication {}", counted(facts.world_size, "rank"),
                       counted(run.world.node_count, "node"), run.world.launcher, facts.communicator);
}

// Of an ordinary step; a set smaller than the global batch makes all steps alike and smaller.
std::string batch_line(const RunParts& run, int world_size) {
    const Sampler& sampler = run.course.sampler;
    const int64_t used = std::min(run.experiment.batch.global, sampler.samples_used_per_epoch());
    const int64_t workers = sampler.workers_in_step(0), fewest = workers / world_size;
    const int64_t most = (workers + world_size - 1) / world_size;
    const std::string shares = fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most);
    return fmt::format("{} a step{}, in {} of {}; {} per rank", counted(used, "image"),
                       used < run.experiment.batch.global ? " (the set has no more)" : "", counted(workers, "virtual worker"),
                       run.experiment.batch.per_replica, shares);
}

}  // namespace

RunFacts describe_run(const RunParts& run, const std::string& command) {
    RunFacts facts{.name = run.experiment.run.name,
                   .model = fmt::format("{} ({} classes, {}x{})", run.experiment.model.arch, run.setup.num_classes,
                                        run.experiment.model.image_size, run.experiment.model.image_size),
                   .data = run.setup.train->description(),
                   .backend = run.replica.backend().description(),
                   .communicator = std::string(run.communicator.name()),
                   .command = command,
                   .config_hash = run.experiment.hash,
                   .program_version = program_version(),
                   .host = host_name(),
                   .started = wall_clock_text(),
                   .world_size = run.world.size,
                   .rank = run.world.rank,
                   .threads = run.setup.threads.compute_threads,
                   .batch_global = run.experiment.batch.global,
                   .per_replica = run.experiment.batch.per_replica,
                   .seed = run.experiment.run.seed,
                   .parameter_count = run.replica.arena().trainable_count()};
    for (const Bucket& bucket : run.buckets) {
        facts.buckets.push_back({.layers = bucket_layers(run.replica.arena(), bucket), .bytes = bucket.byte_count()});
    }
    facts.extra = {{"images per epoch", images_line(run.course.sampler)},
                   {"rate", rate_line(run.course.rate)},
                   {"launcher", run.world.launcher},
                   {"optimizer state", state_line(run)}};
    return facts;
}

void print_start(const RunParts& run, const RunFacts& facts, const Manifest& manifest) {
    const Sampler& sampler = run.course.sampler;
    log::info("{}: {}, {} parameters, {}", facts.name, facts.model, facts.parameter_count, facts.backend);
    log::info("world: {}", world_line(run, facts));
    if (const Tuning* tuning = run.communicator.tuning()) {
        log::info("schedules: from {}; comm_tuning.txt holds the table{}{}", tuning->origin, tuning->links ? "; " : "",
                  tuning->describe_links());
    }
    log::info("batch: {}", batch_line(run, facts.world_size));
    log::info("rate: {}", rate_line(run.course.rate));
    log::info("threads: {} and {} per rank; {} of {} allowed", counted(facts.threads, "compute thread"),
              counted(loader_threads(run.experiment, facts.threads), "loader thread"), run.setup.threads.allowed_cores,
              counted(run.setup.threads.node_cores, "core"));
    log::info("data: {}; per epoch {}", facts.data, images_line(sampler));
    log::info("validation: {}", run.setup.val ? run.setup.val->description() : std::string("none"));
    log::info("gradients: {}, {}, overlap {}", counted(std::ssize(facts.buckets), "bucket"),
              data_size(run.replica.arena().total_count() * static_cast<int64_t>(sizeof(float))),
              run.experiment.comm.overlap ? "on" : "off");
    log::info("optimizer state: {}", state_line(run));
    if (manifest.step >= manifest.total_steps) log::info("all {} steps are made already; nothing is left to train", manifest.step);
    if (!run.setup.threads.warning.empty()) log::warn("{}", run.setup.threads.warning);
}

}  // namespace lockstep
