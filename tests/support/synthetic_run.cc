#include "tests/support/synthetic_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report/recorder.h"

namespace lockstep::testing_support {

namespace {

constexpr int64_t kOriginNs = 1'000'000'000'000;

int64_t extra(const std::function<int64_t(int, int64_t)>& added, int rank, int64_t step) { return added ? added(rank, step) : 0; }

// One rank on its way through a step.
struct Walker {
    StoredStep step;
    int64_t now_ns = 0;
    int64_t backward_begin_ns = 0;

    void spend(Span::Kind kind, int64_t length_ns) {
        if (length_ns > 0) step.spans.push_back({kind, now_ns, now_ns + length_ns});
        now_ns += length_ns;
    }
};

Walker walk_to_finish(const SyntheticRun& plan, int rank, int64_t step, int64_t begin_ns) {
    Walker walker{{.step = step, .begin_ns = begin_ns, .images = plan.images_per_rank}, begin_ns};
    walker.spend(Span::Kind::data_wait, plan.data_wait_ns + extra(plan.extra_data_wait_ns, rank, step));
    walker.now_ns += plan.other_ns;
    walker.spend(Span::Kind::forward, plan.forward_ns + extra(plan.extra_forward_ns, rank, step));
    walker.backward_begin_ns = walker.now_ns;
    walker.spend(Span::Kind::backward, plan.backward_ns);
    return walker;
}

// Fills the buckets of all ranks; returns when the last one ended.
int64_t communicate(const SyntheticRun& plan, std::vector<Walker>& walkers) {
    int64_t previous_end_ns = 0;
    const auto bucket_count = static_cast<int64_t>(plan.transfer_ns.size());
    for (int64_t bucket = 0; bucket < bucket_count; ++bucket) {
        int64_t arrived_ns = 0;
        for (Walker& walker : walkers) {
            const int64_t ready_ns = walker.backward_begin_ns + plan.backward_ns * (bucket + 1) / bucket_count;
            const int64_t start_ns = std::max(ready_ns, previous_end_ns);
            walker.step.buckets.push_back({static_cast<int32_t>(bucket), ready_ns, start_ns, 0, 0});
            arrived_ns = std::max(arrived_ns, start_ns);
        }
        previous_end_ns = arrived_ns + plan.transfer_ns[static_cast<size_t>(bucket)];
        for (Walker& walker : walkers) {
            walker.step.buckets.back().arrived_ns = plan.records_arrival ? arrived_ns : 0;
            walker.step.buckets.back().end_ns = previous_end_ns;
        }
    }
    return previous_end_ns;
}

void shift(StoredStep& step, int64_t by_ns) {
    step.begin_ns += by_ns;
    step.end_ns += by_ns;
    for (Span& span : step.spans) {
        span.begin_ns += by_ns;
        span.end_ns += by_ns;
    }
    for (BucketRecord& bucket : step.buckets) {
        for (int64_t* time_ns : {&bucket.ready_ns, &bucket.start_ns, &bucket.arrived_ns, &bucket.end_ns}) {
            if (*time_ns != 0) *time_ns += by_ns;
        }
    }
}

}  // namespace

RunFacts synthetic_facts(const SyntheticRun& plan, int rank) {
    RunFacts facts{.name = "synthetic", .model = "resnet20", .data = "made up", .backend = "none", .communicator = "none"};
    facts.command = "lockstep train configs/synthetic.yaml";
    facts.config_hash = "0123456789abcdef";
    facts.program_version = "0.1.0";
    facts.host = "node0";
    facts.started = "2030-01-31T12:34:56Z";
    facts.world_size = plan.rank_count;
    facts.rank = rank;
    facts.batch_global = plan.images_per_rank * plan.rank_count;
    facts.per_replica = plan.images_per_rank;
    facts.seed = 42;
    facts.parameter_count = 269'722;
    for (size_t bucket = 0; bucket < plan.transfer_ns.size(); ++bucket) {
        facts.buckets.push_back({fmt::format("layer{}", plan.transfer_ns.size() - bucket), plan.bucket_bytes});
    }
    return facts;
}

RunRecords make_synthetic_run(const SyntheticRun& plan) {
    RunRecords run{.world_size = plan.rank_count};
    for (int rank = 0; rank < plan.rank_count; ++rank) {
        run.ranks.push_back({.facts = synthetic_facts(plan, rank), .session_starts = {0}});
    }
    std::vector<int64_t> begin_ns(static_cast<size_t>(plan.rank_count), kOriginNs);
    for (int64_t step = 0; step < plan.step_count; ++step) {
        std::vector<Walker> walkers;
        for (int rank = 0; rank < plan.rank_count; ++rank) {
            walkers.push_back(walk_to_finish(plan, rank, step, begin_ns[static_cast<size_t>(rank)]));
        }
        const int64_t finished_ns = communicate(plan, walkers);
        for (size_t rank = 0; rank < walkers.size(); ++rank) {
            Walker& walker = walkers[rank];
            walker.spend(Span::Kind::finish_wait, std::max<int64_t>(0, finished_ns - walker.now_ns));
            walker.spend(Span::Kind::optimizer, plan.optimizer_ns);
            walker.step.end_ns = walker.now_ns;
            begin_ns[rank] = walker.now_ns;
            run.ranks[rank].steps.push_back(std::move(walker.step));
        }
    }
    return run;
}

void write_synthetic_run(const SyntheticRun& plan, const std::filesystem::path& run_dir) {
    for (const RankRecords& records : make_synthetic_run(plan).ranks) {
        const auto recorder = Recorder::create({.run_dir = run_dir, .tensorboard = false}, records.facts);
        int64_t paused_ns = 0;  // evaluation shifts everything behind it
        for (StoredStep step : records.steps) {
            shift(step, paused_ns);
            recorder->record_step({step.step, step.begin_ns, step.end_ns, step.images, step.spans, step.buckets});
            if ((step.step + 1) % 50 != 0) continue;
            constexpr int64_t kEvaluationNs = 40'000'000;
            recorder->record_pause({Span::Kind::evaluation, step.end_ns, step.end_ns + kEvaluationNs});
            paused_ns += kEvaluationNs;
            const double progress = static_cast<double>(step.step + 1) / static_cast<double>(plan.step_count);
            const double loss = 0.25 + 2.0 * std::exp(-4.0 * progress);
            MetricsLine line{step.step, 10.0 * progress, {{"train.loss", loss}, {"val.loss", loss + 0.08 + 0.1 * progress}}};
            line.values.emplace_back("val.top1", 0.95 - 0.85 * std::exp(-5.0 * progress));
            line.values.emplace_back("lr", 0.05 * (1.0 + std::cos(3.14159265 * progress)));
            recorder->write_metrics(line);
        }
    }
}

}  // namespace lockstep::testing_support
