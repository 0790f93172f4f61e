#include "core/log.h"

#include <memory>
#include <mutex>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/text.h"

namespace lockstep::log {

namespace {

// The process's one log. Not reachable from outside this file; set once before threads start, safe to use before that.
struct State {
    Options options;
    std::shared_ptr<spdlog::logger> console;
    std::shared_ptr<spdlog::logger> file;

    State() : console(std::make_shared<spdlog::logger>("console", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
        console->set_pattern("%v");
        console->flush_on(spdlog::level::trace);
    }
};

State& state() {
    static State instance;
    return instance;
}

void emit(spdlog::level::level_enum level, std::string_view prefix, std::string_view text, bool on_console) {
    const std::string line = fmt::format("{}{}", prefix, printable(text));
    if (on_console) state().console->log(level, line);
    if (state().file) state().file->log(level, line);
}

std::string rank_tag() {
    const Options& options = state().options;
    return options.world_size > 1 ? fmt::format("[rank {}] ", options.rank) : std::string();
}

}  // namespace

void init(const Options& options) {
    state().options = options;
    state().file.reset();
    if (options.file.empty()) return;
    state().file = std::make_shared<spdlog::logger>("file", std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    state().file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    state().file->flush_on(spdlog::level::trace);
}

void write_info(std::string_view text) { emit(spdlog::level::info, "", text, state().options.rank == 0 && !state().options.quiet); }

void write_info_here(std::string_view text) { emit(spdlog::level::info, rank_tag(), text, !state().options.quiet); }

void write_warn(std::string_view text) { emit(spdlog::level::warn, "warning: ", text, state().options.rank == 0); }

void write_warn_here(std::string_view text) { emit(spdlog::level::warn, rank_tag() + "warning: ", text, true); }

void write_error(std::string_view text) { emit(spdlog::level::err, rank_tag() + "error: ", text, true); }

}  // namespace lockstep::log
