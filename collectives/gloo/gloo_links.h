// The connections to all peers, with our deadlines and errors. Gloo's own time limit closes every connection of the process and
// names nobody, so waits here are woken periodically and decide themselves: go on, or end with a CommError that names the peer.
//
// Each connection has a receive posted for a notice, in which a peer says that it has failed, and why, or that it leaves in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "collectives/operation.h"
#include "core/world.h"

namespace lockstep {

using GlooBuffer = gloo::transport::UnboundBuffer;

class GlooLinks {
public:
    GlooLinks(const World& world, std::shared_ptr<gloo::Context> context, int64_t timeout_ms);
    ~GlooLinks();  // tells the peers that this rank leaves

    std::unique_ptr<GlooBuffer> make_buffer(void* data, size_t bytes);
    void begin(const CollectiveLabel& label) { label_ = label; }

    // Posting returns at once; each post is answered by one wait. Communication thread only. Messages between two ranks with one
    // slot keep their order.
    void send(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes);
    void receive(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes);
    // False, and nothing posted, when the connection is gone: for receives that may never be needed.
    bool try_receive(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes);
    void wait_sent(GlooBuffer& buffer, int peer);
    void wait_received(GlooBuffer& buffer, int peer);
    void sleep_ns(int64_t duration_ns);  // not through an abort

    [[noreturn]] void fail(const std::string& text);  // tells all peers and throws
    void abort(std::string_view reason) noexcept;     // any thread

private:
    enum class NoticeKind : uint32_t { none = 0, failed = 1, left = 2 };
    struct Notice {
        char text[1020] = {};
        NoticeKind kind = NoticeKind::none;  // last: bytes arrive in order
    };
    enum class PeerState : uint8_t { connected, left, closed };

    template <typename Wait>
    void wait_watched(GlooBuffer& buffer, int peer, bool is_send, Wait wait);
    void throw_if_told();  // a peer has failed, or abort() was called here
    // `is_last_look`: what is awaited from a peer that has left cannot be there already.
    void check_health(int awaited_peer, int64_t waited_ns, bool is_last_look);
    void refresh_peer(int peer);
    [[noreturn]] void on_broken_connection(int peer, std::string_view error, int64_t waited_ns);
    void post_notice(NoticeKind kind, std::string_view text) noexcept;
    void send_notice() noexcept;
    void run_messenger();

    const World world_;
    const std::shared_ptr<gloo::Context> context_;
    const int64_t timeout_ns_;
    CollectiveLabel label_;

    std::vector<Notice> inbox_;  // by rank
    std::vector<std::unique_ptr<GlooBuffer>> inbox_buffers_;
    std::vector<PeerState> peer_states_;  // communication thread only
    std::string told_;                    // the first failure a peer told us of; communication thread only

    // The messenger wakes whoever waits and sends this rank's notice: in its own thread, because SIGPIPE is blocked there.
    std::mutex mutex_;
    std::condition_variable messenger_changed_;
    GlooBuffer* awaited_ = nullptr;  // guarded by mutex_, as are the next ones
    bool awaited_is_send_ = false;
    Notice outbox_;
    bool notice_sent_ = false;
    bool aborted_ = false;
    bool stopping_ = false;
    std::thread messenger_;
};

}  // namespace lockstep
