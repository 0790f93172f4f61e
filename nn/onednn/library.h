// The thin line between this folder and oneDNN: engine, stream, descriptors of memory, and the text that names a layout.
//
// Written against the 2.x interface with operation descriptors; the ops (convolution.cc, ...) are the only other users of it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include <dnnl.hpp>

#include "core/parameter_arena.h"
#include "nn/executor.h"

namespace lockstep::onednn {

using MemoryDesc = dnnl::memory::desc;

struct Library {
    explicit Library(const BackendOptions& options);  // throws ConfigError when the CPU lacks what the precision needs

    dnnl::engine engine;
    dnnl::stream stream;
    BackendOptions options;

    dnnl::memory::data_type activation_type() const;
    void use_threads() const;  // gives the calling thread's OpenMP pool the size primitives were made for
    std::string description() const;
};

// (N, C, H, W), row-major.
MemoryDesc plain_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type);
MemoryDesc any_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type);

// (N, C, H, W) with channels in blocks of 8 or 16, (N, C/block, H, W, block); and the block of such a layout, padding included,
// empty for any other or a type that is neither f32 nor bf16.
MemoryDesc blocked_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type, int64_t block);
std::optional<int64_t> channel_block(const MemoryDesc& desc);

// `desc`'s layout with the data type replaced.
MemoryDesc with_type(const MemoryDesc& desc, dnnl::memory::data_type type);

// "plain" for dense row-major; else e.g. "ABcd8b8a", dimensions from outer to inner, blocks last, and the padded shape when there
// is padding: "ABcd8b8a/8x8x3x3".
std::string layout_text(const MemoryDesc& desc);

// Elements incl. padding.
int64_t physical_count(const MemoryDesc& desc);

DataType core_type(const MemoryDesc& desc);

// The layouts that plan_parameters chose, by shape and text, so that an entry is all that is needed to convert.
class LayoutTable {
public:
    void remember(const ParameterEntry& entry, const MemoryDesc& desc);
    // The desc of an entry whose layout is not plain. Throws ConfigError when the entry is from another backend.
    const MemoryDesc& find(const ParameterEntry& entry) const;

private:
    std::map<std::string, MemoryDesc> descs_;
};

}  // namespace lockstep::onednn
