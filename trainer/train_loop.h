// The training loop: next batch, forward, backward with the reducer listening, finish, update, record.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "data_loader/loader.h"
#include "optim/optimizer.h"
#include "report/recorder.h"
#include "trainer/audit.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/control.h"
#include "trainer/course.h"
#include "trainer/evaluation.h"
#include "trainer/gradient_reducer.h"
#include "trainer/replica.h"
#include "trainer/sharded_update.h"
#include "trainer/stop_signals.h"

namespace lockstep {

// Hears what the loop does, on every rank; for tests and tools.
class StepObserver {
public:
    virtual ~StepObserver() = default;
    virtual void after_step(int64_t step, Replica& replica) = 0;  // the update is applied
    virtual void after_evaluation(int64_t step, const EvaluationResult& result) = 0;
};

// The parts, made and ready; all outlive the loop.
struct TrainParts {
    const Experiment& experiment;
    Communicator& communicator;
    Replica& replica;
    Optimizer& optimizer;
    const Course& course;
    DataLoader& loader;  // begins at start.step
    GradientReducer& reducer;
    GradientTree* tree = nullptr;       // run.reproducible: any_world
    ShardedUpdate* sharding = nullptr;  // optim.sharded: node
    AuditLog* audit = nullptr;          // run.audit
    Recorder& recorder;
    Evaluator* evaluator = nullptr;  // null: no validation
    CheckpointSaver& saver;
    const StopSignals& signals;
    StepObserver* observer = nullptr;
    bool resumed = false;  // the manifest is that of a checkpoint, and the replica is as it was there
    // Where the run stands and what stays the same in every checkpoint; step, metrics, optimizer and interval are filled per save.
    Manifest manifest;
};

class TrainLoop {
public:
    explicit TrainLoop(TrainParts parts);

    // Until the last step, a wish to stop or an exception. Collective. Returns the code to exit with: kRequeue when it was stopped,
    // which leaves a checkpoint of the step at which all ranks stopped. Throws CommonFailure with the
    // code of a diverged run when loss or gradient stops being finite; then no rank has applied that step.
    ExitCode run();

private:
    bool catch_up();
    bool make_step();
    bool pause();
    bool agree_on_stop();
    bool evaluation_is_owed() const;
    ExitCode stop_here();
    StepControl run_micro_steps();
    void complete_tree(int64_t present);  // leaves of zeros for the virtual workers that a short step lacks
    void run_micro_step(const Batch& batch, bool accumulate, bool last, StepControl& mine);
    void update(const StepControl& total);
    GradientHealth inspect(double images);
    void refuse_bad_step(const StepControl& total, int64_t bad_entry);
    void tell_passed_over();
    void finish_step(const StepControl& mine, const StepControl& total);
    void write_training_metrics();
    bool due(const std::optional<Duration>& every) const;
    bool evaluate();
    void save_checkpoint(bool is_last);
    void end_pause(Span::Kind kind, int64_t begin_ns);
    Manifest present_manifest() const;

    // Records and metrics are not worth a run: when the disk refuses them the recorder throws once and is silent from then on.
    template <typename Work>
    void record(Work&& work);

    // Times `work` as a span of the step's record.
    template <typename Work>
    auto timed(Span::Kind kind, Work&& work);

    TrainParts parts_;
    const int rank_;
    int64_t step_;
    const int64_t total_steps_;
    std::vector<Span> spans_;       // of the step under way; never grows beyond what was reserved
    int64_t step_begin_ns_ = 0;     // end of the step or pause before
    IntervalSums interval_;         // since the last metrics line
    int64_t interval_step_ns_ = 0;  // wall time of the interval's steps in this process, without pauses
    int64_t interval_timed_images_ = 0;
    LoaderStatistics data_;  // at the last metrics line
    double gradient_norm_ = 0.0;
    int64_t passed_over_ = 0, passed_over_told_ = 0;  // steps with NaN, with train.stop_on_nan=false
    bool own_loss_is_finite_ = true;                  // of this step on this rank
    std::map<std::string, double> metrics_;           // of an evaluation at this very step
    int64_t saved_step_;                              // of the newest checkpoint; -1: none
};

}  // namespace lockstep
