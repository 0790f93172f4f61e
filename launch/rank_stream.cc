#include "launch/rank_stream.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kKeptLines = 8;  // for the closing lines

}  // namespace

int64_t step_named_in(std::string_view line) {
    constexpr std::string_view kWord = "step ";
    const size_t at = line.rfind(kWord);
    if (at == std::string_view::npos) return -1;
    const char* const begin = line.data() + at + kWord.size();
    int64_t step = -1;
    const auto [end, error] = std::from_chars(begin, line.data() + line.size(), step);
    return error == std::errc() && end != begin ? step : -1;
}

RankStream::RankStream(Pipe pipe, const RankStreamOptions& options)
    : prefix_(options.prefix), pipe_(std::move(pipe)), screen_(options.screen) {
    if (options.log.empty()) return;
    log_.open(options.log, std::ios::app);
    if (!log_) throw DeviceError(fmt::format("cannot write {}; choose another folder with --log-dir", options.log.string()));
}

void RankStream::forward_available() {
    std::array<char, 16 << 10> bytes{};
    for (int round = 0; round < 16 && pipe_.is_open(); ++round) {  // bounded: one noisy rank must not hide the others
        const ssize_t got = read(pipe_.descriptor(), bytes.data(), bytes.size());
        if (got > 0) {
            for (std::string& line : splitter_.add({bytes.data(), static_cast<size_t>(got)})) emit(std::move(line));
        } else if (got < 0 && errno == EAGAIN) {
            return;
        } else if (got == 0 || errno != EINTR) {
            close();
        }
    }
}

void RankStream::close() {
    if (!pipe_.is_open()) return;
    pipe_.close();
    if (std::string rest = splitter_.rest(); !rest.empty()) emit(std::move(rest));
}

void RankStream::emit(std::string line) {
    if (screen_ != nullptr) screen_->write_line(prefix_ + line);
    if (log_.is_open()) log_ << line << std::endl;  // flushed: a log must be whole after a kill
    if (const int64_t step = step_named_in(line); step >= 0) last_step_ = step;
    last_lines_.push_back(std::move(line));
    if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

}  // namespace lockstep
