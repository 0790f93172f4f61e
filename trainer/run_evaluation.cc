#include "trainer/run_evaluation.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "launch/threads.h"
#include "trainer/agreement.h"
#include "trainer/checkpoint.h"
#include "trainer/common_failure.h"
#include "trainer/communication.h"
#include "trainer/convolutions.h"
#include "trainer/recipe.h"
#include "trainer/replica.h"

namespace lockstep {

namespace {

struct Setup {
    ThreadBudget threads;
    std::unique_ptr<Source> source;
    ReplicaPlan plan;
};

Setup set_up(const EvaluationJob& job) {
    const Experiment& experiment = job.experiment;
    const Manifest manifest = verify_checkpoint(job.checkpoint);
    if (!experiment.data.val.is_given()) {
        throw ConfigError("data.val.path: no validation set is configured; give one with data.val.path=PATH");
    }
    const ThreadBudget threads = plan_threads(job.world, static_cast<int>(experiment.train.threads));
    apply_threads(job.world, threads);
    return {.threads = threads,
            .source = open_source(validation_source_options(experiment, manifest.class_names, manifest.num_classes)),
            .plan = plan_replica(experiment, manifest.num_classes, threads.compute_threads)};
}

EvaluationResult evaluate(const EvaluationJob& job, const Source& source, const ThreadBudget& threads, ReplicaPlan plan,
                          Communicator& communicator) {
    Replica replica(std::move(plan), communicator.gradient_pool(), 0);
    require_agreement(communicator, {{"the program", program_fingerprint()},
                                     {"the checkpoint", fs::weakly_canonical(job.checkpoint).string()},
                                     {"the configuration's hash", job.experiment.hash},
                                     {"the validation data", hash_hex(source.fingerprint())},
                                     {"the plan of tensors", hash_hex(replica.arena().plan_hash())}});
    in_common([&] { load_checkpoint_model(job.checkpoint, replica.backend(), replica.arena()); });
    settle_convolutions(communicator, job.experiment, Phase::evaluation, replica);
    replica.evaluation();
    require_agreement(communicator, {convolutions_fact(replica)});
    LoaderOptions patient = loader_options(job.experiment, pipeline_options(job.experiment, job.experiment.data.val),
                                           loader_threads(job.experiment, threads.compute_threads));
    patient.while_waiting = [&] { communicator.progress(); };  // the others learn that this rank is alive
    Evaluator evaluator(source, std::move(patient), replica.evaluation(), replica.classes(), communicator);
    const EvaluationResult result = evaluator.run(-1).value();
    const BadImages bad = gather_bad_images(communicator, evaluator.bad_images());
    if (!bad.empty() && job.world.is_leader()) {
        log::warn("{} validation images could not be read and were left out (data.on_bad_image=skip)", bad.size());
        for (const std::string& line : bad) log::warn("bad image {}", line);
    }
    return result;
}

}  // namespace

EvaluationResult run_evaluation(const EvaluationJob& job) {
    const Experiment& experiment = job.experiment;
    Setup setup = in_common(job.store, job.world, [&] { return set_up(job); });
    const auto communicator =
        make_communicator(job.world, job.store, communicator_options(experiment, setup.plan.gradient_bytes()));
    try {
        return evaluate(job, *setup.source, setup.threads, std::move(setup.plan), *communicator);
    } catch (const CommonFailure& failure) {
        fail_together(*communicator, failure);
    } catch (const std::exception& error) {
        communicator->abort(error.what());
        throw;
    }
}

}  // namespace lockstep
