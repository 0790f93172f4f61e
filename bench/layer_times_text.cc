#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "bench/layer_times.h"
#include "bench/machine_facts.h"

namespace lockstep::bench {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

double mib(size_t bytes) { return static_cast<double>(bytes) / kMiB; }

std::string head_text(const LayerTimes& times) {
    const LayerTimesOptions& options = times.options;
    std::string text =
        fmt::format("{} batch {} at {}x{}, {}, {}\n", options.model.arch, options.step.batch, options.model.image_size,
                    options.model.image_size, options.step.phase == Phase::training ? "train" : "infer", times.backend_description);
    text += fmt::format("machine: {}; copies memory at {:.1f} GB/s (read + written, {} thread(s))\n", machine_facts().cpu_model,
                        times.copy_gb_per_s, options.step.compute.threads);
    text += fmt::format("medians of {} iterations; GB/s: every operand once, over forward + backward\n\n", options.iterations);
    return text;
}

size_t longest_name(const LayerTimes& times) {
    size_t length = 5;
    for (const LayerLine& line : times.layers) length = std::max(length, line.name.size());
    return length;
}

std::string line_text(const LayerLine& line, size_t name_width, double copy_gb_per_s) {
    std::string text = fmt::format("{:<{}} {:<15} {:>9.3f} {:>9.3f} {:>8.3f}", line.name, name_width, line.kind, line.forward_ms,
                                   line.backward_ms, line.update_ms);
    text += line.flop > 0.0 ? fmt::format(" {:>8.1f}", line.gflop_per_s()) : fmt::format(" {:>8}", "");
    text += line.bytes > 0.0 ? fmt::format(" {:>7.1f}", line.gb_per_s()) : fmt::format(" {:>7}", "");
    text +=
        line.is_memory_bound() ? fmt::format(" {:>5.0f} %", 100.0 * line.gb_per_s() / copy_gb_per_s) : fmt::format(" {:>7}", "");
    text += "  " + line.code;
    if (!line.layout.empty()) text += "  [" + line.layout + "]";
    if (!line.group.empty()) text += "  (" + line.group + ")";
    return text + "\n";
}

std::string table_text(const LayerTimes& times) {
    const size_t width = longest_name(times);
    std::string text = fmt::format("{:<{}} {:<15} {:>9} {:>9} {:>8} {:>8} {:>7} {:>7}  {}\n", "layer", width, "kind", "forward",
                                   "backward", "update", "GFLOP/s", "GB/s", "of copy", "code  [layout]  (done in one pass)");
    for (const LayerLine& line : times.layers) text += line_text(line, width, times.copy_gb_per_s);
    return text;
}

// The lines of one kind in one, so that a long network can be read at a glance.
std::string kinds_text(const LayerTimes& times) {
    std::map<std::string, LayerLine> kinds;
    std::map<std::string, int> counts;
    for (const LayerLine& line : times.layers) {
        if (line.bytes == 0.0) continue;
        LayerLine& kind = kinds[line.kind];
        kind.kind = line.kind;
        kind.forward_ms += line.forward_ms;
        kind.backward_ms += line.backward_ms;
        kind.update_ms += line.update_ms;
        kind.flop += line.flop;
        kind.bytes += line.bytes;
        ++counts[line.kind];
    }
    std::vector<LayerLine> sorted;
    for (const auto& [name, kind] : kinds) sorted.push_back(kind);
    std::ranges::sort(sorted, std::greater(), [](const LayerLine& line) { return line.total_ms(); });
    std::string text = "\n";
    for (LayerLine& kind : sorted) {
        kind.name = fmt::format("all {}", counts[kind.kind]);
        text += line_text(kind, longest_name(times), times.copy_gb_per_s);
    }
    return text;
}

std::string totals_text(const LayerTimes& times) {
    std::string text = fmt::format("\nstep {:.3f} ms (p10 {:.3f}, p90 {:.3f}) = forward {:.3f} + backward {:.3f} + update {:.3f}\n",
                                   times.step_ms.median, times.step_ms.p10, times.step_ms.p90, times.forward_ms, times.backward_ms,
                                   times.update_ms);
    text += fmt::format("the layers explain {:.3f} ms, {:.3f} ms ({:.1f} %) they do not\n", times.layers_ms(),
                        times.unexplained_ms(), 100.0 * times.unexplained_ms() / times.step_ms.median);
    if (times.convolutions_alone_ms > 0.0) {
        text += fmt::format("its convolutions alone, warm: {:.3f} ms; step / convolutions = {:.3f}\n", times.convolutions_alone_ms,
                            times.step_over_convolutions());
    }
    return text;
}

// The buffers that lie, at other times, in some of the same bytes.
std::string shared_with(const LayerTimes& times, const PlannedBuffer& buffer) {
    std::string first;
    int others = 0;
    for (const PlannedBuffer& other : times.buffers) {
        if (&other == &buffer || other.offset >= buffer.offset + buffer.bytes || buffer.offset >= other.offset + other.bytes)
            continue;
        if (others++ == 0) first = other.name;
    }
    if (others == 0) return "alone";
    return others == 1 ? first : fmt::format("{} and {} more", first, others - 1);
}

std::string step_text(const LayerTimes& times, size_t step) {
    const StepFacts& facts = times.steps.at(step);
    return fmt::format("{} {}", facts.op, facts.part == StepFacts::Part::forward ? "forward" : "backward");
}

std::string memory_text(const LayerTimes& times) {
    std::vector<PlannedBuffer> buffers = times.buffers;
    std::ranges::sort(buffers, std::greater(), &PlannedBuffer::bytes);
    std::string text =
        fmt::format("\nworkspace, largest buffers first\n{:>12} {:>12}  {}\n", "MiB", "at MiB", "buffer: life; shares bytes with");
    for (const PlannedBuffer& buffer : buffers) {
        text += fmt::format("{:>12.3f} {:>12.3f}  {}: {} .. {}; {}\n", mib(buffer.bytes), mib(buffer.offset), buffer.name,
                            step_text(times, buffer.first_step), step_text(times, buffer.last_step), shared_with(times, buffer));
    }
    const size_t planned = times.memory.activation_bytes + times.memory.kept_bytes + times.parameter_bytes;
    text += fmt::format("workspace {:.1f} MiB (one place per buffer: {:.1f}); of it the largest scratchpad {:.1f} MiB\n",
                        mib(times.memory.activation_bytes), mib(times.memory.activation_bytes_unshared),
                        mib(times.memory.scratch_bytes));
    if (times.memory.kept_bytes > 0) {
        text += fmt::format("transformed weights, kept from pass to pass {:.1f} MiB\n", mib(times.memory.kept_bytes));
    }
    text += fmt::format("parameters, gradients and optimizer state {:.1f} MiB\n", mib(times.parameter_bytes));
    text += fmt::format("planned {:.1f} MiB, peak resident {:.1f} MiB (with program, libraries and images)\n", mib(planned),
                        mib(times.peak_resident_bytes));
    return text;
}

}  // namespace

std::string to_text(const LayerTimes& times, bool with_memory) {
    return head_text(times) + table_text(times) + kinds_text(times) + totals_text(times) + (with_memory ? memory_text(times) : "");
}

}  // namespace lockstep::bench
