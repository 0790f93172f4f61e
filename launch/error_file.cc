#include "launch/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/json_text.h"
#include "core/text.h"

namespace lockstep {

namespace {

constexpr size_t kMostBytes = 1 << 20;     // a file that is larger says nothing
constexpr size_t kMostShownBytes = 2'000;  // of its message
constexpr int kMostShownLines = 12;

// At most kMostBytes; empty: not a file that can be read, or too large.
std::string bounded_content(const fs::path& path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    struct stat facts {};
    if (file.get() < 0 || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
    std::string content;
    std::array<char, 16 << 10> bytes{};
    for (ssize_t got = 1; got > 0 && content.size() <= kMostBytes;) {
        got = read(file.get(), bytes.data(), bytes.size());
        if (got > 0) content.append(bytes.data(), static_cast<size_t>(got));
    }
    return content.size() <= kMostBytes ? content : std::string();
}

std::string message_in(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("message")) return {};
    const nlohmann::json& outer = json["message"];
    const nlohmann::json& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
    return message.is_string() ? message.get<std::string>() : std::string();
}

// What may go to a screen: printable lines, and not too much of them.
std::string shown_part(const std::string& message) {
    std::string shown;
    std::istringstream lines(message.substr(0, kMostShownBytes));
    int count = 0;
    for (std::string line; count < kMostShownLines && std::getline(lines, line); ++count) {
        if (count > 0) shown += '\n';
        shown += printable(line);
    }
    while (!shown.empty() && (shown.back() == '\n' || shown.back() == ' ')) shown.pop_back();
    return shown;
}

}  // namespace

void write_error_file(std::string_view message) noexcept {
    const char* const path = std::getenv(kErrorFileVariable);
    if (path == nullptr || *path == '\0') return;
    try {
        const std::string seconds = fmt::format("{}", static_cast<int64_t>(wall_clock_s()));
        const nlohmann::json json = {{"message", {{"message", std::string(message)}, {"extraInfo", {{"timestamp", seconds}}}}}};
        write_file_atomically(path, json_text(json));
    } catch (const std::exception&) {  // the message is on the screen all the same
    }
}

std::string read_error_file(const fs::path& path) {
    try {
        return shown_part(message_in(bounded_content(path)));
    } catch (const std::exception&) {  // memory
        return {};
    }
}

}  // namespace lockstep
