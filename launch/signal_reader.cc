#include "launch/signal_reader.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

SignalReader::SignalReader(std::span<const int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    reader_ = Pipe(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!reader_.is_open())
        throw DeviceError(fmt::format("signalfd: {}; raise the limit of open files (ulimit -n)", std::strerror(errno)));
}

int SignalReader::next() {
    signalfd_siginfo info{};
    const ssize_t got = read(reader_.descriptor(), &info, sizeof info);
    return got == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace lockstep
