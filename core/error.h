// What may end a run. Expected answers are values (std::optional, bool, enum class); broken invariants are `check`.
//
// Every message says what happened, where (rank, peer, file, record, step, bucket) and what to do next. It is one line, also when a
// foreign name in it holds line breaks: what is not printable is written as \x0A (core/text.h). Libraries neither print nor exit:
// `main` catches once, prints the line and returns `exit_code()`.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// Exit codes are an interface: schedulers and the launcher decide from them whether to retry (docs/exit-codes.md).
enum class ExitCode : int {
    kDone = 0,
    kInternal = 1,
    kConfig = 2,  // command line or configuration
    kData = 3,
    kEnvironment = 4,  // library, permission, memory, device
    kDiverged = 5,     // NaN or Inf
    kInterrupted = 130,
    kRequeue = 138,     // stopped on request after a checkpoint
    kPeerLost = 140,    // peer or network lost: retry
    kTerminated = 143,  // terminated without a checkpoint
};

class Error : public std::runtime_error {
public:
    Error(ExitCode code, const std::string& message);
    ExitCode exit_code() const noexcept { return code_; }

private:
    ExitCode code_;
};

class ConfigError : public Error {
public:
    explicit ConfigError(const std::string& message) : Error(ExitCode::kConfig, message) {}
};

class DataError : public Error {
public:
    explicit DataError(const std::string& message) : Error(ExitCode::kData, message) {}
};

// Anything the machine refuses: memory, files, permissions, libraries, devices.
class DeviceError : public Error {
public:
    explicit DeviceError(const std::string& message) : Error(ExitCode::kEnvironment, message) {}
};

class CommError : public Error {
public:
    explicit CommError(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
};

// The loss, a gradient or a weight stopped being finite.
class DivergedError : public Error {
public:
    explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

// Always on. Prints the location and aborts; never reachable by user input.
void check(bool condition, std::string_view message, const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept;

}  // namespace lockstep
