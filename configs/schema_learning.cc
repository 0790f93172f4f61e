// The rows that say what is learnt, and how.
#include "configs/schema_rows.h"

namespace lockstep {

namespace {

const Range kUnitInterval{.min = 0.0, .max = 1.0};
const Range kBelowOne{.min = 0.0, .max = 1.0, .below_max = true};
const Range kDuration{.min = 0.0, .max = 1e9};
const Range kPositiveDuration{.min = 0.0, .max = 1e9, .above_min = true};

std::vector<SchemaRow> batch_rows() {
    return {
        {.name = "batch.global",
         .field = [](Experiment& e) -> Field { return &e.batch.global; },
         .doc = "Images per step over all ranks: the primary number, from which rate and warmup follow. A multiple of "
                "batch.per_replica.",
         .range = {.min = 1, .max = 1 << 24}},
        {.name = "batch.per_replica",
         .field = [](Experiment& e) -> Field { return &e.batch.per_replica; },
         .doc = "Images of a virtual worker, the unit of batch-norm statistics. The global batch is cut into virtual workers, "
                "which are "
                "dealt to the ranks; a rank with several of them accumulates their gradients.",
         .range = {.min = 1, .max = 1 << 16}},
        {.name = "elastic.batch",
         .field = [](Experiment& e) -> Field { return &e.elastic.batch; },
         .doc = "When a run goes on with another number of ranks: `keep`: global batch, rate and its schedule stay. `scale`: the "
                "global batch grows and shrinks with the ranks, so that each has as much work as before, and the rate follows by "
                "lr.scaling; batch.global is that of the number of ranks the run began with. train.duration, lr.warmup and lr.at "
                "must then be in epochs.",
         .choices = {"keep", "scale"}},
    };
}

std::vector<SchemaRow> optim_rows() {
    return {
        {.name = "optim.name",
         .field = [](Experiment& e) -> Field { return &e.optim.name; },
         .doc = "The optimizer.",
         .choices = {"sgd"}},
        {.name = "optim.momentum",
         .field = [](Experiment& e) -> Field { return &e.optim.momentum; },
         .doc = "Share of the last update that is kept.",
         .range = kBelowOne},
        {"optim.nesterov", [](Experiment& e) -> Field { return &e.optim.nesterov; }, "Nesterov's form of momentum."},
        {"optim.folded_momentum", [](Experiment& e) -> Field { return &e.optim.folded_momentum; },
         "Fold the rate into the momentum buffer, with correction whenever the rate changes; gives the same weights up to "
         "rounding."},
        {.name = "optim.weight_decay",
         .field = [](Experiment& e) -> Field { return &e.optim.weight_decay; },
         .doc = "Decay of convolution and fully connected weights.",
         .range = kUnitInterval},
        {"optim.decay_bn", [](Experiment& e) -> Field { return &e.optim.decay_bn; }, "Decay also scale and shift of batch norms."},
        {"optim.decay_bias", [](Experiment& e) -> Field { return &e.optim.decay_bias; }, "Decay also biases."},
        {.name = "optim.sharded",
         .field = [](Experiment& e) -> Field { return &e.optim.sharded; },
         .doc = "`node`: the ranks of a node share out the update: each keeps the optimizer state of its slice alone, and the "
                "parameters lie once per node. The same bits and the same checkpoints as `off`; needs comm.backend auto or native.",
         .choices = {"off", "node"}},
    };
}

std::vector<SchemaRow> lr_rows() {
    return {
        {.name = "lr.base",
         .field = [](Experiment& e) -> Field { return &e.lr.base; },
         .doc = "Learning rate for a global batch of lr.base_batch.",
         .range = {.min = 0.0, .max = 1e4, .above_min = true}},
        {.name = "lr.base_batch",
         .field = [](Experiment& e) -> Field { return &e.lr.base_batch; },
         .doc = "The global batch that lr.base is meant for.",
         .range = {.min = 1, .max = 1 << 24}},
        {.name = "lr.scaling",
         .field = [](Experiment& e) -> Field { return &e.lr.scaling; },
         .doc = "How the peak rate follows the batch: `linear`: base * global / base_batch, `sqrt`: with the root of the quotient, "
                "`none`.",
         .choices = {"none", "sqrt", "linear"}},
        {.name = "lr.warmup",
         .field = [](Experiment& e) -> Field { return &e.lr.warmup; },
         .doc = "Length of the linear rise to the peak, one step per iteration; shorter than train.duration.",
         .range = kDuration},
        {.name = "lr.warmup_from",
         .field = [](Experiment& e) -> Field { return &e.lr.warmup_from; },
         .doc = "Rate where the warmup begins; `base`: lr.base. Capped at the peak.",
         .range = {.min = 0.0, .max = 1e4},
         .keyword = Keyword{"base", -1.0}},
        {.name = "lr.schedule",
         .field = [](Experiment& e) -> Field { return &e.lr.schedule; },
         .doc = "Shape of the rate after warmup. `step` and `multistep` multiply by lr.factor at each time of lr.at.",
         .choices = {"constant", "step", "multistep", "cosine", "polynomial"}},
        {.name = "lr.at",
         .field = [](Experiment& e) -> Field { return &e.lr.at; },
         .doc = "Times of the drops of `step` and `multistep`, rising.",
         .range = kPositiveDuration},
        {.name = "lr.factor",
         .field = [](Experiment& e) -> Field { return &e.lr.factor; },
         .doc = "What `step` and `multistep` multiply by.",
         .range = {.min = 0.0, .max = 1.0, .above_min = true}},
        {.name = "lr.power",
         .field = [](Experiment& e) -> Field { return &e.lr.power; },
         .doc = "Exponent of `polynomial`.",
         .range = {.min = 0.0, .max = 100.0, .above_min = true}},
        {.name = "lr.final_rate",
         .field = [](Experiment& e) -> Field { return &e.lr.final_rate; },
         .doc = "Where `cosine` and `polynomial` end.",
         .range = {.min = 0.0, .max = 1e4}},
    };
}

std::vector<SchemaRow> loss_and_bn_rows() {
    return {
        {.name = "loss.label_smoothing",
         .field = [](Experiment& e) -> Field { return &e.loss.label_smoothing; },
         .doc = "Share of the target that is spread evenly over all classes.",
         .range = kBelowOne},
        {.name = "batchnorm.keep",
         .field = [](Experiment& e) -> Field { return &e.batchnorm.keep; },
         .doc =
             "running = keep * running + (1 - keep) * new. PyTorch's \"momentum\" is 1 - keep. `auto`: the network's own, mostly "
             "0.9.",
         .range = kBelowOne,
         .keyword = Keyword{"auto", -1.0}},
        {.name = "batchnorm.epsilon",
         .field = [](Experiment& e) -> Field { return &e.batchnorm.epsilon; },
         .doc = "Added to the variance. `auto`: the network's own, mostly 1e-5.",
         .range = {.min = 0.0, .max = 1.0, .above_min = true},
         .keyword = Keyword{"auto", -1.0}},
    };
}

}  // namespace

std::vector<SchemaRow> schema_learning_rows() { return joined({batch_rows(), optim_rows(), lr_rows(), loss_and_bn_rows()}); }

}  // namespace lockstep
