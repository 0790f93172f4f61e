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

SamplerOptions read_plan(const fs::path& run_dir) {
    const fs::path path = folder_of(run_dir) / "plan.json";
    if (!fs::exists(path)) {
        throw DataError(fmt::format("{}: no audit log there; train with run.audit=true", folder_of(run_dir).string()));
    }
    try {
        const auto json = nlohmann::json::parse(read_file(path));
        return {.sample_count = json.at("sample_count").get<int64_t>(),
                .batch_global = json.at("batch_global").get<int64_t>(),
                .per_replica = json.at("per_replica").get<int64_t>(),
                .keep_remainder = json.at("keep_remainder").get<bool>()};
    } catch (const nlohmann::json::exception& error) {
        throw DataError(fmt::format("{}: not a plan ({})", path.string(), error.what()));
    }
}

// How often each sample was used in an epoch, and how many samples each step had.
class Count {
public:
    explicit Count(const SamplerOptions& plan) : sampler_(plan) {}

    void add(const Line& line) {
        samples_in_step_[line.step] += static_cast<int64_t>(line.samples.size());
        report_.samples += static_cast<int64_t>(line.samples.size());
        auto [world, is_new] = world_of_step_.try_emplace(line.step, static_cast<int>(line.world_size));
        if (!is_new && world->second != line.world_size) {
            tell("step {}: lines of {} ranks and of {}", line.step, world->second, line.world_size);
        }
        std::vector<uint8_t>& times = times_used_[line.epoch];
        times.resize(static_cast<size_t>(sampler_.options().sample_count));
        for (const int64_t sample : line.samples) {
            if (sample < 0 || sample >= sampler_.options().sample_count) {
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
            const int64_t expected = sampler_.samples_in_step(step % sampler_.steps_per_epoch());
            if (samples != expected) tell("step {}: {} samples, {} expected", step, samples, expected);
            ++step;
        }
        report_.steps = step;
        for (const auto& [epoch, times] : times_used_)
            look_at_epoch(epoch, times, (epoch + 1) * sampler_.steps_per_epoch() <= step);
        int world_size = 0;
        for (const auto& [first, size] : world_of_step_) {
            if (size != std::exchange(world_size, size)) report_.world_from_step[first] = size;
        }
        return std::move(report_);
    }

private:
    void look_at_epoch(int64_t epoch, const std::vector<uint8_t>& times, bool is_whole) {
        if (!is_whole) return;
        const auto used = static_cast<int64_t>(times.size() - static_cast<size_t>(std::ranges::count(times, 0)));
        if (used == sampler_.samples_used_per_epoch()) {
            ++report_.whole_epochs;
        } else {
            tell("epoch {}: {} different samples were used, {} expected", epoch, used, sampler_.samples_used_per_epoch());
        }
    }

    template <typename... Args>
    void tell(fmt::format_string<Args...> format, Args&&... args) {
        if (report_.problems.size() < kMostProblems) report_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
    }

    const Sampler sampler_;
    std::map<int64_t, int64_t> samples_in_step_;
    std::map<int64_t, int> world_of_step_;
    std::map<int64_t, std::vector<uint8_t>> times_used_;  // by epoch
    AuditReport report_;
};

}  // namespace

void prepare_audit(const fs::path& run_dir, const SamplerOptions& plan, int64_t start_step) {
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
    const nlohmann::ordered_json json = {{"sample_count", plan.sample_count},
                                         {"batch_global", plan.batch_global},
                                         {"per_replica", plan.per_replica},
                                         {"keep_remainder", plan.keep_remainder}};
    write_file_atomically(folder_of(run_dir) / "plan.json", json.dump(2) + "\n");
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
