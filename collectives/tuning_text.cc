// A tuning as text, to be sent and kept:
//
//   lockstep-tuning 1
//   origin links measured at the start
//   links 20 5 0.35 0.08 2 1 0.1 0.08     L, o, beta, gamma between all ranks and inside a node; `none`: not measured
//   hierarchical-from 16384
//   lockstep-selector 1        over all ranks, as selector_text.cc has it
//   ...
//   lockstep-selector 1        over the nodes; only where gradients may go through them
//   ...
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "collectives/tuning.h"
#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {

namespace {

constexpr std::string_view kFirstLine = "lockstep-tuning 1";
constexpr std::string_view kSelectorLine = "lockstep-selector ";
constexpr int kLongestKept = 1 << 20;

// Takes the next line away; it must begin with `key`. Returns what follows.
std::string_view take_line(std::string_view& text, std::string_view key) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos || !line.starts_with(key)) {
        throw DataError(fmt::format("tuning table: found `{}` where `{}` should stand; all ranks must run the same version",
                                    line.substr(0, 80), key));
    }
    text.remove_prefix(end + 1);
    return line.substr(key.size());
}

int64_t parse_bytes(std::string_view digits) {
    int64_t bytes = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (error != std::errc() || end != digits.data() + digits.size() || bytes < 0) {
        throw DataError(fmt::format("tuning table: `{}` is no number of bytes; all ranks must run the same version", digits));
    }
    return bytes;
}

std::string figures_of(const LinkModel& link) {
    return fmt::format("{} {} {} {}", link.latency_us, link.overhead_us, link.wire_ns_per_byte, link.sum_ns_per_byte);
}

std::optional<MeasuredLinks> parse_links(std::string_view text) {
    if (text == "none") return std::nullopt;
    MeasuredLinks links;
    std::istringstream figures{std::string(text)};
    for (LinkModel* link : {&links.all, &links.node}) {
        figures >> link->latency_us >> link->overhead_us >> link->wire_ns_per_byte >> link->sum_ns_per_byte;
    }
    std::string rest;
    if (!figures.fail() && !(figures >> rest)) return links;
    throw DataError(fmt::format("tuning table: `{}` are no eight figures of links; all ranks must run the same version", text));
}

}  // namespace

std::string Tuning::to_text() const {
    std::string figures = "none";
    if (links) figures = fmt::format("{} {}", figures_of(links->all), figures_of(links->node));
    return fmt::format("{}\norigin {}\nlinks {}\nhierarchical-from {}\n{}{}", kFirstLine, origin, figures, hierarchical_from_bytes,
                       flat.to_text(), rails ? rails->to_text() : "");
}

Tuning Tuning::from_text(std::string_view text) {
    Tuning tuning;
    take_line(text, kFirstLine);
    tuning.origin = take_line(text, "origin ");
    tuning.links = parse_links(take_line(text, "links "));
    tuning.hierarchical_from_bytes = parse_bytes(take_line(text, "hierarchical-from "));
    const size_t second = text.find(kSelectorLine, 1);
    tuning.flat = Selector::from_text(text.substr(0, second));
    if (second != std::string_view::npos) tuning.rails = Selector::from_text(text.substr(second));
    if (!tuning.rails && tuning.hierarchical_from_bytes != kNever) {
        throw DataError("tuning table: no rows for the way through the nodes; all ranks must run the same version");
    }
    return tuning;
}

namespace {

std::string checksum_of(std::string_view fingerprint, std::string_view body) {
    return hash_hex(hash_text(body, hash_text(fingerprint)));
}

std::filesystem::path default_cache_folder() {
    for (const auto& [variable, below] : {std::pair("XDG_CACHE_HOME", "lockstep"), std::pair("HOME", ".cache/lockstep")}) {
        const char* const folder = std::getenv(variable);
        if (folder != nullptr && *folder == '/') return std::filesystem::path(folder) / below;
    }
    return {};
}

}  // namespace

std::filesystem::path tuning_file(const std::string& cache_folder, std::string_view fingerprint) {
    const std::filesystem::path folder = cache_folder.empty() ? default_cache_folder() : std::filesystem::path(cache_folder);
    if (folder.empty()) return {};
    return folder / fmt::format("tuning-{}.txt", hash_hex(hash_text(fingerprint)));
}

// Checksum over fingerprint and table, then the table.
void save_tuning(const std::filesystem::path& file, std::string_view fingerprint, const Tuning& tuning) {
    if (file.empty()) throw DeviceError("no folder to keep the table in: neither XDG_CACHE_HOME nor HOME is set; set comm.tuning");
    make_directories(file.parent_path());
    const std::string body = tuning.to_text();
    write_file_atomically(file, fmt::format("checksum {}\n{}", checksum_of(fingerprint, body), body));
}

std::optional<Tuning> load_tuning(const std::filesystem::path& file, std::string_view fingerprint) {
    std::error_code ignored;
    if (file.empty() || !std::filesystem::exists(file, ignored)) return std::nullopt;
    try {
        if (std::filesystem::file_size(file, ignored) > kLongestKept) throw DataError("too long");
        const std::string content = read_file(file);
        std::string_view body = content;
        const std::string_view checksum = take_line(body, "checksum ");
        if (checksum != checksum_of(fingerprint, body)) throw DataError("checksum differs");
        Tuning tuning = Tuning::from_text(body);
        tuning.origin = file.string();
        return tuning;
    } catch (const DataError& error) {
        log::warn("{}: damaged or of other machines ({}); the links are measured at the start, `lockstep tune` writes it anew",
                  file.string(), error.what());
        return std::nullopt;
    }
}

}  // namespace lockstep
