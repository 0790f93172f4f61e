#include "trainer/run_training.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"
#include "launch/rendezvous.h"
#include "trainer/agreement.h"
#include "trainer/bad_images.h"
#include "trainer/common_failure.h"
#include "trainer/communication.h"
#include "trainer/convolutions.h"
#include "trainer/course.h"
#include "trainer/leader_task.h"
#include "trainer/recipe.h"
#include "trainer/resume.h"
#include "trainer/run_facts.h"
#include "trainer/sharded_update.h"
#include "trainer/stack_dump.h"
#include "trainer/training_setup.h"

namespace lockstep {

namespace {

constexpr int64_t kLockPatienceMs = 5'000;  // ranks of a killed job take moments to end

// What another number of ranks means for batch and rate.
std::string describe_change(const Course& before, const Course& now, int64_t step) {
    const int64_t then = before.sampler.options().batch_global, batch = now.sampler.options().batch_global;
    if (batch == then) return fmt::format("global batch {} kept: same samples, same rate", batch);
    const int64_t first = now.sampler.samples_in_step(now.planned(step));
    return fmt::format(
        "global batch {} -> {}, rate x{:.4g}{}", then, batch, now.rate.peak() / before.rate.peak(),
        first < batch ? fmt::format("; the first step has {} images, up to where one of {} ends", first, batch) : "");
}

// Null without optim.sharded.
NodeSharing* sharing_of(const Experiment& experiment, Communicator& communicator) {
    if (!experiment.optim.shared_out()) return nullptr;
    if (NodeSharing* const node = communicator.node_sharing()) return node;
    throw ConfigError(
        fmt::format("optim.sharded=node needs memory that the ranks of a node share, which {} has not; set comm.backend=native and "
                    "comm.shared_memory=true, or optim.sharded=off",
                    communicator.name()));
}

// The run proper, once the ranks are connected.
class Run {
public:
    Run(const TrainingJob& job, const StopSignals& signals, TrainingSetup& setup, ReplicaPlan plan, Communicator& communicator)
        : job_(job),
          signals_(signals),
          experiment_(job.experiment),
          setup_(setup),
          course_(*setup.course),
          communicator_(communicator),
          optimizer_(make_sgd(sgd_options(job.experiment), setup.threads.compute_threads)),
          replica_(std::move(plan), communicator.gradient_pool(), optimizer_->state_buffer_count()),
          tree_(make_tree()),
          node_(in_common([&] { return sharing_of(job.experiment, communicator); })),
          reducer_(communicator, replica_.arena(),
                   plan_buckets(replica_.arena(), {.bucket_bytes = job.experiment.comm.bucket_bytes,
                                                   .last_bucket_bytes = job.experiment.comm.last_bucket_bytes}),
                   job.experiment.comm.overlap, tree_ ? &*tree_ : nullptr, node_),
          sharding_(make_sharding()),
          checkpoints_(checkpoint_folder_options(job.experiment)) {}

    ExitCode run() {
        require_agreement(communicator_,
                          {{"the plan of tensors and buckets", hash_hex(plan_hash(replica_.arena(), reducer_.plan()))}});
        const Manifest manifest = in_common([&] { return find_start(); });
        if (sharding_) sharding_->take_over();
        settle_convolutions(communicator_, experiment_, Phase::training, replica_);
        compile();
        require_agreement(communicator_, {convolutions_fact(replica_)});
        const RunFacts facts = describe_run(parts(), job_.command);
        if (job_.world.is_leader()) write_run_files();
        const auto recorder = Recorder::create(
            {.run_dir = experiment_.run.dir, .start_step = manifest.step, .tensorboard = experiment_.report.tensorboard}, facts);
        print_start(parts(), facts, manifest);
        const ExitCode code = train(manifest, *recorder);
        try {
            recorder->flush();
        } catch (const DeviceError& error) {  // weights are worth more than records
            log::warn_here("{}; the report will lack the last steps", error.what());
        }
        communicator_.barrier({.what = "end of run", .step = manifest.total_steps});
        run_on_leader(communicator_, experiment_.comm.timeout_ms, "report", manifest.total_steps, [&] { report(); });
        return code;
    }

private:
    void write_run_files() const {
        write_file_atomically(fs::path(experiment_.run.dir) / "config.yaml", experiment_.resolved_yaml);
        if (communicator_.tuning() == nullptr) return;
        write_file_atomically(fs::path(experiment_.run.dir) / "comm_tuning.txt", communicator_.tuning()->to_text());
    }

    std::optional<GradientTree> make_tree() {
        if (!experiment_.run.any_world()) return std::nullopt;
        return std::make_optional<GradientTree>(replica_.arena(), course_.sampler.workers_in_full_step() / job_.world.size,
                                                setup_.threads.compute_threads);
    }

    std::optional<ShardedUpdate> make_sharding() {
        if (node_ == nullptr) return std::nullopt;
        return std::make_optional<ShardedUpdate>(*node_, job_.world, replica_.arena(), reducer_.plan());
    }

    // First values of all parameters and the step to begin with: fresh, from foreign weights, or from a checkpoint.
    Manifest find_start() {
        Manifest start{.seed = experiment_.run.seed,
                       .config_hash = experiment_.hash,
                       .result_keys = result_keys(job_.experiment, setup_.num_classes),
                       .world_size = job_.world.size,
                       .train_fingerprint = setup_.train->fingerprint(),
                       .class_names = setup_.train->class_names(),
                       .num_classes = setup_.num_classes};
        const std::string checkpoint = agree_on_checkpoint();
        if (checkpoint.empty()) {
            start_anew();
        } else {
            go_on(start, checkpoint);
        }
        check_world(experiment_, job_.world.size);
        start.steps_per_epoch = course_.sampler.steps_per_epoch();
        start.total_steps = course_.total_steps;
        start.batch_global = experiment_.batch.global;
        return start;
    }

    void go_on(Manifest& start, const std::string& checkpoint) {
        const fs::path manifest_path = fs::path(checkpoint) / "manifest.json";
        const Manifest found = parse_manifest(read_file(manifest_path), manifest_path);
        require_continuation(found, start.result_keys, start.train_fingerprint, checkpoint);
        load_checkpoint_model(checkpoint, replica_.backend(), replica_.arena());
        load_checkpoint_optimizer(checkpoint, replica_.backend(), replica_.arena());
        optimizer_->restore_scalars(found.optimizer);
        start.step = found.step;
        start.interval = found.interval;
        start.metrics = found.metrics;
        resumed_ = true;
        const Course before = change_course(found);
        log::info("continuing from {} at step {} of {}", checkpoint, found.step, course_.total_steps);
        if (found.world_size != job_.world.size) {
            log::info("world {} -> {}: {} (elastic.batch={})", found.world_size, job_.world.size,
                      describe_change(before, course_, found.step), experiment_.elastic.batch);
        }
        if (found.total_steps != before.total_steps) {
            log::warn(
                "train.duration was {} steps when the checkpoint was made and is {} now: cosine and polynomial rates follow the "
                "new length from here",
                found.total_steps, before.total_steps);
        }
    }

    // From here on with the batch of this number of ranks. Returns the course that the run would have kept.
    Course change_course(const Manifest& found) {
        const int64_t sample_count = setup_.train->size();
        if (experiment_.run.any_world() && found.batch_global != experiment_.batch.global) {
            throw ConfigError(fmt::format(
                "run.reproducible any_world adds along a tree of batch.global {}, but elastic.batch has brought the run of "
                "this checkpoint to {}; go on with run.reproducible=same_world, or start anew from its weights "
                "(model.weights) in another run.dir",
                experiment_.batch.global, found.batch_global));
        }
        experiment_.batch.global = found.batch_global;
        Course before = plan_course(experiment_, sample_count, found.step, found.place);
        experiment_.batch.global = continued_batch(experiment_, found.batch_global, found.world_size, job_.world.size);
        course_ = plan_course(experiment_, sample_count, found.step, found.place);
        return before;
    }

    // Rank 0 looks, verifies and decides; all follow.
    std::string agree_on_checkpoint() {
        std::string mine;
        run_on_leader(communicator_, experiment_.comm.timeout_ms, "checkpoint search", 0, [&] {
            make_directories(experiment_.run.dir);
            folder_lock_.emplace(experiment_.run.dir, kLockPatienceMs, "another job trains in this run.dir");
            if (const auto path = choose_checkpoint(experiment_, job_.again)) mine = path->string();
        });
        return gather_texts(communicator_, mine, "checkpoint").front();
    }

    void start_anew() {
        replica_.initialize(experiment_.run.seed);
        if (experiment_.model.weights.empty()) return;
        const std::string left_out = replica_.load_weights(experiment_.model.weights, experiment_.model.partial_weights);
        log::info("started from {}", experiment_.model.weights);
        if (!left_out.empty())
            log::warn("model.partial_weights=true: {} does not fit everywhere: {}", experiment_.model.weights, left_out);
    }

    void compile() {
        for (const int size : worker_sizes(course_.sampler.options())) replica_.compile_training(size);
        if (setup_.val) replica_.evaluation();
    }

    // While a batch is late, the other ranks are told that this one is alive.
    LoaderOptions patient(LoaderOptions options) {
        options.while_waiting = [this] { communicator_.progress(); };
        return options;
    }

    std::optional<AuditLog> open_audit(int64_t start_step) const {
        if (!experiment_.run.audit) return std::nullopt;
        run_on_leader(communicator_, experiment_.comm.timeout_ms, "audit log", start_step,
                      [&] { prepare_audit(experiment_.run.dir, course_.sampler.options(), start_step, course_.shift); });
        return std::make_optional<AuditLog>(experiment_.run.dir, job_.world.rank, job_.world.size);
    }

    ExitCode train(const Manifest& manifest, Recorder& recorder) {
        const int workers = loader_threads(experiment_, setup_.threads.compute_threads);
        const auto loader = make_train_loader(*setup_.train,
                                              {.sampler = course_.sampler.options(),
                                               .rank = job_.world.rank,
                                               .world_size = job_.world.size,
                                               .start_step = course_.planned(manifest.step),
                                               .stop_step = course_.planned(manifest.total_steps)},
                                              patient(training_loader_options(experiment_, workers)));
        CheckpointSaver saver(checkpoints_, replica_, communicator_, sharding_ ? &*sharding_ : nullptr,
                              {.async = experiment_.checkpoint.async,
                               .timeout_ms = experiment_.comm.timeout_ms,
                               .config_yaml = experiment_.resolved_yaml});
        log::info("checkpoints: {}, from a copy of {} on rank 0",
                  experiment_.checkpoint.async ? "written while training goes on" : "training waits for the disk",
                  data_size(saver.snapshot_bytes()));
        std::optional<AuditLog> audit_log = open_audit(manifest.step);
        std::unique_ptr<Evaluator> evaluator;
        if (setup_.val) {
            evaluator = std::make_unique<Evaluator>(
                *setup_.val, patient(loader_options(experiment_, pipeline_options(experiment_, experiment_.data.val), workers)),
                replica_.evaluation(), replica_.classes(), communicator_);
        }
        TrainLoop loop({.experiment = experiment_,
                        .communicator = communicator_,
                        .replica = replica_,
                        .optimizer = *optimizer_,
                        .course = course_,
                        .loader = *loader,
                        .reducer = reducer_,
                        .tree = tree_ ? &*tree_ : nullptr,
                        .sharding = sharding_ ? &*sharding_ : nullptr,
                        .audit = audit_log ? &*audit_log : nullptr,
                        .recorder = recorder,
                        .evaluator = evaluator.get(),
                        .saver = saver,
                        .signals = signals_,
                        .observer = job_.observer,
                        .resumed = resumed_,
                        .manifest = manifest});
        const ExitCode code = loop.run();
        tell_bad_images(loader->statistics(), evaluator.get());
        return code;
    }

    // Every bad image once, whichever ranks met it and whenever in this run.
    void tell_bad_images(const LoaderStatistics& training, const Evaluator* evaluator) const {
        BadImages mine(training.bad_paths.begin(), training.bad_paths.end());
        if (evaluator != nullptr) mine.insert(evaluator->bad_images().begin(), evaluator->bad_images().end());
        const BadImages found = gather_bad_images(communicator_, mine);
        if (!job_.world.is_leader()) return;
        const fs::path list = fs::path(experiment_.run.dir) / "bad_images.txt";
        const BadImages all = list_bad_images(list, found, resumed_);
        if (all.empty()) return;
        log::warn(
            "{} bad images were skipped (data.on_bad_image=skip): in training the next good one took the place of each, in "
            "validation it was left out; listed in {}",
            all.size(), list.string());
        constexpr int kShown = 20;
        for (const std::string& line : all | std::views::take(kShown)) log::warn("bad image {}", line);
    }

    RunParts parts() const {
        return {.experiment = experiment_,
                .world = job_.world,
                .setup = setup_,
                .course = course_,
                .replica = replica_,
                .buckets = reducer_.plan(),
                .communicator = communicator_,
                .sharding = sharding_ ? &*sharding_ : nullptr};
    }

    void report() const {
        const std::string summary = write_report(
            {.run_dir = experiment_.run.dir, .trace_steps = experiment_.report.trace_steps, .html = experiment_.report.html});
        std::istringstream lines(summary);
        for (std::string line; std::getline(lines, line);) log::info("{}", line);
    }

    const TrainingJob& job_;
    const StopSignals& signals_;
    Experiment experiment_;  // the job's, but batch.global is that of this number of ranks
    TrainingSetup& setup_;
    Course course_;
    Communicator& communicator_;
    std::unique_ptr<Optimizer> optimizer_;
    Replica replica_;
    std::optional<GradientTree> tree_;
    NodeSharing* const node_;  // optim.sharded: node
    GradientReducer reducer_;
    std::optional<ShardedUpdate> sharding_;
    CheckpointFolder checkpoints_;
    bool resumed_ = false;
    std::optional<FolderLock> folder_lock_;  // the leader's, from before the first look at run.dir to the end
};

// Values and gradients are of one size.
size_t common_bytes(const TrainingJob& job, const ReplicaPlan& plan) {
    if (!job.experiment.optim.shared_out()) return 0;
    return ShardedUpdate::common_bytes(plan.gradient_bytes(), job.world.local_size);
}

}  // namespace

ExitCode run_training(const TrainingJob& job) {
    const StopSignals signals;  // from before the data is looked at: the loop's first question is whether to begin
    const fs::path stacks = fs::path(job.experiment.run.dir) / "stacks";
    const StackDump dump(stacks / fmt::format("rank-{}.txt", job.world.rank));
    for (const std::string& warning : job.experiment.warnings) log::warn("{}", warning);
    auto [setup, plan] = in_common(job.store, job.world, [&] {
        TrainingSetup made = set_up_training(job.experiment, job.world);
        ReplicaPlan its_plan = plan_replica(job.experiment, made.num_classes, made.threads.compute_threads);
        return std::pair(std::move(made), std::move(its_plan));
    });
    require_agreement(job.store, job.world, job.experiment.comm.start_timeout_ms, facts_to_agree_on(job.experiment, setup));
    const std::unique_ptr<Communicator> communicator = make_communicator(
        job.world, job.store, communicator_options(job.experiment, plan.gradient_bytes(), common_bytes(job, plan)));
    std::optional<NodeProcesses> neighbours;
    std::optional<Run> run;
    try {
        if (job.world.is_leader()) announce_work(job.store);
        neighbours.emplace(*communicator);
        run.emplace(job, signals, setup, std::move(plan), *communicator);
        return run->run();
    } catch (const CommonFailure& failure) {
        fail_together(*communicator, failure);
    } catch (const CommError& error) {
        if (neighbours && calls_for_stacks(error.what())) {
            neighbours->ask_for_stacks();
            log::info_here("what the threads of this node's ranks are doing is written to {}", stacks.string());
        }
        communicator->abort(error.what());
        throw;
    } catch (const std::exception& error) {
        communicator->abort(error.what());  // before the replica goes, so that nobody waits for this rank
        throw;
    }
}

}  // namespace lockstep
