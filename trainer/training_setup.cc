#include "trainer/training_setup.h"

#include <sstream>
#include <string>

#include <fmt/format.h>

#include "trainer/recipe.h"

namespace lockstep {

namespace {

std::string without_run_folder(const std::string& yaml) {
    std::istringstream lines(yaml);
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("dir:") == std::string::npos) kept += line + "\n";
    }
    return kept;
}

}  // namespace

TrainingSetup set_up_training(const Experiment& experiment, const World& world) {
    if (!experiment.elastic.scales()) check_world(experiment, world.size);  // else when the batch is known
    TrainingSetup setup{.threads = plan_threads(world, static_cast<int>(experiment.train.threads))};
    apply_threads(world, setup.threads);
    setup.train = open_source(training_source_options(experiment));
    setup.num_classes = experiment.model.num_classes > 0 ? experiment.model.num_classes : setup.train->class_total();
    if (experiment.data.val.is_given()) {
        setup.val = open_source(validation_source_options(experiment, setup.train->class_names(), setup.num_classes));
    }
    setup.course = plan_course(experiment, setup.train->size());
    return setup;
}

std::vector<int> worker_sizes(SamplerOptions options) {
    options.used_before = 0;  // of a whole epoch
    const Sampler sampler(options);
    std::vector<int> sizes;
    for (const int64_t step : {int64_t{0}, sampler.steps_per_epoch() - 1}) {
        for (const int64_t worker : {int64_t{0}, sampler.workers_in_step(step) - 1}) {
            sizes.push_back(static_cast<int>(sampler.samples_in_worker(step, worker)));
        }
    }
    return sizes;
}

std::vector<AgreementFact> facts_to_agree_on(const Experiment& experiment, const TrainingSetup& setup) {
    const auto fingerprint = [](const std::unique_ptr<Source>& source) {
        return source ? fmt::format("{:016x} ({})", source->fingerprint(), source->description()) : std::string("none");
    };
    return {{"the program", program_fingerprint()},          {"the configuration", without_run_folder(experiment.resolved_yaml)},
            {"the configuration's hash", experiment.hash},   {"the training data", fingerprint(setup.train)},
            {"the validation data", fingerprint(setup.val)}, {"the number of classes", std::to_string(setup.num_classes)}};
}

}  // namespace lockstep
