#include "collectives/probe.h"

#include <algorithm>
#include <vector>

#include "collectives/kernels/reduce_kernels.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kSmallBytes = 8;
constexpr size_t kMiddleBytes = size_t{64} << 10;
constexpr size_t kLargeBytes = size_t{1} << 20;
constexpr int64_t kPatienceNs = 50'000'000;
constexpr int kMostBurstPeers = 7;
constexpr int kGrowWindow = 3;  // large messages before one counts

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

double us_since(int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) * 1e-3; }

// What one pairing says, by pair; equal numbers of values on all ranks, so that they can be gathered.
struct Report {
    double small_us = 0.0;  // half a round trip, median
    double large_us = 0.0;  // half a round trip, the fastest
    double burst_us = 0.0;
    double sum_us = 0.0;  // of adding a megabyte
    double peer = -1.0;   // index of the other one; -1: nothing measured
};

class Probe {
public:
    Probe(Transport& transport, std::span<const int> ranks, int self, const ProbeOptions& options)
        : transport_(transport), ranks_(ranks), self_(self), options_(options), outgoing_(kLargeBytes), incoming_(kLargeBytes) {}

    ProbeResult run() {
        const int64_t start_ns = now_ns();
        const std::vector<int> distances = pairing_distances();
        plan_repeats(static_cast<int>(distances.size()));
        ProbeResult result;
        const double burst_us = median_burst_us();
        const double sum_us = median_sum_us();
        for (const int distance : distances) {
            Report mine{.burst_us = burst_us, .sum_us = sum_us};
            measure_pair(self_ ^ distance, mine);
            const std::vector<Report> all = gather(mine);
            take_worst(all, result);
        }
        finish(result);
        result.duration_ms = us_since(start_ns) * 1e-3;
        return result;
    }

private:
    int rank_count() const { return static_cast<int>(ranks_.size()); }

    // Partner = own index with one bit changed: neighbours, halfway across, and something between.
    std::vector<int> pairing_distances() const {
        std::vector<int> all;
        for (int distance = 1; distance < rank_count(); distance *= 2) all.push_back(distance);
        if (all.size() <= 3) return all;
        return {all.front(), all[all.size() / 2], all.back()};
    }

    Transfer transfer(int index, std::byte* data, size_t bytes) const {
        Transfer one;
        one.peer = ranks_[static_cast<size_t>(index)];
        one.tag = options_.tag;
        one.data = data;
        one.bytes = bytes;
        return one;
    }
    void finish(Transfer& one) {
        while (!one.complete()) transport_.progress(kPatienceNs);
    }
    void send(int index, const void* data, size_t bytes) {
        Transfer one = transfer(index, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes);  // a send only reads
        transport_.post_send(one);
        finish(one);
    }
    void receive(int index, void* data, size_t bytes) {
        Transfer one = transfer(index, static_cast<std::byte*>(data), bytes);
        transport_.post_receive(one);
        finish(one);
    }

    // Half a round trip; the lower index begins.
    double ping_pong_us(int peer, size_t bytes) {
        const int64_t start_ns = now_ns();
        if (self_ < peer) {
            send(peer, outgoing_.data(), bytes);
            receive(peer, incoming_.data(), bytes);
        } else {
            receive(peer, incoming_.data(), bytes);
            send(peer, outgoing_.data(), bytes);
        }
        return us_since(start_ns) / 2.0;
    }
    double median_ping_pong_us(int peer, size_t bytes, int repeats) {
        std::vector<double> times;
        for (int repeat = 0; repeat < repeats; ++repeat) times.push_back(ping_pong_us(peer, bytes));
        return median(std::move(times));
    }
    // Of a connection as training has it: its window has grown, which takes several messages, and whatever else the machines do
    // only makes a message slower.
    double fastest_ping_pong_us(int peer, size_t bytes, int repeats) {
        for (int repeat = 0; repeat < kGrowWindow; ++repeat) ping_pong_us(peer, bytes);
        double fastest_us = ping_pong_us(peer, bytes);
        for (int repeat = 1; repeat < repeats; ++repeat) fastest_us = std::min(fastest_us, ping_pong_us(peer, bytes));
        return fastest_us;
    }

    // Everyone's report, indexed by rank, on all ranks: to the first, and back.
    std::vector<Report> gather(const Report& mine) {
        std::vector<Report> all(ranks_.size());
        const size_t all_bytes = all.size() * sizeof(Report);
        if (self_ != 0) {
            send(0, &mine, sizeof(mine));
            receive(0, all.data(), all_bytes);
            return all;
        }
        all[0] = mine;
        for (int index = 1; index < rank_count(); ++index) receive(index, &all[static_cast<size_t>(index)], sizeof(Report));
        for (int index = 1; index < rank_count(); ++index) send(index, all.data(), all_bytes);
        return all;
    }

    // A first look decides, on all ranks alike, how often and how much.
    void plan_repeats(int pairings) {
        Report mine;
        const int peer = self_ ^ 1;
        if (peer < rank_count()) {
            ping_pong_us(peer, kSmallBytes);  // opens windows, wakes what sleeps
            mine.small_us = ping_pong_us(peer, kSmallBytes);
            mine.large_us = fastest_ping_pong_us(peer, kMiddleBytes, 1);
        }
        double small_us = 1.0;
        double middle_us = 1.0;
        for (const Report& report : gather(mine)) {
            small_us = std::max(small_us, report.small_us);
            middle_us = std::max(middle_us, report.large_us);
        }
        const double share_us = 1e3 * static_cast<double>(options_.budget_ms) / pairings;
        const auto repeats = [&](double part, double half_trip_us, int least, int most) {
            return static_cast<int>(
                std::clamp(part * share_us / (2.0 * half_trip_us), static_cast<double>(least), static_cast<double>(most)));
        };
        const double per_byte_us = std::max(middle_us - small_us, 0.0) / static_cast<double>(kMiddleBytes);
        const double predicted_us = small_us + per_byte_us * static_cast<double>(kLargeBytes);
        large_bytes_ = (1 + kGrowWindow) * 2.0 * predicted_us < 0.6 * share_us ? kLargeBytes : kMiddleBytes;
        small_repeats_ = repeats(0.15, small_us, 3, 50);
        large_repeats_ = repeats(0.6, large_bytes_ == kLargeBytes ? predicted_us : middle_us, 1 + kGrowWindow, 12) - kGrowWindow;
        burst_repeats_ = repeats(0.15 * pairings, small_us, 3, 30);
    }

    void measure_pair(int peer, Report& mine) {
        if (peer >= rank_count()) return;
        mine.peer = peer;
        ping_pong_us(peer, kSmallBytes);
        mine.small_us = median_ping_pong_us(peer, kSmallBytes, small_repeats_);
        mine.large_us = fastest_ping_pong_us(peer, large_bytes_, large_repeats_);
    }

    int burst_peers() const { return std::min(rank_count() - 1, kMostBurstPeers); }
    int burst_messages() const { return std::max(burst_peers(), rank_count() <= 4 ? kMostBurstPeers : 2); }

    // Everyone sends a message to each of the next ranks and receives one from each before; with few ranks, several.
    double burst_us() {
        const int messages = burst_messages();
        std::vector<Transfer> sends;
        std::vector<Transfer> receives;
        for (int index = 0; index < messages; ++index) {
            const int step = 1 + index % burst_peers();
            std::byte* place = incoming_.data() + static_cast<size_t>(index) * kSmallBytes;
            receives.push_back(transfer((self_ - step + rank_count()) % rank_count(), place, kSmallBytes));
            sends.push_back(transfer((self_ + step) % rank_count(), outgoing_.data(), kSmallBytes));
        }
        const int64_t start_ns = now_ns();
        for (Transfer& one : receives) transport_.post_receive(one);
        for (Transfer& one : sends) transport_.post_send(one);
        for (Transfer& one : sends) finish(one);
        for (Transfer& one : receives) finish(one);
        return us_since(start_ns);
    }
    double median_burst_us() {
        burst_us();  // ranks fall into step
        std::vector<double> times;
        for (int repeat = 0; repeat < burst_repeats_; ++repeat) times.push_back(burst_us());
        return median(std::move(times));
    }

    static double median_sum_us() {
        std::vector<float> left(kLargeBytes / sizeof(float), 1.0F);
        std::vector<float> right(kLargeBytes / sizeof(float), 0.0F);
        const float* inputs[] = {left.data(), right.data()};
        std::vector<double> times;
        for (int repeat = 0; repeat < 6; ++repeat) {
            const int64_t start_ns = now_ns();
            reduce_kernels::sum(left.data(), inputs, 2, left.size());
            times.push_back(us_since(start_ns));
        }
        times.erase(times.begin());  // page faults
        return median(std::move(times));
    }

    // The worst of all pairs and ranks, from numbers that all ranks hold: the same everywhere.
    void take_worst(const std::vector<Report>& all, ProbeResult& result) {
        for (size_t index = 0; index < all.size(); ++index) {
            const Report& report = all[index];
            worst_.burst_us = std::max(worst_.burst_us, report.burst_us);
            worst_.sum_us = std::max(worst_.sum_us, report.sum_us);
            if (report.peer < 0.0) continue;
            worst_per_byte_us_ =
                std::max(worst_per_byte_us_, (report.large_us - report.small_us) / static_cast<double>(large_bytes_));
            if (result.best_message_us == 0.0 || report.small_us < result.best_message_us) result.best_message_us = report.small_us;
            if (report.small_us <= worst_.small_us) continue;
            worst_.small_us = report.small_us;
            result.worst_rank = ranks_[index];
            result.worst_peer = ranks_[static_cast<size_t>(report.peer)];
        }
    }

    void finish(ProbeResult& result) const {
        // m messages out, m in: L + (m + 1) o; one out, one in: L + 2 o.
        const double further_us = (worst_.burst_us - worst_.small_us) / (burst_messages() - 1);
        LinkModel& link = result.link;
        link.overhead_us = std::clamp(further_us, 0.0, worst_.small_us / 2.0);
        link.latency_us = std::max(worst_.small_us - 2.0 * link.overhead_us, 0.0);
        link.wire_ns_per_byte = std::max(1e3 * worst_per_byte_us_, 1e-3);
        link.sum_ns_per_byte = 1e3 * worst_.sum_us / static_cast<double>(kLargeBytes);
    }

    Transport& transport_;
    const std::span<const int> ranks_;
    const int self_;
    const ProbeOptions options_;
    std::vector<std::byte> outgoing_;
    std::vector<std::byte> incoming_;
    size_t large_bytes_ = kLargeBytes;
    int small_repeats_ = 1;
    int large_repeats_ = 1;
    int burst_repeats_ = 1;
    Report worst_;
    double worst_per_byte_us_ = 0.0;
};

}  // namespace

ProbeResult probe(Transport& transport, std::span<const int> ranks, int self, const ProbeOptions& options) {
    check(ranks.size() >= 2 && self >= 0 && static_cast<size_t>(self) < ranks.size(),
          "a probe needs two ranks and to know its own");
    return Probe(transport, ranks, self, options).run();
}

}  // namespace lockstep
