// How client and server of the store recognise each other (net/store_protocol.h): same program, same secret, a job that is served.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "net/socket.h"

namespace lockstep {

// The server's side of one connection, as a pure machine over payloads of frames.
class StoreGreeting {
public:
    // `serves` says why a job id is not served here; empty: it is.
    StoreGreeting(std::string_view secret, std::function<std::string(std::string_view job_id)> serves);

    struct Reply {
        std::string frame;    // to be sent
        std::string refusal;  // not empty: the frame says this, and the connection ends after it
    };
    Reply hear(std::string_view payload);

    bool is_done() const { return step_ == Step::done; }
    const std::string& job_id() const { return job_id_; }

    static Reply refuse(std::string_view reason);
    static Reply refuse_foreign_protocol();

private:
    Reply hear_hello(std::string_view payload);
    Reply hear_proof(std::string_view payload);

    enum class Step { hello, proof, done };
    const std::string secret_;
    const std::function<std::string(std::string_view)> serves_;
    Step step_ = Step::hello;
    std::string transcript_;
    std::string job_id_;
};

// The client's side. Throws StoreRefused when the other side is no store, or one of another job, program or secret; another
// CommError when the connection breaks or stays silent.
void greet_store(Socket& socket, std::string_view job_id, std::string_view secret, const Deadline& deadline);

}  // namespace lockstep
