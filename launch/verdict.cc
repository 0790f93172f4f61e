#include "launch/verdict.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ranges>
#include <sstream>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr int kRequeue = static_cast<int>(ExitCode::kRequeue);
constexpr int kPeerLost = static_cast<int>(ExitCode::kPeerLost);

std::string_view meaning_of(int exit_code) {
    switch (static_cast<ExitCode>(exit_code)) {
        case ExitCode::kDone:
            return "done";
        case ExitCode::kInternal:
            return "internal error";
        case ExitCode::kConfig:
            return "configuration";
        case ExitCode::kData:
            return "data";
        case ExitCode::kEnvironment:
            return "environment";
        case ExitCode::kDiverged:
            return "diverged";
        case ExitCode::kInterrupted:
            return "interrupted";
        case ExitCode::kRequeue:
            return "stopped after a checkpoint";
        case ExitCode::kPeerLost:
            return "peer lost";
        case ExitCode::kTerminated:
            return "terminated";
    }
    return "";
}

std::string signal_name(int signal) {
    const char* name = sigabbrev_np(signal);
    return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

bool follows_a_peer(const RankEnd& end) { return end.signal == 0 && end.exit_code == kPeerLost; }

bool goes_before(const RankEnd& a, const RankEnd& b) {
    if (follows_a_peer(a) != follows_a_peer(b)) return follows_a_peer(b);
    return a.ended_ns < b.ended_ns;
}

bool all_ended_well(const std::vector<RankEnd>& ends) {
    for (const RankEnd& end : ends) {
        if (end.signal != 0 || (end.exit_code != 0 && end.exit_code != kRequeue)) return false;
    }
    return true;
}

bool any_wants_requeue(const std::vector<RankEnd>& ends) {
    for (const RankEnd& end : ends) {
        if (end.signal == 0 && end.exit_code == kRequeue) return true;
    }
    return false;
}

int code_without_failure(const std::vector<RankEnd>& ends, int request) {
    if (request == SIGINT) return static_cast<int>(ExitCode::kInterrupted);
    if (any_wants_requeue(ends) && all_ended_well(ends)) return kRequeue;
    return request != 0 ? static_cast<int>(ExitCode::kTerminated) : 0;
}

// Line by line; none when its output ends with the same.
std::vector<std::string> words_of_error_file(const RankEnd& end) {
    std::vector<std::string> lines;
    std::istringstream text(end.error);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    const bool shown = !lines.empty() && std::ranges::any_of(end.last_lines, [&](const std::string& last) {
        return last.find(lines.front()) != std::string::npos;
    });
    if (shown) lines.clear();
    return lines;
}

}  // namespace

bool is_failure(const RankEnd& end) {
    if (end.stopped_by_agent) return false;
    return end.signal != 0 || (end.exit_code != 0 && end.exit_code != kRequeue);
}

Verdict judge(const std::vector<RankEnd>& ends, int request) {
    Verdict verdict;
    for (size_t index = 0; index < ends.size(); ++index) {
        if (!is_failure(ends[index])) continue;
        const bool first = verdict.first_failed < 0 || goes_before(ends[index], ends[static_cast<size_t>(verdict.first_failed)]);
        if (first) verdict.first_failed = static_cast<int>(index);
    }
    if (verdict.first_failed < 0) {
        verdict.exit_code = code_without_failure(ends, request);
    } else {
        const RankEnd& root = ends[static_cast<size_t>(verdict.first_failed)];
        verdict.exit_code = root.signal != 0 ? kPeerLost : root.exit_code;
    }
    return verdict;
}

std::string describe_end(const RankEnd& end) {
    if (end.signal != 0) {
        std::string text = fmt::format("killed by {}", signal_name(end.signal));
        if (end.core_dumped) text += " (core dumped)";
        if (end.signal == SIGKILL && !end.stopped_by_agent) text += " (by hand, or out of memory: see dmesg)";
        if (end.stopped_by_agent) text += " (stopped by the launcher)";
        return text;
    }
    const std::string_view meaning = meaning_of(end.exit_code);
    return fmt::format("exit code {}{}", end.exit_code, meaning.empty() ? "" : fmt::format(" ({})", meaning));
}

std::vector<std::string> closing_lines(const std::vector<RankEnd>& ends, const Verdict& verdict) {
    const RankEnd& root = ends[static_cast<size_t>(verdict.first_failed)];
    std::vector<std::string> lines{fmt::format("{:>4}  {:<16} {:>8}  {:>8}  {}", "rank", "host", "pid", "step", "ended")};
    for (const RankEnd& end : ends) {
        lines.push_back(fmt::format("{:>4}  {:<16} {:>8}  {:>8}  {}{}{}", end.rank, end.host, end.pid,
                                    end.step < 0 ? "-" : fmt::format("{}", end.step), describe_end(end),
                                    end.log.empty() ? "" : "  " + end.log, &end == &root ? "  <- first" : ""));
    }
    const std::vector<std::string> said = words_of_error_file(root);
    lines.push_back(fmt::format("rank {} failed first ({} pid {}): {}{}", root.rank, root.host, root.pid, describe_end(root),
                                !said.empty()             ? ""
                                : root.last_lines.empty() ? "; it wrote nothing"
                                                          : "; its last lines:"));
    if (!said.empty()) {
        lines.push_back(fmt::format("its error file: {}", said.front()));
        for (const std::string& line : said | std::views::drop(1)) lines.push_back("  " + line);
        if (!root.last_lines.empty()) lines.emplace_back("its last lines:");
    }
    for (const std::string& line : root.last_lines) lines.push_back(fmt::format("[{}]: {}", root.rank, line));
    return lines;
}

}  // namespace lockstep
