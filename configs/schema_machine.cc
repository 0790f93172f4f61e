// The rows that say how the machine does it.
#include "configs/schema_rows.h"

namespace lockstep {

namespace {

std::vector<SchemaRow> compute_rows() {
    return {
        {.name = "compute.fusion",
         .field = [](Experiment& e) -> Field { return &e.compute.fusion; },
         .doc = "What is done in one pass over the data. `off`: every operation makes its own. `bn_relu`: a ReLU is applied by the "
                "operation in front of it. `all`: also batch norm, the addition of the shortcut and its ReLU together, batch norm "
                "and a "
                "sigmoid, and in evaluation a convolution with all that follows it. Results differ by rounding only.",
         .choices = {"off", "bn_relu", "all"}},
        {.name = "compute.autotune",
         .field = [](Experiment& e) -> Field { return &e.compute.autotune; },
         .doc = "What decides by which code a convolution is computed in fp32, the library's or our own: Winograd's for 3x3 and "
                "5x5 ones "
                "of stride 1, a plain one for 1x1. `off`: always the library's. `heuristic`: a fixed rule by shape, the same in "
                "every run. `measure`: rank 0 times both before "
                "the first step and keeps the answer in compute.cache; two runs may then differ by rounding.",
         .choices = {"off", "heuristic", "measure"}},
        {"compute.exact_convolution", [](Experiment& e) -> Field { return &e.compute.exact_convolution; },
         "true: no Winograd, whatever compute.autotune says: fp32 results stay within 1e-4 of other programs'."},
        {.name = "compute.recompute",
         .field = [](Experiment& e) -> Field { return &e.compute.recompute; },
         .doc = "What training computes again in the backward pass instead of keeping it from the forward pass. `norms`: results "
                "of batch "
                "norms, with the addition and the ReLU behind them, where only convolutions read them: the same results to the "
                "last bit "
                "in less memory, for ResNet-50 with 32 images 2.1 GiB in place of 2.8. Needs compute.fusion=all.",
         .choices = {"off", "norms"}},
        {"compute.cache", [](Experiment& e) -> Field { return &e.compute.cache; },
         "Folder of what compute.autotune=measure has measured; empty: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep."},
    };
}

std::vector<SchemaRow> comm_rows() {
    return {
        {.name = "comm.backend",
         .field = [](Experiment& e) -> Field { return &e.comm.backend; },
         .doc = "`native`: shared memory inside a node, TCP between nodes; `tcp`: TCP between all ranks; `mpi`: messages of the "
                "MPI that started the program; `gloo`: TCP by the Gloo library; `auto`: native.",
         .choices = {"auto", "native", "tcp", "mpi", "gloo"}},
        {.name = "comm.mpi",
         .field = [](Experiment& e) -> Field { return &e.comm.mpi; },
         .doc = "With comm.backend=mpi, which MPI; `auto`: the one that started the program.",
         .choices = {"auto", "openmpi", "mpich"}},
        {"comm.shared_memory", [](Experiment& e) -> Field { return &e.comm.shared_memory; },
         "false: native talks TCP inside a node too."},
        {.name = "comm.algorithm",
         .field = [](Experiment& e) -> Field { return &e.comm.algorithm; },
         .doc = "The schedule of an allreduce over TCP or MPI; `auto`: the fastest whose sums follow one tree over the ranks, by "
                "size and "
                "links (comm.probe); `hierarchical`: first inside the nodes, then between them. The others run over all ranks, "
                "whatever "
                "their nodes; ring and double_tree of more than two ranks add up in an order of their own.",
         .choices = {"auto", "exchange", "halving_doubling", "ring", "tree", "double_tree", "hierarchical"}},
        {.name = "comm.algorithm_radix",
         .field = [](Experiment& e) -> Field { return &e.comm.algorithm_radix; },
         .doc = "Of exchange and halving_doubling: how many ranks meet in a round; as many as there are ranks: one round.",
         .range = {.min = 2, .max = 1 << 16},
         .keyword = Keyword{"auto", 0}},
        {.name = "comm.chunks",
         .field = [](Experiment& e) -> Field { return &e.comm.chunks; },
         .doc = "Of ring, tree and double_tree: pieces that follow each other through the schedule.",
         .range = {.min = 1, .max = 1024},
         .keyword = Keyword{"auto", 0}},
        {.name = "comm.hierarchical_from",
         .field = [](Experiment& e) -> Field { return &e.comm.hierarchical_from_bytes; },
         .doc = "Over several nodes: gradients of at least this size are summed inside the nodes first. `auto`: by predicted time "
                "where both ways give the same bits (equal nodes of 1, 2, 4, 8, ... ranks), else all.",
         .unit = ValueUnit::bytes,
         .range = {.min = 0, .max = 1e12},
         .keyword = Keyword{"auto", -1}},
        {.name = "comm.probe",
         .field = [](Experiment& e) -> Field { return &e.comm.probe; },
         .doc =
             "By what `auto` chooses schedules over TCP and MPI: `auto`: the table that `lockstep tune` has kept for these "
             "machines "
             "and settings, else links measured at the start, in under a second; `never`: a fixed table. The choice changes times "
             "and no bit; with comm.wire other than fp32 it would, so the fixed table is taken there.",
         .choices = {"auto", "never"}},
        {"comm.tuning", [](Experiment& e) -> Field { return &e.comm.tuning; },
         "Folder of the tables that `lockstep tune` keeps; empty: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep. Rank 0 reads it."},
        {.name = "comm.wire",
         .field = [](Experiment& e) -> Field { return &e.comm.wire; },
         .doc =
             "Type in which gradients travel over TCP; sums are made in fp32. `bf16` and `fp16` halve the bytes and round every "
             "partial sum that is sent; all ranks still end with the same bits. Batch-norm statistics, counts and losses travel in "
             "fp32.",
         .choices = {"fp32", "bf16", "fp16"}},
        {.name = "comm.bucket",
         .field = [](Experiment& e) -> Field { return &e.comm.bucket_bytes; },
         .doc = "Gradients that travel together; a larger tensor travels alone.",
         .unit = ValueUnit::bytes,
         .range = {.min = 4, .max = 1e12}},
        {.name = "comm.last_bucket",
         .field = [](Experiment& e) -> Field { return &e.comm.last_bucket_bytes; },
         .doc =
             "Size of the last bucket of a step, the one whose transfer nothing can hide; `auto`: an eighth of the gradients, at "
             "most 1 MiB.",
         .unit = ValueUnit::bytes,
         .range = {.min = 4, .max = 1e12},
         .keyword = Keyword{"auto", 0}},
        {"comm.overlap", [](Experiment& e) -> Field { return &e.comm.overlap; },
         "Send buckets while back-propagation is still running; false: all at its end."},
        {.name = "comm.timeout",
         .field = [](Experiment& e) -> Field { return &e.comm.timeout_ms; },
         .doc = "Lack of progress of a peer after which it counts as lost. Over gloo a peer that computes shows no progress, so "
                "allow for "
                "the longest micro-batch there.",
         .unit = ValueUnit::milliseconds,
         .range = {.min = 100, .max = 86'400'000.0}},
        {.name = "comm.start_timeout",
         .field = [](Experiment& e) -> Field { return &e.comm.start_timeout_ms; },
         .doc = "How long ranks wait for each other at the start.",
         .unit = ValueUnit::milliseconds,
         .range = {.min = 100, .max = 86'400'000.0}},
        {"comm.interface", [](Experiment& e) -> Field { return &e.comm.interface; },
         "Network interface for TCP, such as eth0; empty: the one that reaches the store."},
        {"comm.congestion_control", [](Experiment& e) -> Field { return &e.comm.congestion_control; },
         "Congestion control of TCP connections between ranks, such as cubic or bbr; empty: the system's."},
        {.name = "comm.test_delay_per_kib",
         .field = [](Experiment& e) -> Field { return &e.comm.test_delay_ns_per_kib; },
         .doc = "For tests: an artificial delay of the transfer per KiB.",
         .unit = ValueUnit::nanoseconds,
         .range = {.min = 0, .max = 1e9}},
    };
}

}  // namespace

std::vector<SchemaRow> schema_machine_rows() { return joined({compute_rows(), comm_rows()}); }

}  // namespace lockstep
