#include "cli/check_experiment.h"

#include "models/models.h"

namespace lockstep::cli {

void check_model(const Experiment& experiment) {
    const auto& model = experiment.model;
    build_model({.arch = model.arch,
                 .variant = model.variant,
                 .num_classes = model.num_classes > 0 ? model.num_classes : 2,  // not known before the data is read
                 .image_size = model.image_size,
                 .channels = model.channels,
                 .zero_init_last_bn = model.zero_init_last_bn,
                 .label_smoothing = static_cast<float>(experiment.loss.label_smoothing),
                 .bn_epsilon = static_cast<float>(experiment.batchnorm.epsilon),
                 .dropout = static_cast<float>(model.dropout)});
}

}  // namespace lockstep::cli
