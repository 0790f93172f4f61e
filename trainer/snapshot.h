// What a checkpoint keeps of a replica, copied out of the arena as the very bytes of its files: values and running statistics, and
// each array of optimizer state. The memory is taken once, before step 0; taking a snapshot then costs one pass over the arena and
// allocates nothing, and the files can be written while the arena goes on changing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameter_arena.h"
#include "interop/arena_tensors.h"
#include "nn/executor.h"

namespace lockstep {

// What helps a run whose numbers stopped being finite. Another rate is another run, so no checkpoint can be resumed with it.
inline constexpr std::string_view kAfterDivergence =
    "Lower lr.base or lengthen lr.warmup and start anew in another run.dir, from an earlier checkpoint's weights with "
    "model.weights=CHECKPOINT/model.safetensors if you like";

inline constexpr std::string_view kModelFile = "model.safetensors";
std::string state_file(int index);  // "optimizer.safetensors", "optimizer-1.safetensors", ...

class Snapshot {
public:
    // Both outlive the snapshot.
    Snapshot(const Backend& backend, const ParameterArena& arena);

    void take_values();
    void take_state(int index, std::span<const float> whole);  // in the arena's layout
    void take_all();                                           // of an arena that owns all of its state

    struct File {
        std::string name;
        std::span<const std::byte> bytes;  // begins on a page border
    };
    std::vector<File> files() const;
    size_t byte_count() const;

    // Throws DivergedError naming tensor and file when a value is NaN or Inf. `step`: steps made.
    void require_finite(int64_t step) const;

private:
    struct Part {
        std::string name;
        ArenaImage image;
        std::string bad;  // a tensor that is not finite; empty: none
    };

    const Backend& backend_;
    const ParameterArena& arena_;
    std::vector<Part> parts_;  // the model, then each state
};

}  // namespace lockstep
