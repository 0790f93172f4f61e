// All parameters of a replica in parallel flat buffers (values, gradients, optimizer state) with one layout and a named table.
//
// Entries stand in the order in which backward finishes them, last layers first, so a gradient bucket is a slice of the gradient
// buffer. The backend chooses each entry's physical layout (possibly blocked and zero-padded); files hold plain layouts.
// Batch-norm statistics are entries too: their "gradient" slot carries the batch statistics summed over images, so the same
// allreduce that averages gradients makes the running statistics equal on all ranks at every step. The last entry is `control`:
// a few floats of step bookkeeping (loss, counts, stop request) that ride in the last bucket.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

enum class ParameterKind : uint8_t { weight, bias, bn_scale, bn_shift, bn_mean, bn_variance, control };
inline bool is_statistic(ParameterKind kind) { return kind == ParameterKind::bn_mean || kind == ParameterKind::bn_variance; }
inline bool is_trainable(ParameterKind kind) { return !is_statistic(kind) && kind != ParameterKind::control; }

// How a parameter gets its first value; randomness is keyed by the parameter's name.
struct Initializer {
    // The fan-in kinds divide `value` by the square root of the fan-in, the elements of the tensor per index of its first axis.
    enum class Kind : uint8_t { constant, normal, uniform, fan_in_normal, fan_in_uniform } kind = Kind::constant;
    float value = 0.0F;  // constant: the value; normal: standard deviation; uniform: bound of [-value, value]
};
inline Initializer constant_init(float value) { return {.kind = Initializer::Kind::constant, .value = value}; }
inline Initializer gaussian_init(float stddev) { return {.kind = Initializer::Kind::normal, .value = stddev}; }
inline Initializer uniform_init(float bound) { return {.kind = Initializer::Kind::uniform, .value = bound}; }
// Caffe's "xavier": uniform with variance 1 / fan-in, so the bound is sqrt(3 / fan-in).
inline Initializer xavier_init() { return {.kind = Initializer::Kind::fan_in_uniform, .value = 1.7320508F}; }
// Caffe's "msra": normal with variance 2 / fan-in (arXiv:1502.01852).
inline Initializer msra_init() { return {.kind = Initializer::Kind::fan_in_normal, .value = 1.4142135F}; }
// PyTorch's default of convolutions and fully connected layers: uniform with bound 1 / sqrt(fan-in).
inline Initializer torch_default_init() { return {.kind = Initializer::Kind::fan_in_uniform, .value = 1.0F}; }

// What a network needs, independent of any backend.
struct ParameterSpec {
    std::string name;  // as in torchvision: "layer1.0.conv1.weight"
    ParameterKind kind = ParameterKind::weight;
    Shape shape;  // plain; conv weight (O, I/groups, H, W), deconvolution (I, O/groups, H, W), fully connected weight (O, I)
    Initializer init;
    float keep = 0.9F;  // statistics only: running = keep * running + (1 - keep) * new
};

// A spec with its place in the arena.
struct ParameterEntry {
    ParameterSpec spec;
    std::string layout = "plain";  // the backend's name for the physical layout; part of the plan hash
    int64_t physical_count = 0;    // floats incl. padding; padded elements are zero in values and gradients
    int64_t offset = 0;            // floats from the start of each buffer; set by the arena, 64-byte aligned
};

// A stretch of each buffer, in floats.
struct ArenaRange {
    int64_t offset = 0, count = 0;
};

class ParameterArena {
public:
    static constexpr int64_t kControlCount = 16;  // floats of the control entry

    // `entries` in backward-finish order without the control entry, which is appended. Gradients come from `gradient_pool` (the
    // node's shared segment), the rest from `private_pool`. `state_buffers`: optimizer arrays. All zero at first.
    ParameterArena(std::vector<ParameterEntry> entries, MemoryPool& private_pool, MemoryPool& gradient_pool, int state_buffers);

    const std::vector<ParameterEntry>& entries() const { return entries_; }
    std::optional<size_t> find(std::string_view name) const;
    int64_t total_count() const { return total_count_; }  // floats in each buffer, incl. padding and control

    // Whole buffers and one entry's slice of them (physical layout).
    std::span<float> values() const { return values_.f32().first(static_cast<size_t>(total_count_)); }
    std::span<float> gradients() const { return gradients_.f32().first(static_cast<size_t>(total_count_)); }
    std::span<float> state(int index) const;             // of owned(), range behind range; at first that is the whole layout
    std::vector<std::span<const float>> states() const;  // all of them
    int state_buffer_count() const { return static_cast<int>(states_.size()); }
    std::span<float> value(size_t entry) const { return slice(values(), entry); }
    std::span<float> gradient(size_t entry) const { return slice(gradients(), entry); }
    std::span<float> control() const { return gradient(entries_.size() - 1); }

    // What this rank updates, ascending: everything, until share_out().
    std::span<const ArenaRange> owned() const { return owned_; }

    // For ranks that share one copy of the values and share out their update. The values move into `values`, memory that all of
    // them see, and of the optimizer state only that of `owned` is kept, in memory of `private_pool`. Each rank writes the values
    // that it owns: all of them are there when all ranks have done so. Spans of values and state from before are dead.
    void share_out(Buffer values, std::vector<ArenaRange> owned, MemoryPool& private_pool);

    int64_t trainable_count() const;  // plain elements of trainable parameters: the network's "parameter count"
    size_t trainable_tensor_count() const;
    uint64_t plan_hash() const;  // names, kinds, shapes, layouts and offsets: equal on all ranks or no step is made

private:
    std::span<float> slice(std::span<float> buffer, size_t entry) const;

    std::vector<ParameterEntry> entries_;
    int64_t total_count_ = 0;
    std::vector<ArenaRange> owned_;
    int64_t state_count_ = 0;  // floats of all owned ranges
    Buffer values_;
    Buffer gradients_;
    std::vector<Buffer> states_;
};

}  // namespace lockstep
