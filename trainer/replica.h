// This rank's copy of the network: graph, backend, arena and the executors for every batch size that will occur.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/experiment.h"
#include "core/parameter_arena.h"
#include "nn/executor.h"
#include "nn/graph.h"

namespace lockstep {

// What is known before the communicator exists, which needs to know how much gradient memory to reserve.
struct ReplicaPlan {
    Graph graph;
    std::unique_ptr<Backend> backend;
    std::vector<ParameterEntry> entries;  // layouts for training with batch.per_replica images
    int64_t batch_per_replica = 0;

    size_t gradient_bytes() const;  // enough for the gradients of the arena made from these entries
};
ReplicaPlan plan_replica(const Experiment& experiment, int64_t num_classes, int threads);

class Replica {
public:
    // Gradients come from `gradient_pool`, which outlives the replica.
    Replica(ReplicaPlan plan, MemoryPool& gradient_pool, int state_buffers);

    const Graph& graph() const { return plan_.graph; }
    const Backend& backend() const { return *plan_.backend; }
    ParameterArena& arena() { return arena_; }
    const ParameterArena& arena() const { return arena_; }
    int64_t classes() const { return classes_; }

    // compute.autotune: measure. Both only before the first compile; measuring takes seconds and overwrites gradients.
    ConvolutionTable measure_convolutions(Phase phase, const std::string& folder);
    void use_convolutions(const ConvolutionTable& table) { plan_.backend->use_convolutions(table); }

    // Compiles for training with `batch` images, once per size; only before step 0.
    void compile_training(int batch);
    Executor& training(int batch);
    Executor& evaluation();  // of batch.per_replica images; compiled at the first call

    void initialize(uint64_t seed);
    // Starts from a safetensors file with this network's names. Throws DataError that lists every tensor that does not fit, with
    // nothing loaded; `partial` loads what fits and returns the list (empty when everything did).
    std::string load_weights(const std::string& path, bool partial);

private:
    ReplicaPlan plan_;
    const int64_t classes_;
    HeapPool private_pool_;
    ParameterArena arena_;
    std::vector<std::unique_ptr<Executor>> training_;
    std::unique_ptr<Executor> evaluation_;
};

}  // namespace lockstep
