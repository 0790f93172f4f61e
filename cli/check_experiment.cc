#include "cli/check_experiment.h"

#include "trainer/recipe.h"

namespace lockstep::cli {

void check_model(const Experiment& experiment) {
    const int64_t classes = experiment.model.num_classes;
    build_model(model_options(experiment, classes > 0 ? classes : 2));  // not known before the data is read
}

}  // namespace lockstep::cli
