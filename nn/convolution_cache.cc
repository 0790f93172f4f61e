// A file is a checksum over fingerprint and table, then the table:
//
//   lockstep-convolutions 1 0123456789abcdef
//   forward 64x56x56 to 64 kernel 3 pad 1 batch 32 = winograd
//   ...
#include "nn/convolution_cache.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {

namespace {

constexpr std::string_view kFormat = "lockstep-convolutions 1 ";
constexpr uintmax_t kLongestKept = 1 << 20;

std::string first_line(std::string_view fingerprint, std::string_view body) {
    return fmt::format("{}{}\n", kFormat, hash_hex(hash_text(body, hash_text(fingerprint))));
}

fs::path default_folder() {
    for (const auto& [variable, below] : {std::pair("XDG_CACHE_HOME", "lockstep"), std::pair("HOME", ".cache/lockstep")}) {
        const char* const folder = std::getenv(variable);
        if (folder != nullptr && *folder == '/') return fs::path(folder) / below;
    }
    return {};
}

// Kept for the next run, not needed by this one.
void try_to_keep(const fs::path& file, std::string_view fingerprint, const ConvolutionTable& table) {
    try {
        if (file.empty()) throw DeviceError("neither XDG_CACHE_HOME nor HOME is set");
        save_convolutions(file, fingerprint, table);
    } catch (const DeviceError& error) {
        log::warn("the measured choice of convolutions is not kept, the next start measures again: {}; set compute.cache",
                  error.what());
    }
}

}  // namespace

fs::path convolution_file(const fs::path& folder, std::string_view fingerprint) {
    if (folder.empty()) return {};
    return folder / fmt::format("convolutions-{}.txt", hash_hex(hash_text(fingerprint)));
}

void save_convolutions(const fs::path& file, std::string_view fingerprint, const ConvolutionTable& table) {
    make_directories(file.parent_path());
    const std::string body = table.to_text();
    write_file_atomically(file, first_line(fingerprint, body) + body);
}

std::optional<ConvolutionTable> load_convolutions(const fs::path& file, std::string_view fingerprint) {
    std::error_code ignored;
    if (file.empty() || !fs::exists(file, ignored)) return std::nullopt;
    try {
        if (fs::file_size(file, ignored) > kLongestKept) throw DataError("too long");
        const std::string content = read_file(file);
        const size_t end = content.find('\n');
        const std::string_view body = std::string_view(content).substr(end == std::string::npos ? content.size() : end + 1);
        if (!content.starts_with(kFormat)) throw DataError("not of this format");
        if (!content.starts_with(first_line(fingerprint, body))) throw DataError("checksum differs");
        return ConvolutionTable::from_text(body);
    } catch (const DataError& error) {
        log::warn("{}: damaged or of another machine ({}); the convolutions are measured again", file.string(), error.what());
        return std::nullopt;
    }
}

ConvolutionTable measured_convolutions(Backend& backend, const Graph& graph, int batch, Phase phase, ParameterArena& arena,
                                       const std::string& folder) {
    const std::string fingerprint = fmt::format("lockstep {}, {}", LOCKSTEP_VERSION, backend.description());
    const fs::path file = convolution_file(folder.empty() ? default_folder() : fs::path(folder), fingerprint);
    ConvolutionTable kept = load_convolutions(file, fingerprint).value_or(ConvolutionTable());
    const size_t kept_count = kept.codes.size();
    const int64_t start_ns = now_ns();
    ConvolutionTable table = backend.measure_convolutions(graph, batch, phase, arena, kept);
    kept.codes.insert(table.codes.begin(), table.codes.end());
    if (kept.codes.size() == kept_count) {
        log::info("convolutions: {} choices from {}", table.codes.size(), file.string());
        return table;
    }
    log::info("convolutions: {} choices, {} of them measured in {:.1f} s", table.codes.size(), kept.codes.size() - kept_count,
              static_cast<double>(now_ns() - start_ns) / 1e9);
    try_to_keep(file, fingerprint, kept);
    return table;
}

}  // namespace lockstep
