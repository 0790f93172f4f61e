// One peer's connection: moves bytes between the socket and the in- and outbox, never blocking.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/tcp/inbox.h"
#include "collectives/tcp/mesh.h"
#include "collectives/tcp/outbox.h"
#include "collectives/tcp/peer_clock.h"
#include "net/socket.h"

namespace lockstep::tcp {

class Connection {
public:
    Connection(int own_rank, Link link, const TcpOptions& options);

    int peer() const { return peer_; }
    int descriptor() const { return socket_.get(); }
    Inbox& inbox() { return inbox_; }
    Outbox& outbox() { return outbox_; }
    PeerClock& clock() { return clock_; }
    bool has_posted() const { return inbox_.has_posted() || outbox_.has_posted(); }

    void on_events(uint32_t epoll_events);  // edge triggered: remembered until read or written dry
    // At most one read and a few frames of writing, so that no peer starves the others. Returns the payload bytes moved.
    size_t pump(int64_t now);
    // For the last words: writes what goes, throws away what comes.
    void pump_output_only();

    bool is_closed() const { return closed_; }  // nothing more will come
    const std::string& close_reason() const { return close_reason_; }

    // How long the kernel may try in vain to get bytes across before it gives the connection up; 0: for ever.
    void set_user_timeout(int64_t timeout_ms);
    bool output_blocked() const { return !writable_ && !outbox_.empty(); }
    bool is_flushed() const;  // everything has arrived at the peer's kernel, or never will
    void reset();             // closes at once; the peer learns it even when it does not read

private:
    size_t read_some();
    size_t write_some();
    void consume_staged();
    void set_low_water();
    void close_with(std::string reason);

    const int peer_;
    FileHandle socket_;
    Inbox inbox_;
    Outbox outbox_;
    PeerClock clock_;
    bool readable_ = true;
    bool writable_ = true;
    bool hung_up_ = false;  // the end of the stream, or an error, is somewhere behind the bytes that are still to be read
    bool write_broken_ = false;
    bool closed_ = false;
    std::string close_reason_;
    int64_t user_timeout_ms_ = 0;
    int low_water_ = 1;  // bytes that must be there before the kernel says so
    // Bytes read ahead: headers and small messages come with one system call, and of a large chunk at most this much is copied.
    std::array<std::byte, 4096> staging_;
    size_t staged_first_ = 0;
    size_t staged_last_ = 0;
};

}  // namespace lockstep::tcp
