#include "collectives/shared_memory/segment_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

constexpr size_t kCommonBytes = size_t{64} << 10;  // at the start of the file
constexpr char kReadyMark = '+';
constexpr char kErrorMark = '!';

// What a rank says when it fetches the file.
struct Request {
    uint64_t secret = 0;
    int32_t rank = 0;
};

[[noreturn]] void throw_no_room(size_t needed_bytes, size_t free_bytes, std::string_view limit) {
    throw DeviceError(
        fmt::format("the node's shared segment needs {} bytes, {} are free ({}); use fewer ranks on this node, a smaller "
                    "network or comm.backend=gloo",
                    needed_bytes, free_bytes, limit));
}

std::optional<size_t> read_number(const char* path) {
    std::ifstream file(path);
    size_t value = 0;
    if (file >> value) return value;
    return std::nullopt;
}

// Memory that can be had without swapping, as the kernel estimates it.
std::optional<size_t> available_memory_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        size_t kibibytes = 0;
        if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes << 10;
    }
    return std::nullopt;
}

// A reservation beyond the memory there is would not fail but wake the kernel's out-of-memory killer: compare first.
void check_room(size_t total_bytes) {
    rlimit file_limit{};
    if (getrlimit(RLIMIT_FSIZE, &file_limit) == 0 && file_limit.rlim_cur != RLIM_INFINITY && file_limit.rlim_cur < total_bytes) {
        throw_no_room(total_bytes, file_limit.rlim_cur, "limit of the file size, `ulimit -f`");
    }
    const std::optional<size_t> available_bytes = available_memory_bytes();
    if (available_bytes && *available_bytes < total_bytes) throw_no_room(total_bytes, *available_bytes, "memory of this machine");
    const std::optional<size_t> group_limit = read_number("/sys/fs/cgroup/memory.max");
    const std::optional<size_t> group_used = read_number("/sys/fs/cgroup/memory.current");
    if (group_limit && group_used && *group_limit < *group_used + total_bytes) {
        throw_no_room(total_bytes, *group_limit > *group_used ? *group_limit - *group_used : 0,
                      "memory limit of this control group");
    }
}

sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;  // sun_path starts with a zero byte: abstract, so never a file
    check(name.size() + 1 < sizeof address.sun_path, "the socket's name fits");
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

// False: the other side has gone, `errno` says how.
bool send_descriptor(int connection, int descriptor) {
    char byte = kReadyMark;
    iovec content{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return sendmsg(connection, &message, MSG_NOSIGNAL) == 1;
}

FileHandle receive_descriptor(int connection) {
    char byte = 0;
    iovec content{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return {};
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return FileHandle(descriptor);
}

bool wait_readable(int descriptor, const Deadline& deadline) {
    while (true) {
        pollfd entry{descriptor, POLLIN, 0};
        const int ready = poll(&entry, 1, static_cast<int>(deadline.remaining_ms()));
        if (ready > 0) return true;
        if (deadline.expired() || (ready < 0 && errno != EINTR)) return false;
    }
}

FileHandle unix_socket() {
    FileHandle handle(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!handle.is_open()) throw DeviceError(fmt::format("cannot make a unix socket: {}", std::strerror(errno)));
    return handle;
}

// Serves until every rank has fetched the file. A stranger that connects is sent away.
void hand_out(int listener, int file, uint64_t secret, const World& world, int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    std::vector<int> missing;
    for (int rank = 1; rank < world.local_size; ++rank) missing.push_back(world.rank + rank);
    while (!missing.empty()) {
        if (!wait_readable(listener, deadline)) {
            throw CommError(fmt::format("ranks {} did not fetch the node's shared segment within {:.1f} s; check their output",
                                        fmt::join(missing, ", "), 1e-3 * static_cast<double>(timeout_ms)));
        }
        const FileHandle connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        Request request;
        // Ranks send this at once; whoever stays silent is no rank.
        if (!connection.is_open() || !wait_readable(connection.get(), Deadline::after_ms(2000))) continue;
        if (recv(connection.get(), &request, sizeof request, MSG_DONTWAIT) != sizeof request || request.secret != secret) continue;
        if (!send_descriptor(connection.get(), file)) {
            throw CommError(
                fmt::format("rank {} left while it was given the node's shared segment ({}); its own output says why, see it first",
                            request.rank, std::strerror(errno)));
        }
        std::erase(missing, request.rank);
    }
}

}  // namespace

FileHandle create_segment_file(size_t total_bytes) {
    check_room(total_bytes);
    FileHandle file(memfd_create("lockstep-segment", MFD_CLOEXEC));
    if (!file.is_open()) {
        throw DeviceError(fmt::format("cannot make the node's shared segment: {}; use comm.backend=gloo", std::strerror(errno)));
    }
    if (ftruncate(file.get(), static_cast<off_t>(total_bytes)) != 0) throw_no_room(total_bytes, 0, std::strerror(errno));
    // What all ranks use before they have their own blocks. The blocks are touched by their owners.
    int error = EINTR;
    while (error == EINTR) error = posix_fallocate(file.get(), 0, static_cast<off_t>(std::min(total_bytes, kCommonBytes)));
    if (error != 0) throw_no_room(total_bytes, available_memory_bytes().value_or(0), std::strerror(error));
    return file;
}

FileHandle create_and_hand_out(const World& world, Store& store, const std::string& prefix, size_t total_bytes,
                               int64_t timeout_ms) {
    const std::string key = prefix + "/segment";
    FileHandle file;
    try {
        file = create_segment_file(total_bytes);
    } catch (const DeviceError& error) {
        store.set(key, kErrorMark + std::string(error.what()));
        throw;
    }
    uint64_t secret = 0;
    check(getrandom(&secret, sizeof secret, 0) == sizeof secret, "the kernel gives random bytes");
    const std::string name = fmt::format("lockstep-{}-{}", getpid(), hash_hex(secret));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(name, length);
    const FileHandle listener = unix_socket();
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), world.local_size) != 0) {
        throw DeviceError(fmt::format("cannot listen on a unix socket: {}; use comm.backend=gloo", std::strerror(errno)));
    }
    store.set(key, fmt::format("{}{} {} {}", kReadyMark, total_bytes, secret, name));
    hand_out(listener.get(), file.get(), secret, world, timeout_ms);
    return file;
}

FileHandle receive_from_leader(const World& world, Store& store, const std::string& prefix, size_t total_bytes,
                               int64_t timeout_ms) {
    const int leader = world.rank - world.local_rank;
    const std::string offer = store.wait(prefix + "/segment", timeout_ms);
    if (!offer.empty() && offer[0] == kErrorMark) throw DeviceError(fmt::format("rank {}: {}", leader, offer.substr(1)));
    std::istringstream words(offer.substr(offer.empty() ? 0 : 1));
    size_t leader_bytes = 0;
    Request request{.rank = world.rank};
    std::string name;
    if (!(words >> leader_bytes >> request.secret >> name))
        throw CommError(fmt::format("rank {} offers no usable shared segment; restart the job", leader));
    if (leader_bytes != total_bytes) {
        throw CommError(
            fmt::format("ranks disagree on the shared segment: {} bytes on rank {}, {} on rank {}; give all ranks the same "
                        "program, configuration and data",
                        leader_bytes, leader, total_bytes, world.rank));
    }
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(name, length);
    const FileHandle connection = unix_socket();
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        send(connection.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
        throw CommError(fmt::format("cannot fetch the node's shared segment from rank {0}: {1}; rank {0} has probably ended",
                                    leader, std::strerror(errno)));
    }
    FileHandle file;
    if (wait_readable(connection.get(), Deadline::after_ms(timeout_ms))) file = receive_descriptor(connection.get());
    if (!file.is_open()) {
        throw CommError(fmt::format("rank {0} did not hand over the node's shared segment; rank {0} has probably ended", leader));
    }
    return file;
}

}  // namespace lockstep
