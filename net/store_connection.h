// One client's connection to the store's server: bytes in and out, cut into frames. While an answer is being sent nothing more is
// read, so a client holds at most one request.
#pragma once

#include <optional>
#include <string>

#include "net/socket.h"

namespace lockstep {

class StoreConnection {
public:
    StoreConnection(FileHandle handle, std::string peer) : handle_(std::move(handle)), peer_(std::move(peer)) {}

    int descriptor() const { return handle_.get(); }
    const std::string& peer() const { return peer_; }
    bool is_sending() const { return sent_ < output_.size(); }
    bool is_dead() const { return dead_; }
    bool has_spoken() const { return has_spoken_; }

    void drop() { dead_ = true; }
    void receive();
    void flush();
    void send(std::string frame);
    void send_and_close(std::string frame);

    // The payload of the next whole frame. `oversized`: what comes claims more than `limit_bytes`.
    std::optional<std::string> next_frame(size_t limit_bytes, bool& oversized);

private:
    FileHandle handle_;
    std::string peer_;
    std::string input_, output_;
    size_t sent_ = 0;
    bool closing_ = false;  // dead once `output_` is sent
    bool dead_ = false;
    bool has_spoken_ = false;
};

}  // namespace lockstep
