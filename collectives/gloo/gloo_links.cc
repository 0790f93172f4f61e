#include "collectives/gloo/gloo_links.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kNoticeSlot = 1;
constexpr auto kTick = std::chrono::milliseconds(20);
constexpr auto kForever = std::chrono::hours(24 * 365);  // waits are ended by the messenger's tick, not by Gloo
constexpr auto kNoticePatience = std::chrono::milliseconds(300);

}  // namespace

GlooLinks::GlooLinks(const World& world, std::shared_ptr<gloo::Context> context, int64_t timeout_ms)
    : world_(world),
      context_(std::move(context)),
      timeout_ns_(timeout_ms * 1'000'000),
      inbox_(static_cast<size_t>(world.size)),
      inbox_buffers_(static_cast<size_t>(world.size)),
      peer_states_(static_cast<size_t>(world.size), PeerState::connected) {
    for (int peer = 0; peer < world_.size; ++peer) {
        if (peer == world_.rank) continue;
        const auto index = static_cast<size_t>(peer);
        inbox_buffers_[index] = make_buffer(&inbox_[index], sizeof(Notice));
        receive(*inbox_buffers_[index], peer, kNoticeSlot, 0, sizeof(Notice));
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    messenger_ = std::thread([this] { run_messenger(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

GlooLinks::~GlooLinks() {
    post_notice(NoticeKind::left, "");
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    messenger_changed_.notify_all();
    messenger_.join();
}

std::unique_ptr<GlooBuffer> GlooLinks::make_buffer(void* data, size_t bytes) { return context_->createUnboundBuffer(data, bytes); }

void GlooLinks::send(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes) {
    try {
        buffer.send(peer, slot, offset, bytes);
    } catch (const std::exception& error) {
        on_broken_connection(peer, error.what(), 0);
    }
}

void GlooLinks::receive(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes) {
    try {
        buffer.recv(peer, slot, offset, bytes);
    } catch (const std::exception& error) {
        on_broken_connection(peer, error.what(), 0);
    }
}

bool GlooLinks::try_receive(GlooBuffer& buffer, int peer, uint64_t slot, size_t offset, size_t bytes) {
    try {
        buffer.recv(peer, slot, offset, bytes);
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

void GlooLinks::wait_sent(GlooBuffer& buffer, int peer) {
    wait_watched(buffer, peer, true, [&] { return buffer.waitSend(kForever); });
}

void GlooLinks::wait_received(GlooBuffer& buffer, int peer) {
    wait_watched(buffer, peer, false, [&] { return buffer.waitRecv(kForever); });
}

// `wait` returns false when the messenger's tick has woken it.
template <typename Wait>
void GlooLinks::wait_watched(GlooBuffer& buffer, int peer, bool is_send, Wait wait) {
    AwakeClock awake(timeout_ns_ / 10);
    const int64_t start_ns = awake.read();
    bool had_left = false;
    while (true) {
        {
            const std::lock_guard lock(mutex_);
            awaited_ = &buffer;
            awaited_is_send_ = is_send;
        }
        bool done = false;
        std::string broken;
        try {
            done = wait();
        } catch (const std::exception& error) {
            broken = error.what();
        }
        {
            const std::lock_guard lock(mutex_);
            awaited_ = nullptr;
        }
        if (done) return;
        const int64_t waited_ns = awake.read() - start_ns;
        if (!broken.empty()) on_broken_connection(peer, broken, waited_ns);
        // The tick may have hidden that the message is there: a peer that leaves has sent it before its notice. So one more wait.
        check_health(peer, waited_ns, had_left);
        had_left = peer_states_[static_cast<size_t>(peer)] == PeerState::left;
    }
}

void GlooLinks::refresh_peer(int peer) {
    const auto index = static_cast<size_t>(peer);
    if (peer == world_.rank || peer_states_[index] != PeerState::connected) return;
    Notice& notice = inbox_[index];
    GlooBuffer& buffer = *inbox_buffers_[index];
    try {
        // A first look at the last field says whether a notice has come; the wait then makes its bytes visible here. Without one
        // the wait is told beforehand to return at once: it throws when the connection is closed.
        const bool arrived = std::atomic_ref(notice.kind).load(std::memory_order_acquire) != NoticeKind::none;
        if (!arrived) buffer.abortWaitRecv();
        if (!buffer.waitRecv(kForever)) return;
    } catch (const std::exception&) {
        peer_states_[index] = PeerState::closed;
        return;
    }
    peer_states_[index] = PeerState::left;
    if (notice.kind == NoticeKind::failed && told_.empty()) told_ = notice.text;
}

void GlooLinks::throw_if_told() {
    if (!told_.empty()) throw CommError(fmt::format("{} [rank {} was in {}]", told_, world_.rank, describe(label_)));
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommError(fmt::format("{} [rank {} was in {}]", outbox_.text, world_.rank, describe(label_)));
}

void GlooLinks::check_health(int awaited_peer, int64_t waited_ns, bool is_last_look) {
    for (int peer = 0; peer < world_.size; ++peer) refresh_peer(peer);
    throw_if_told();
    for (int peer = 0; peer < world_.size; ++peer) {
        const PeerState state = peer_states_[static_cast<size_t>(peer)];
        if (state == PeerState::closed) {
            fail(failure_text(fmt::format("rank {} died or lost its connection", peer), world_.rank, label_, waited_ns));
        }
        if (state == PeerState::left && peer == awaited_peer && is_last_look) {
            fail(failure_text(fmt::format("rank {} left the job", peer), world_.rank, label_, waited_ns));
        }
    }
    if (waited_ns >= timeout_ns_) {
        fail(failure_text(fmt::format("rank {} made no progress for {:.1f} s", awaited_peer, 1e-9 * static_cast<double>(waited_ns)),
                          world_.rank, label_, waited_ns));
    }
}

void GlooLinks::on_broken_connection(int peer, std::string_view error, int64_t waited_ns) {
    // Whoever is the cause of all this may have sent a notice that is still on its way.
    for (int attempt = 0; attempt < 3; ++attempt) {
        check_health(peer, waited_ns, true);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    fail(failure_text(fmt::format("connection to rank {} broke ({})", peer, error), world_.rank, label_, waited_ns));
}

void GlooLinks::sleep_ns(int64_t duration_ns) {
    const int64_t end_ns = now_ns() + duration_ns;
    for (int64_t left_ns = duration_ns; left_ns > 0; left_ns = end_ns - now_ns()) {
        for (int peer = 0; peer < world_.size; ++peer) refresh_peer(peer);
        throw_if_told();
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(left_ns, 20'000'000)));
    }
}

void GlooLinks::fail(const std::string& text) {
    post_notice(NoticeKind::failed, text);
    throw CommError(text);
}

void GlooLinks::abort(std::string_view reason) noexcept {
    char text[sizeof(Notice::text)];
    const auto result = fmt::format_to_n(text, sizeof text - 1, "rank {} gave up: {}", world_.rank, reason);
    post_notice(NoticeKind::failed, {text, std::min(result.size, sizeof text - 1)});
    const std::lock_guard lock(mutex_);
    aborted_ = true;
}

void GlooLinks::post_notice(NoticeKind kind, std::string_view text) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (outbox_.kind != NoticeKind::none) return;  // the first cause counts
        const std::string_view kept = text.substr(0, sizeof outbox_.text - 1);
        std::copy(kept.begin(), kept.end(), outbox_.text);
        outbox_.kind = kind;
    }
    messenger_changed_.notify_all();
}

void GlooLinks::send_notice() noexcept {
    std::vector<std::unique_ptr<GlooBuffer>> buffers;
    for (int peer = 0; peer < world_.size; ++peer) {
        if (peer == world_.rank) continue;
        try {
            auto buffer = make_buffer(&outbox_, sizeof outbox_);
            buffer->send(peer, kNoticeSlot, 0, sizeof outbox_);
            buffers.push_back(std::move(buffer));
        } catch (const std::exception&) {
            continue;  // it is gone and needs no notice
        }
    }
    for (const auto& buffer : buffers) {
        try {
            buffer->waitSend(kNoticePatience);
        } catch (const std::exception&) {
            continue;  // gone or stuck; this rank ends either way
        }
    }
}

void GlooLinks::run_messenger() {
    std::unique_lock lock(mutex_);
    while (true) {
        messenger_changed_.wait_for(lock, kTick, [&] { return stopping_ || (outbox_.kind != NoticeKind::none && !notice_sent_); });
        if (outbox_.kind != NoticeKind::none && !notice_sent_) {
            notice_sent_ = true;
            lock.unlock();
            send_notice();
            lock.lock();
        }
        if (awaited_ != nullptr) awaited_is_send_ ? awaited_->abortWaitSend() : awaited_->abortWaitRecv();
        if (stopping_) return;
    }
}

}  // namespace lockstep
