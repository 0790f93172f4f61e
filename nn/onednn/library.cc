#include "nn/onednn/library.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace lockstep::onednn {

namespace {

std::string_view isa_text(dnnl::cpu_isa isa) {
    switch (isa) {
        case dnnl::cpu_isa::sse41:
            return "SSE4.1";
        case dnnl::cpu_isa::avx:
            return "AVX";
        case dnnl::cpu_isa::avx2:
            return "AVX2";
        case dnnl::cpu_isa::avx2_vnni:
            return "AVX2-VNNI";
        case dnnl::cpu_isa::avx512_core:
            return "AVX-512";
        case dnnl::cpu_isa::avx512_core_vnni:
            return "AVX-512-VNNI";
        case dnnl::cpu_isa::avx512_core_bf16:
            return "AVX-512-BF16";
        case dnnl::cpu_isa::avx512_core_amx:
            return "AVX-512-AMX";
        default:
            return "other";
    }
}

// bf16 works from AVX-512 on; below it the library has no training convolution at all.
bool supports_bf16(dnnl::cpu_isa isa) {
    return isa == dnnl::cpu_isa::avx512_core || isa == dnnl::cpu_isa::avx512_core_vnni || isa == dnnl::cpu_isa::avx512_core_bf16 ||
           isa == dnnl::cpu_isa::avx512_core_amx;
}

dnnl::memory::dims row_major_strides(const dnnl::memory::dims& dims) {
    dnnl::memory::dims strides(dims.size(), 1);
    for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
    return strides;
}

std::string layout_key(const ParameterEntry& entry) { return to_string(entry.spec.shape) + " " + entry.layout; }

}  // namespace

Library::Library(const BackendOptions& backend_options)
    : engine(dnnl::engine::kind::cpu, 0), stream(engine), options(backend_options) {
    if (options.threads < 1) throw ConfigError(fmt::format("backend onednn: threads must be at least 1, not {}", options.threads));
    if (options.plain_between_ops && options.fusion != Fusion::off) {
        throw ConfigError("backend onednn: plain layouts between ops leave nothing to fuse; use fusion off with them");
    }
    if (options.recompute != Recompute::off && options.fusion != Fusion::all) {
        throw ConfigError(
            "backend onednn: compute.recompute needs compute.fusion=all, whose batch norm is the one that runs again");
    }
    if (options.precision == Precision::bf16 && !supports_bf16(dnnl::get_effective_cpu_isa())) {
        throw DeviceError(
            fmt::format("backend onednn: precision bf16 needs AVX-512, this CPU has {}; use precision fp32 or another machine",
                        isa_text(dnnl::get_effective_cpu_isa())));
    }
}

dnnl::memory::data_type Library::activation_type() const {
    return options.precision == Precision::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

void Library::use_threads() const {
    if (omp_get_max_threads() != options.threads) omp_set_num_threads(options.threads);
}

std::string Library::description() const {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}, {}, {} thread(s), {}", version->major, version->minor, version->patch,
                       isa_text(dnnl::get_effective_cpu_isa()), options.threads,
                       options.precision == Precision::bf16 ? "bf16" : "fp32");
}

MemoryDesc plain_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type) {
    return {dims, type, row_major_strides(dims)};
}

MemoryDesc any_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type) {
    return {dims, type, dnnl::memory::format_tag::any};
}

MemoryDesc blocked_desc(const dnnl::memory::dims& dims, dnnl::memory::data_type type, int64_t block) {
    check(block == 8 || block == 16, "blocks of 8 or 16 channels");
    return {dims, type, block == 8 ? dnnl::memory::format_tag::nChw8c : dnnl::memory::format_tag::nChw16c};
}

std::optional<int64_t> channel_block(const MemoryDesc& desc) {
    const bool known_type = desc.data_type() == dnnl::memory::data_type::f32 || desc.data_type() == dnnl::memory::data_type::bf16;
    if (!known_type || desc.dims().size() != 4) return std::nullopt;
    for (const int64_t block : {8, 16}) {
        if (desc == blocked_desc(desc.dims(), desc.data_type(), block)) return block;
    }
    return std::nullopt;
}

MemoryDesc with_type(const MemoryDesc& desc, dnnl::memory::data_type type) {
    MemoryDesc copy = desc;
    copy.data.data_type = static_cast<dnnl_data_type_t>(type);
    return copy;
}

std::string layout_text(const MemoryDesc& desc) {
    if (desc == plain_desc(desc.dims(), desc.data_type())) return "plain";
    check(desc.data.format_kind == dnnl_blocked, "only blocked layouts have a name");
    const auto& blocking = desc.data.format_desc.blocking;
    const std::span inner_axes(blocking.inner_idxs, static_cast<size_t>(blocking.inner_nblks));
    std::vector<int> order(static_cast<size_t>(desc.data.ndims));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return blocking.strides[a] > blocking.strides[b]; });
    std::string text;
    for (const int axis : order) {
        const bool blocked = std::find(inner_axes.begin(), inner_axes.end(), axis) != inner_axes.end();
        text += static_cast<char>((blocked ? 'A' : 'a') + axis);
    }
    for (size_t index = 0; index < inner_axes.size(); ++index) {
        text += fmt::format("{}{}", blocking.inner_blks[index], static_cast<char>('a' + inner_axes[index]));
    }
    const std::span dims(desc.data.dims, order.size());
    const std::span padded(desc.data.padded_dims, order.size());
    if (!std::equal(dims.begin(), dims.end(), padded.begin())) text += fmt::format("/{}", fmt::join(padded, "x"));
    return text;
}

int64_t physical_count(const MemoryDesc& desc) {
    const size_t element_bytes = bytes_per_element(core_type(desc));
    return static_cast<int64_t>((desc.get_size() + element_bytes - 1) / element_bytes);
}

DataType core_type(const MemoryDesc& desc) {
    switch (desc.data_type()) {
        case dnnl::memory::data_type::f32:
            return DataType::f32;
        case dnnl::memory::data_type::bf16:
            return DataType::bf16;
        case dnnl::memory::data_type::u8:
            return DataType::u8;
        case dnnl::memory::data_type::s32:
            return DataType::i32;
        default:
            check(false, "unexpected data type of a tensor");
            return DataType::f32;
    }
}

void LayoutTable::remember(const ParameterEntry& entry, const MemoryDesc& desc) { descs_[layout_key(entry)] = desc; }

const MemoryDesc& LayoutTable::find(const ParameterEntry& entry) const {
    const auto found = descs_.find(layout_key(entry));
    if (found == descs_.end()) {
        throw ConfigError(fmt::format("parameter '{}' has layout '{}', which this backend did not plan; call plan_parameters first",
                                      entry.spec.name, entry.layout));
    }
    return found->second;
}

}  // namespace lockstep::onednn
