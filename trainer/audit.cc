#include "trainer/audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"

namespace lockstep {

namespace {

constexpr size_t kMostProblems = 20;

struct Line {
    int64_t step = 0, epoch = 0, world_size = 0, worker = 0;
    std::vector<int64_t> samples;
};

std::optional<int64_t> take_number(std::string_view& text, char end) {
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || stop == text.data() + text.size() || *stop != end) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
    return number;
}

// Without its newline; nullopt: not a line of a log.
std::optional<Line> parse_line(std::string_view text) {
    Line line;
    for (int64_t* const field : {&line.step, &line.epoch, &line.world_size, &line.worker}) {
        const std::optional<int64_t> number = take_number(text, '\t');
        if (!number || *number < 0) return std::nullopt;
        *field = *number;
    }
    while (!text.empty()) {
        const std::optional<int64_t> sample = take_number(text, ' ');
        if (!sample) return std::nullopt;
        line.samples.push_back(*sample);
    }
    return line;
}

// Calls visit(text, line) for each whole line; what a killed writer left at the end is no line.
template <typename Visit>
void for_each_line(const fs::path& path, const Visit& visit) {
    const MappedFile file(path);
    std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
        const std::string_view text = rest.substr(0, end + 1);
        const std::optional<Line> line = parse_line(text.substr(0, end));
        if (!line) throw DataError(fmt::format("{}: \"{}\" is no line of an audit log", path.string(), text.substr(0, 60)));
        visit(text, *line);
        rest.remove_prefix(end + 1);
    }
}

fs::path folder_of(const fs::path& run_dir) { return run_dir / "audit"; }
fs::path log_path(const fs::path& run_dir, int rank) { return folder_of(run_dir) / fmt::format("rank-{}.tsv", rank); }

std::vector<fs::path> logs_in(const fs::path& run_dir) {
    std::vector<fs::path> found;
    std::error_code none;
    for (const auto& item : fs::directory_iterator(folder_of(run_dir), none)) {
        const std::string name = item.path().filename();
        if (name.starts_with("rank-") && name.ends_with(".tsv")) found.push_back(item.path());
    }
    std::ranges::sort(found);
    return found;
}

fs::path plan_path(const fs::path& run_dir) { return folder_of(run_dir) / "plan.json"; }

// One global batch, from a step on.
struct Stretch {
    int64_t from_step = 0;
    int64_t shift = 0;
    Sampler sampler;

    int64_t planned(int64_t step) const { return step + shift; }
};

// By their first steps.
using Plan = std::vector<Stretch>;

const Stretch& stretch_of(const Plan& plan, int64_t step) {
    const auto after = std::ranges::find_if(plan, [&](const Stretch& each) { return each.from_step > step; });
    return after == plan.begin() ? plan.front() : *std::prev(after);
}

Plan parse_plan(const nlohmann::json& json) {
    Plan plan;
    // Without the key: of a version that knew one global batch.
    for (const auto& each : json.value("stretches", nlohmann::json::array({json}))) {
        plan.push_back({.from_step = each.value("from_step", int64_t{0}),
                        .shift = each.value("shift", int64_t{0}),
                        .sampler = Sampler({.sample_count = json.at("sample_count").get<int64_t>(),
                                            .batch_global = each.at("batch_global").get<int64_t>(),
                                            .per_replica = json.at("per_replica").get<int64_t>(),
                                            .keep_remainder = json.at("keep_remainder").get<bool>(),
                                            .short_step = each.value("short_step", int64_t{0}),
                                            .used_before = each.value("used_before", int64_t{0})})});
    }
    if (plan.empty()) throw DataError("it has no stretches");
    return plan;
}

Plan read_plan(const fs::path& run_dir) {
    const fs::path path = plan_path(run_dir);
    if (!fs::exists(path)) {
        throw DataError(fmt::format("{}: no audit log there; train with run.audit=true", folder_of(run_dir).string()));
    }
    try {
        return parse_plan(nlohmann::json::parse(read_file(path)));
    } catch (const std::exception& error) {
        throw DataError(fmt::format("{}: not a plan ({})", path.string(), error.what()));
    }
}

void write_plan(const fs::path& run_dir, const Plan& plan) {
    const SamplerOptions& common = plan.back().sampler.options();
    nlohmann::ordered_json json = {{"sample_count", common.sample_count},
                                   {"per_replica", common.per_replica},
                                   {"keep_remainder", common.keep_remainder},
                                   {"stretches", nlohmann::ordered_json::array()}};
    for (const Stretch& each : plan) {
        const SamplerOptions& options = each.sampler.options();
        json["stretches"].push_back({{"from_step", each.from_step},
                                     {"shift", each.shift},
                                     {"batch_global", options.batch_global},
                                     {"short_step", options.short_step},
                                     {"used_before", options.used_before}});
    }
    write_file_atomically(plan_path(run_dir), json.dump(2) + "\n");
}

// How often each sample was used in an epoch, and how many samples each step had.
class Count {
public:
    explicit Count(Plan plan) : plan_(std::move(plan)) {}

    void add(const Line& line) {
        samples_in_step_[line.step] += static_cast<int64_t>(line.samples.size());
        report_.samples += static_cast<int64_t>(line.samples.size());
        auto [world, is_new] = world_of_step_.try_emplace(line.step, static_cast<int>(line.world_size));
        if (!is_new && world->second != line.world_size) {
            tell("step {}: lines of {} ranks and of {}", line.step, world->second, line.world_size);
        }
        std::vector<uint8_t>& times = times_used_[line.epoch];
        times.resize(static_cast<size_t>(common().sample_count));
        for (const int64_t sample : line.samples) {
            if (sample < 0 || sample >= common().sample_count) {
                tell("step {}: sample {} does not exist", line.step, sample);
            } else if (++times[static_cast<size_t>(sample)] > 1) {
                tell("epoch {}: sample {} was used again in step {} by virtual worker {}", line.epoch, sample, line.step,
                     line.worker);
            }
        }
    }

    AuditReport result() {
        int64_t step = 0;
        for (const auto& [logged_step, samples] : samples_in_step_) {
            if (step < logged_step) tell("steps {} to {} are missing", step, logged_step - 1);
            step = logged_step;
            if (const int64_t expected = samples_planned(step); samples != expected) {
                tell("step {}: {} samples, {} expected", step, samples, expected);
            }
            ++step;
        }
        report_.steps = step;
        const Stretch& last = plan_.back();
        for (const auto& [epoch, times] : times_used_) {
            if ((epoch + 1) * last.sampler.steps_per_epoch() <= last.planned(step)) look_at_whole_epoch(epoch, times);
        }
        int world_size = 0;
        for (const auto& [first, size] : world_of_step_) {
            if (size != std::exchange(world_size, size)) report_.world_from_step[first] = size;
        }
        return std::move(report_);
    }

private:
    const SamplerOptions& common() const { return plan_.back().sampler.options(); }

    int64_t samples_planned(int64_t step) const {
        const Stretch& stretch = stretch_of(plan_, step);
        return stretch.sampler.samples_in_step(stretch.planned(step));
    }

    // All samples; where the remainder is dropped, what the epoch's steps had.
    int64_t samples_expected(int64_t epoch) const {
        if (common().keep_remainder) return common().sample_count;
        int64_t samples = 0;
        for (int64_t step = 0; step < report_.steps; ++step) {
            const Stretch& stretch = stretch_of(plan_, step);
            const bool is_in_it = stretch.planned(step) / stretch.sampler.steps_per_epoch() == epoch;
            if (is_in_it) samples += samples_planned(step);
        }
        return samples;
    }

    void look_at_whole_epoch(int64_t epoch, const std::vector<uint8_t>& times) {
        const auto used = static_cast<int64_t>(times.size() - static_cast<size_t>(std::ranges::count(times, 0)));
        const int64_t expected = samples_expected(epoch);
        if (used == expected) {
            ++report_.whole_epochs;
        } else {
            tell("epoch {}: {} different samples were used, {} expected", epoch, used, expected);
        }
    }

    template <typename... Args>
    void tell(fmt::format_string<Args...> format, Args&&... args) {
        if (report_.problems.size() < kMostProblems) report_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
    }

    const Plan plan_;
    std::map<int64_t, int64_t> samples_in_step_;
    std::map<int64_t, int> world_of_step_;
    std::map<int64_t, std::vector<uint8_t>> times_used_;  // by epoch
    AuditReport report_;
};

}  // namespace

void prepare_audit(const fs::path& run_dir, const SamplerOptions& options, int64_t start_step, int64_t shift) {
    make_directories(folder_of(run_dir));
    for (const fs::path& path : logs_in(run_dir)) {
        std::string kept;
        for_each_line(path, [&](std::string_view text, const Line& line) {
            if (line.step < start_step) kept += text;
        });
        if (kept.size() == fs::file_size(path)) continue;
        if (kept.empty()) {
            fs::remove(path);
        } else {
            write_file_atomically(path, kept);
        }
    }
    Plan plan;
    if (fs::exists(plan_path(run_dir))) plan = read_plan(run_dir);
    std::erase_if(plan, [&](const Stretch& each) { return each.from_step >= start_step; });
    const bool goes_on =
        !plan.empty() && plan.back().shift == shift && plan.back().sampler.options().batch_global == options.batch_global;
    if (!goes_on) plan.push_back({.from_step = start_step, .shift = shift, .sampler = Sampler(options)});
    write_plan(run_dir, plan);
}

AuditLog::AuditLog(const fs::path& run_dir, int rank, int world_size)
    : path_(log_path(run_dir, rank)),
      world_size_(world_size),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) {
        throw DeviceError(
            fmt::format("cannot open {}: {}; choose another run.dir or set run.audit=false", path_.string(), std::strerror(errno)));
    }
}

AuditLog::~AuditLog() {
    if (descriptor_ >= 0) close(descriptor_);
}

void AuditLog::add(int64_t step, const Batch& batch) {
    fmt::format_to(std::back_inserter(lines_), "{}\t{}\t{}\t{}\t", step, batch.epoch, world_size_, batch.worker);
    for (const int64_t sample : batch.samples) fmt::format_to(std::back_inserter(lines_), "{} ", sample);
    lines_ += '\n';
}

void AuditLog::write() {
    for (std::string_view rest = lines_; !rest.empty();) {
        const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            throw DeviceError(
                fmt::format("cannot write {}: {}; free space or set run.audit=false", path_.string(), std::strerror(errno)));
        }
        rest.remove_prefix(static_cast<size_t>(written));
    }
    lines_.clear();
}

AuditReport check_audit(const fs::path& run_dir) {
    Count count(read_plan(run_dir));
    for (const fs::path& path : logs_in(run_dir)) {
        for_each_line(path, [&](std::string_view, const Line& line) { count.add(line); });
    }
    return count.result();
}

}  // namespace lockstep
