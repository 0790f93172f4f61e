#include "trainer/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/random.h"
#include "core/text.h"
#include "nn/metrics.h"
#include "trainer/common_failure.h"
#include "trainer/data_metrics.h"
#include "trainer/nan_origin.h"
#include "trainer/replica_check.h"
#include "trainer/snapshot.h"

namespace lockstep {

namespace {

std::string readable_duration(double seconds) {
    const auto whole = static_cast<int64_t>(std::ceil(seconds));
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string describe_losses(const StepControl& total) {
    if (total.bad_ranks == 0) return "every loss is finite";
    if (total.bad_ranks == 1) return fmt::format("the loss of rank {} is NaN or infinite", total.bad_rank);
    return fmt::format("the losses of {} ranks are NaN or infinite", total.bad_ranks);
}

size_t most_spans_in_a_step(const Sampler& sampler) {
    const int64_t workers = sampler.workers_in_full_step();
    return static_cast<size_t>(3 * workers + 5);
}

}  // namespace

TrainLoop::TrainLoop(TrainParts parts)
    : parts_(std::move(parts)),
      rank_(parts_.communicator.world().rank),
      step_(parts_.manifest.step),
      total_steps_(parts_.manifest.total_steps),
      interval_(parts_.manifest.interval),
      metrics_(parts_.manifest.metrics),
      saved_step_(parts_.resumed ? step_ : -1) {
    spans_.reserve(most_spans_in_a_step(parts_.course.sampler));
}

template <typename Work>
auto TrainLoop::timed(Span::Kind kind, Work&& work) {
    struct Stopwatch {
        std::vector<Span>& spans;
        Span span;
        ~Stopwatch() {
            span.end_ns = now_ns();
            spans.push_back(span);
        }
    };
    const Stopwatch stopwatch{spans_, {.kind = kind, .begin_ns = now_ns()}};
    return work();
}

template <typename Work>
void TrainLoop::record(Work&& work) {
    try {
        work();
    } catch (const DeviceError& error) {
        log::warn_here("{}; training goes on without further records", error.what());
    }
}

ExitCode TrainLoop::run() {
    step_begin_ns_ = now_ns();
    bool stop = catch_up();
    while (!stop && step_ < total_steps_) {
        stop = make_step();
        ++step_;
        metrics_.clear();
        if (step_ % parts_.experiment.train.log_every == 0 || step_ == total_steps_) write_training_metrics();
        if (due(parts_.experiment.train.check_replicas)) {
            require_equal_replicas(parts_.communicator, parts_.replica.arena(), step_ - 1);
        }
        if (!stop) stop = pause();
    }
    tell_passed_over();
    if (stop && (step_ < total_steps_ || evaluation_is_owed())) return stop_here();
    if (due(parts_.experiment.checkpoint.every)) save_checkpoint(true);
    parts_.saver.finish();
    return ExitCode::kDone;
}

// What a run that was stopped here has left to do before its next step. Returns whether a wish to stop has come since the start.
bool TrainLoop::catch_up() {
    if (evaluation_is_owed()) {
        if (!evaluate()) return true;
        saved_step_ = -1;  // a checkpoint with the evaluation's result takes the place of the one without
        if (due(parts_.experiment.checkpoint.every)) save_checkpoint(step_ == total_steps_);
    }
    return agree_on_stop();
}

bool TrainLoop::evaluation_is_owed() const {
    return parts_.evaluator != nullptr && step_ > 0 && due(parts_.experiment.train.eval_every) && metrics_.empty();
}

// Evaluation and checkpoint where they are due between two steps. Returns whether a wish to stop came meanwhile; an evaluation is
// then left to the run that continues.
bool TrainLoop::pause() {
    const bool evaluates = parts_.evaluator != nullptr && due(parts_.experiment.train.eval_every);
    const bool saves = due(parts_.experiment.checkpoint.every);
    if (evaluates) tell_passed_over();
    if (evaluates && !evaluate()) return true;
    if (saves) save_checkpoint(step_ == total_steps_);
    return (evaluates || saves) && agree_on_stop();
}

// Outside of steps, whose traffic carries the wish by itself.
bool TrainLoop::agree_on_stop() {
    float wishes = parts_.signals.requested() ? 1.0F : 0.0F;
    parts_.communicator.allreduce(std::span(&wishes, 1), {.what = "wish to stop", .step = step_}).wait();
    return wishes > 0.0F;
}

ExitCode TrainLoop::stop_here() {
    save_checkpoint(true);
    parts_.saver.finish();
    const bool continues = parts_.experiment.run.resume == "auto";
    log::info("stopped on request after {} steps with a checkpoint; the same command continues from there{}", step_,
              continues ? "" : " when it says run.resume=auto, and so does a later start of this job");
    return ExitCode::kRequeue;
}

bool TrainLoop::make_step() {
    spans_.clear();
    parts_.reducer.begin(step_);
    StepControl mine = run_micro_steps();
    if (parts_.audit != nullptr) parts_.audit->write();  // before any rank can have made this step
    mine.stop = parts_.signals.requested();
    write_control(parts_.replica.arena().control(), mine);
    timed(Span::Kind::finish_wait, [&] { parts_.reducer.finish(); });
    own_loss_is_finite_ = mine.bad_ranks == 0;
    const StepControl total = read_control(parts_.replica.arena().control());
    update(total);
    finish_step(mine, total);
    return total.stop;
}

StepControl TrainLoop::run_micro_steps() {
    StepControl mine;
    const Sampler& sampler = parts_.course.sampler;
    const int64_t planned = parts_.course.planned(step_);
    const World& world = parts_.communicator.world();
    const WorkerRange workers = sampler.workers_of_rank(planned, rank_, world.size);
    const int64_t leaves = parts_.tree == nullptr ? workers.last - workers.first : parts_.tree->leaves();
    for (int64_t worker = workers.first; worker < workers.last; ++worker) {
        const std::optional<Batch> batch = timed(Span::Kind::data_wait, [&] { return parts_.loader.next(); });
        check(batch.has_value() && batch->worker == worker && batch->step_in_epoch == planned % sampler.steps_per_epoch(),
              "the loader delivers the virtual workers of the sampler's plan");
        if (parts_.audit != nullptr) parts_.audit->add(step_, *batch);
        const int64_t leaf = worker - workers.first;
        const bool last = leaf + 1 == leaves;
        run_micro_step(*batch, parts_.tree == nullptr && leaf > 0, last, mine);
        if (parts_.tree != nullptr && !last) parts_.tree->keep(leaf);
    }
    // A short last step may leave a rank without images: it takes part with zeros.
    if (workers.first == workers.last) std::ranges::fill(parts_.replica.arena().gradients(), 0.0F);
    if (parts_.tree != nullptr) complete_tree(workers.last - workers.first);
    return mine;
}

void TrainLoop::complete_tree(int64_t present) {
    for (int64_t leaf = present; leaf < parts_.tree->leaves(); ++leaf) {
        parts_.tree->clear_leaf();
        if (leaf + 1 < parts_.tree->leaves()) parts_.tree->keep(leaf);
    }
}

void TrainLoop::run_micro_step(const Batch& batch, bool accumulate, bool last, StepControl& mine) {
    Executor& executor = parts_.replica.training(batch.count);
    const auto worker = static_cast<uint64_t>(batch.worker);
    const ForwardInput input{
        .images = batch.images,
        .labels = batch.labels,
        .second_labels = batch.second_labels,
        .second_share = batch.second_share,
        .dropout_key = RandomStream(parts_.experiment.run.seed, "dropout", static_cast<uint64_t>(step_), worker).next_u64()};
    const double loss_sum = timed(Span::Kind::forward, [&] { return executor.forward(input); });
    parts_.communicator.progress();
    // Only the last micro-step's gradients are final, so only it may launch buckets.
    timed(Span::Kind::backward, [&] { executor.backward(accumulate, last ? &parts_.reducer : nullptr); });
    parts_.communicator.progress();
    mine.loss_sum += loss_sum;
    mine.images += batch.count;
    // Of a mixture the label of the larger share counts.
    const bool second = batch.second_share > 0.5F;
    mine.correct += count_top_k(executor.logits(), second ? batch.second_labels : batch.labels, parts_.replica.classes(), 1);
    if (!std::isfinite(loss_sum)) {
        mine.bad_ranks = 1;
        mine.bad_rank = rank_;
    }
}

void TrainLoop::update(const StepControl& total) {
    const auto images = static_cast<double>(total.images);
    const GradientHealth health = inspect(images);
    if (total.bad_ranks > 0 || health.first_bad_entry >= 0) {
        refuse_bad_step(total, health.first_bad_entry);
        return;
    }
    gradient_norm_ = std::sqrt(health.squared_norm);
    interval_.loss_sum += total.loss_sum;
    interval_.correct += total.correct;
    interval_.images += total.images;
    timed(Span::Kind::optimizer,
          [&] { parts_.optimizer.step(parts_.replica.arena(), {.rate = parts_.course.rate_at(step_), .images = images}); });
    if (parts_.sharding != nullptr) timed(Span::Kind::update_wait, [&] { parts_.sharding->publish(step_); });
}

// Of the whole gradient, whoever has looked at its parts.
GradientHealth TrainLoop::inspect(double images) {
    const GradientHealth mine =
        timed(Span::Kind::optimizer, [&] { return parts_.optimizer.inspect(parts_.replica.arena(), images); });
    if (parts_.sharding == nullptr) return mine;
    return timed(Span::Kind::update_wait, [&] { return parts_.sharding->agree(mine, step_); });
}

// Loss flags and summed gradients are the same on all ranks, so all stop, or pass over the step, together.
void TrainLoop::refuse_bad_step(const StepControl& total, int64_t bad_entry) {
    const bool stops = parts_.experiment.train.stop_on_nan;
    if (!stops && ++passed_over_ > 1) return;
    const std::string loss = describe_losses(total);
    const std::string tensor =
        bad_entry >= 0 ? parts_.replica.arena().entries()[static_cast<size_t>(bad_entry)].spec.name : std::string("none");
    const std::string mine = describe_origin(parts_.replica.arena(), parts_.reducer.own_health(), own_loss_is_finite_);
    const std::string origin = combine_origins(gather_texts(parts_.communicator, mine, "where NaN began"));
    const std::string what = fmt::format("step {}: {}; first tensor with a gradient that is NaN or infinite: {}; it began on {}",
                                         step_, loss, tensor, origin);
    if (stops) {
        throw CommonFailure(ExitCode::kDiverged,
                            fmt::format("{}; the step was not applied on any rank. {}", what, kAfterDivergence));
    }
    log::warn("{}; the step is passed over (train.stop_on_nan=false); further ones are counted and told at each evaluation", what);
    passed_over_told_ = 1;
}

void TrainLoop::tell_passed_over() {
    if (passed_over_ == passed_over_told_) return;
    log::warn("{} passed over so far, up to step {}, for a loss or gradient that is NaN or infinite (train.stop_on_nan=false)",
              counted(passed_over_, "step"), step_);
    passed_over_told_ = passed_over_;
}

void TrainLoop::finish_step(const StepControl& mine, const StepControl& total) {
    const int64_t end_ns = now_ns();
    record([&] {
        parts_.recorder.record_step({.step = step_,
                                     .begin_ns = step_begin_ns_,
                                     .end_ns = end_ns,
                                     .images = mine.images,
                                     .spans = spans_,
                                     .buckets = parts_.reducer.records()});
    });
    interval_step_ns_ += end_ns - step_begin_ns_;
    interval_timed_images_ += total.images;
    step_begin_ns_ = end_ns;
    if (parts_.observer != nullptr) parts_.observer->after_step(step_, parts_.replica);
}

// Metrics carry the number of the last step made, counted from 0; `epoch` counts whole epochs as 1, 2, ...
void TrainLoop::write_training_metrics() {
    const auto images = static_cast<double>(interval_.images);  // 0, so that nothing is a number, where every step was passed over
    const double loss = interval_.loss_sum / images;
    const double top1 = static_cast<double>(interval_.correct) / images;
    const double seconds = std::max(1e-9, 1e-9 * static_cast<double>(interval_step_ns_));
    const double rate_images_per_s = static_cast<double>(interval_timed_images_) / seconds;
    const double learning_rate = parts_.course.rate_at(step_ - 1);
    const double epoch = parts_.course.epoch_at(step_);
    MetricsLine line{.step = step_ - 1,
                     .epoch = epoch,
                     .values = {{"train.loss", loss},
                                {"train.top1", top1},
                                {"lr", learning_rate},
                                {"images_per_s", rate_images_per_s},
                                {"grad_norm", interval_.images > 0 ? gradient_norm_ : std::numeric_limits<double>::quiet_NaN()}}};
    // Of this rank since the last line; nothing where the backend does not count.
    if (const CommunicatorUsage usage = parts_.communicator.take_usage(); usage.sent_bytes > 0) {
        line.values.emplace_back("comm.sent_bytes", static_cast<double>(usage.sent_bytes));
        line.values.emplace_back("comm.cpu_s", usage.cpu_s);
        line.values.emplace_back("comm.wire_rounding", usage.wire_rounding);
    }
    const LoaderStatistics data = parts_.loader.statistics();
    add_data_metrics(data_, data, seconds, line.values);
    data_ = data;
    record([&] { parts_.recorder.write_metrics(line); });
    const double seconds_per_image = seconds / std::max(1.0, static_cast<double>(interval_timed_images_));
    const double remaining_s =
        static_cast<double>(total_steps_ - step_) * static_cast<double>(parts_.experiment.batch.global) * seconds_per_image;
    log::info("step {}/{} epoch {:.2f} loss {:.4f} top-1 {:.2f} % lr {:.5g} {:.1f} images/s {} left", step_, total_steps_, epoch,
              loss, 100.0 * top1, learning_rate, rate_images_per_s, readable_duration(remaining_s));
    interval_ = {};
    interval_step_ns_ = 0;
    interval_timed_images_ = 0;
}

bool TrainLoop::due(const std::optional<Duration>& every) const { return parts_.course.is_due(every, step_); }

// False: stopped before its end.
bool TrainLoop::evaluate() {
    const int64_t begin_ns = now_ns();
    const std::optional<EvaluationResult> whole = parts_.evaluator->run(step_ - 1, &parts_.signals);
    if (!whole) return false;
    const EvaluationResult& result = *whole;
    metrics_ = {{"val.loss", result.loss},
                {"val.top1", result.top1},
                {"val.top5", result.top5},
                {"val.count", static_cast<double>(result.count)}};
    const double epoch = parts_.course.epoch_at(step_);
    record([&] {
        parts_.recorder.write_metrics({.step = step_ - 1, .epoch = epoch, .values = {metrics_.begin(), metrics_.end()}});
    });
    log::info("evaluation after step {}/{} epoch {:.2f}: loss {:.4f} top-1 {:.2f} % top-5 {:.2f} % of {} images", step_,
              total_steps_, epoch, result.loss, 100.0 * result.top1, 100.0 * result.top5, result.count);
    end_pause(Span::Kind::evaluation, begin_ns);
    if (parts_.observer != nullptr) parts_.observer->after_evaluation(step_ - 1, result);
    return true;
}

void TrainLoop::save_checkpoint(bool is_last) {
    if (saved_step_ == step_) return;  // resumed and stopped again at once
    const int64_t begin_ns = now_ns();
    parts_.saver.save(present_manifest(), is_last);
    saved_step_ = step_;
    end_pause(Span::Kind::checkpoint, begin_ns);
}

void TrainLoop::end_pause(Span::Kind kind, int64_t begin_ns) {
    const int64_t end_ns = now_ns();
    parts_.recorder.record_pause({.kind = kind, .begin_ns = begin_ns, .end_ns = end_ns});
    step_begin_ns_ = end_ns;
}

Manifest TrainLoop::present_manifest() const {
    Manifest manifest = parts_.manifest;
    manifest.step = step_;
    manifest.epoch = parts_.course.epoch_at(step_);
    manifest.place = parts_.course.place_at(step_);
    manifest.optimizer = parts_.optimizer.scalars();
    manifest.metrics = metrics_;
    manifest.interval = interval_;
    return manifest;
}

}  // namespace lockstep
