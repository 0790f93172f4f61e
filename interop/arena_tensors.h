// An arena's entries as named plain tensors, and back. The names are the arena's own, which are torchvision's for its networks, so
// a file written here loads there and the other way round. The control entry never leaves the arena.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameter_arena.h"
#include "interop/safetensors.h"
#include "nn/executor.h"

namespace lockstep {

enum class EntrySet : uint8_t { all, trainable };  // all: with running statistics; optimizer state has trainable entries only

// Plain copies of entries of one of the arena's buffers, in the arena's order.
class PlainTensors {
public:
    PlainTensors(const Backend& backend, const ParameterArena& arena, std::span<const float> buffer, EntrySet set);
    const std::vector<NamedTensor>& tensors() const { return tensors_; }  // borrowed from this object
    std::string first_non_finite() const;                                 // name of a tensor with NaN or Inf; empty: none

private:
    std::vector<float> storage_;
    std::vector<NamedTensor> tensors_;
};

// A safetensors file of an arena's entries in memory, filled again and again from one of its buffers: a snapshot that another
// thread may write while the arena goes on changing. Memory for the whole file is taken, and touched, once.
class ArenaImage {
public:
    ArenaImage(const ParameterArena& arena, EntrySet set);
    // Copies the entries out of `buffer`, which has the arena's layout. Returns the name of a tensor with NaN or Inf; empty: none.
    std::string fill(const Backend& backend, const ParameterArena& arena, std::span<const float> buffer);
    std::span<const std::byte> bytes() const { return image_.bytes(); }  // the file; on a page border

private:
    std::vector<size_t> entries_;  // of the arena
    SafetensorsImage image_;
};

// What fits between an arena and a file. `num_batches_tracked`, which other programs store, is left out silently.
struct TensorMatch {
    struct Pair {
        size_t entry = 0, tensor = 0;  // index in the arena's entries and in the file's tensors
    };
    std::vector<Pair> pairs;
    std::vector<std::string> problems;  // one line each: missing, extra, misshapen, mistyped
    std::string common_prefix;          // such as "module.": without it the names would fit better; empty: none

    bool complete() const { return problems.empty(); }
    std::string list() const;  // all problems, and the hint about the prefix
};
TensorMatch match_tensors(const ParameterArena& arena, const std::vector<NamedTensor>& tensors, EntrySet set);

// Writes the matched tensors into `buffer` (one of the arena's). Throws DataError naming the tensor when a value is NaN or Inf;
// then nothing has been written.
void load_tensors(const Backend& backend, const ParameterArena& arena, const std::vector<NamedTensor>& tensors,
                  const TensorMatch& match, std::span<float> buffer, std::string_view origin);

}  // namespace lockstep
