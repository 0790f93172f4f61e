// What a compiled graph is: two lists of steps over one block of memory. The compiler fills it, the executor runs it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "nn/onednn/kernels/elementwise.h"
#include "nn/onednn/library.h"
#include "nn/onednn/memory_plan.h"
#include "nn/program_facts.h"

namespace lockstep::onednn {

// A tensor of the program: a library memory and the workspace buffer it lies in. Copies share the memory object.
struct Value {
    static constexpr int kElsewhere = -1;  // the arena's or an executor's own memory

    dnnl::memory memory;
    MemoryDesc desc;
    int buffer = kElsewhere;

    Operand operand() const;
};

struct RunContext {
    const float* images = nullptr;
    uint64_t dropout_key = 0;
    bool accumulate = false;
};

class Step {
public:
    virtual ~Step() = default;
    virtual void run(const RunContext& context) = 0;
    virtual std::string_view name() const { return "own kernel"; }  // what it does, for people
    virtual size_t kept_bytes() const { return 0; }                 // of memory of its own
};

using Arguments = std::vector<std::pair<int, Value>>;  // DNNL_ARG_... -> value

class PrimitiveStep final : public Step {
public:
    PrimitiveStep(dnnl::stream stream, dnnl::primitive primitive, Arguments arguments);
    void run(const RunContext& context) override;

private:
    dnnl::stream stream_;
    dnnl::primitive primitive_;
    Arguments arguments_;                       // keeps the memories alive
    std::vector<dnnl_exec_arg_t> c_arguments_;  // the same for the C interface, made once
    bool is_warm_ = false;                      // has run: the library has made what it makes once and keeps
};

struct PlacedStep {
    std::unique_ptr<Step> step;
    int op = 0;
    size_t entries_done = 0;  // after it, gradients of entries [0, entries_done) are final; 0: says nothing
};

// One block of memory that all executors of a backend use in turn. Grows at compile time only.
class Workspace {
public:
    void reserve(size_t bytes);
    std::byte* data() const { return buffer_.bytes().data(); }

private:
    HeapPool pool_;
    Buffer buffer_;
};

class Program {
public:
    // --- while compiling: steps are numbered in the order they are added, forward first
    int add_buffer(size_t bytes, std::string name);
    // A tensor in a buffer. It must be touched by every step that uses it.
    Value add_value(const dnnl::engine& engine, const MemoryDesc& desc, int buffer);
    void begin_backward() { in_backward_ = true; }
    bool in_backward() const { return in_backward_; }
    void touch(int buffer);  // the step added next uses it
    void add_step(std::unique_ptr<Step> step, int op);
    PlacedStep* last_backward_step();       // null when there is none
    void finish(bool share_memory = true);  // plans the memory

    // --- afterwards
    void bind(std::byte* workspace);  // points all tensors into the block; cheap, allocates nothing
    std::vector<PlacedStep>& forward() { return forward_; }
    std::vector<PlacedStep>& backward() { return backward_; }
    const MemoryPlan& memory_plan() const { return plan_; }
    std::vector<PlannedBuffer> planned_buffers() const;  // those that any step uses
    size_t kept_bytes() const;                           // of forward, outside the block

private:
    struct Binding {
        dnnl::memory memory;
        int buffer;
    };

    std::vector<PlacedStep> forward_;
    std::vector<PlacedStep> backward_;
    std::vector<BufferLife> lives_;
    std::vector<std::string> buffer_names_;
    std::vector<Binding> bindings_;
    MemoryPlan plan_;
    bool in_backward_ = false;
    int next_step_ = 0;
};

}  // namespace lockstep::onednn
