#include "cli/chaos_job.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/drill_job.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "net/socket.h"
#include "trainer/checkpoint.h"

namespace lockstep::cli {

namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 5ms;
constexpr int kNotPermitted = 4;  // of scripts/netlab

double now_s() { return 1e-9 * static_cast<double>(now_ns()); }

class DrillRun {
public:
    DrillRun(const Drill& drill, const ChaosPlan& plan, const ChaosTarget& target)
        : drill_(drill), plan_(plan), target_(target), run_dir_(target.folder / drill.name) {
        fs::remove_all(run_dir_);
        make_directories(run_dir_);
        result_.log = run_dir_ / "output.log";
        std::ofstream(result_.log, std::ios::app).flush();
        program_ = fs::read_symlink("/proc/self/exe").string();
    }

    DrillResult run() {
        switch (drill_.fault) {
            case Fault::kill:
            case Fault::stop:
            case Fault::terminate:
            case Fault::pause:
            case Fault::slow:
                signal_a_rank();
                break;
            case Fault::nan:
            case Fault::flip:
                drill_in_the_program();
                break;
            case Fault::wrong_config:
                wrong_config();
                break;
            case Fault::corrupt_checkpoint:
                corrupt_checkpoint();
                break;
            case Fault::full_disk:
                full_disk();
                break;
            case Fault::cut_link:
            case Fault::slow_link:
                on_a_link();
                break;
            case Fault::clock_skew:
                clock_skew();
                break;
        }
        if (result_.skipped.empty()) judge();
        return std::move(result_);
    }

private:
    // ---- what is started ----

    std::vector<std::string> train(const std::vector<std::string>& settings) const {
        std::vector<std::string> words{"train", target_.config};
        words.insert(words.end(), target_.overrides.begin(), target_.overrides.end());
        words.insert(words.end(),
                     {"run.dir=" + run_dir_.string(), "train.log_every=1", "report.html=false", "train.eval_every=never",
                      "lr.warmup=0it", fmt::format("comm.timeout={}s", static_cast<int>(kCommTimeoutS))});
        words.insert(words.end(), settings.begin(), settings.end());
        return words;
    }
    std::vector<std::string> launched(const std::vector<std::string>& command) const {
        std::vector<std::string> words{program_, "run", "--nproc-per-node", std::to_string(plan_.ranks), "--"};
        words.insert(words.end(), command.begin(), command.end());
        return words;
    }
    static std::vector<std::string> endless(const std::string& saves = "never") {
        return {"train.duration=1000000it", "checkpoint.every=" + saves};
    }
    std::vector<std::string> steps(int64_t more) const {
        return {fmt::format("train.duration={}it", drill_.at_step + more), "checkpoint.every=1000000it"};
    }

    // ---- waiting ----

    bool wait_until(DrillJob& job, const std::function<bool()>& condition) {
        const double limit_s = now_s() + plan_.limit_s;
        while (!job.has_ended() && now_s() < limit_s) {
            if (condition()) return true;
            std::this_thread::sleep_for(kGlance);
        }
        return false;
    }
    bool wait_for_the_step(DrillJob& job) {
        return wait_until(job, [this] { return steps_made() >= drill_.at_step; });
    }
    void wait_for_the_end(DrillJob& job, double fault_s) {
        wait_until(job, [] { return false; });
        result_.exit_code = job.exit_code();
        if (fault_s > 0.0 && job.exit_code() >= 0) result_.after_s = job.ended_s() - fault_s;
        if (job.exit_code() < 0) complain(fmt::format("it had not ended after {:.0f} s", plan_.limit_s));
    }
    int64_t steps_made() const {
        std::ifstream file(run_dir_ / "metrics.jsonl");
        int64_t made = 0;
        for (std::string line; std::getline(file, line);) {
            const auto json = nlohmann::json::parse(line, nullptr, false);
            if (!json.is_discarded() && json.contains("train.loss")) made = json.at("step").get<int64_t>() + 1;
        }
        return made;
    }

    // ---- the faults ----

    void signal_a_rank() {
        const bool ends = drill_.fault != Fault::pause && drill_.fault != Fault::slow;
        DrillJob job(launched(train(ends ? endless() : steps(40))), {}, result_.log);
        if (!wait_for_the_step(job)) complain("the job ended before the fault");
        const pid_t victim = job.process_of_rank(drill_.rank);
        if (victim == 0) {
            complain(fmt::format("there is no rank {}", drill_.rank));
        } else {
            send_signals(job, victim);
        }
        wait_for_the_end(job, ends ? fault_s_ : 0.0);
    }
    void send_signals(DrillJob& job, pid_t victim) {
        fault_s_ = now_s();
        if (drill_.fault == Fault::kill) kill(victim, SIGKILL);
        if (drill_.fault == Fault::terminate) kill(victim, SIGTERM);
        if (drill_.fault == Fault::stop || drill_.fault == Fault::pause) kill(victim, SIGSTOP);
        if (drill_.fault == Fault::pause) {
            std::this_thread::sleep_for(std::chrono::duration<double>(kCommTimeoutS / 2.0));
            kill(victim, SIGCONT);
        }
        if (drill_.fault != Fault::slow) return;
        wait_until(job, [victim] {  // runs a fifth of the time
            kill(victim, SIGSTOP);
            std::this_thread::sleep_for(20ms);
            kill(victim, SIGCONT);
            return false;
        });
    }

    void drill_in_the_program() {
        std::vector<std::string> settings = endless();
        settings.emplace_back(drill_.fault == Fault::flip ? "train.check_replicas=1it" : "train.check_replicas=never");
        const std::string what = fmt::format("{}:{}:{}", name_of(drill_.fault), drill_.rank, drill_.at_step);
        DrillJob job(launched(train(settings)), {{"LOCKSTEP_DRILL", what}}, result_.log);
        if (wait_until(job, [&] { return job.output().find("drill: ") != std::string::npos; })) fault_s_ = now_s();
        wait_for_the_end(job, fault_s_);
    }

    // For a shell.
    static std::string quoted(const std::vector<std::string>& words) {
        std::string text;
        for (const std::string& word : words) text += "'" + word + "' ";
        return text;
    }
    std::vector<std::string> ourselves(std::vector<std::string> words) const {
        words.insert(words.begin(), program_);
        return words;
    }

    // Each rank is a node with a launcher of its own, so that clocks are compared; another than the wrong one keeps the meeting
    // place.
    void clock_skew() {
        const std::string meeting = fmt::format("127.0.0.1:{}", bound_port(listen_on("127.0.0.1", 0).get()));
        std::string script;
        for (int rank = 0; rank < plan_.ranks; ++rank) {
            const bool is_wrong = rank == drill_.rank;
            std::vector<std::string> words = ourselves({"run", "--nnodes", std::to_string(plan_.ranks), "--nproc-per-node", "1",
                                                        "--rdzv-endpoint", meeting, "--rdzv-id", "drill"});
            if (is_wrong && plan_.ranks > 1) words.insert(words.end(), {"--rdzv-conf", "is_host=false"});
            const std::vector<std::string> command = train(steps(10));
            words.emplace_back("--");
            words.insert(words.end(), command.begin(), command.end());
            script += fmt::format("{}{}& jobs=\"$jobs $!\"\n", is_wrong ? "LOCKSTEP_DRILL=clock:3600 " : "", quoted(words));
        }
        DrillJob job({"/bin/sh", "-c", script + "for job in $jobs; do wait $job || code=$?; done; exit ${code:-0}"}, {},
                     result_.log);
        wait_for_the_end(job, 0.0);
    }

    void wrong_config() {
        std::vector<std::string> other = endless();
        other.emplace_back("optim.weight_decay=0.03125");
        const std::string script = fmt::format("if [ \"$LOCKSTEP_RANK\" = {} ]; then exec {}; else exec {}; fi", drill_.rank,
                                               quoted(ourselves(train(other))), quoted(ourselves(train(endless()))));
        DrillJob job(launched({"sh", "-c", script}), {}, result_.log);
        wait_for_the_end(job, 0.0);
    }

    void corrupt_checkpoint() {
        const auto with_saves = [this](int64_t more) {
            return train(
                {fmt::format("train.duration={}it", drill_.at_step + more), "checkpoint.every=1it", "checkpoint.keep_last=3"});
        };
        {
            DrillJob job(launched(with_saves(0)), {}, result_.log);
            wait_for_the_end(job, 0.0);
        }
        const auto found = list_checkpoints(run_dir_ / "checkpoints");
        if (found.empty()) return complain("the first job left no checkpoint");
        std::fstream file(found.front().second / kModelFile, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-3, std::ios::end);
        file.put('\x5a').put('\xa5');
        file.close();
        DrillJob job(launched(with_saves(3)), {}, result_.log);
        wait_for_the_end(job, 0.0);
    }

    void full_disk() {
        const SmallDisk disk(run_dir_ / "checkpoints");
        if (!disk.is_there()) return skip("file systems may not be mounted here");
        DrillJob job(launched(train(endless("1it"))), {}, result_.log);
        if (!wait_for_the_step(job)) complain("the job ended before the fault");
        disk.fill();
        wait_until(job, [&] { return job.output().find("was not written") != std::string::npos; });
        if (const pid_t victim = job.process_of_rank(drill_.rank); victim != 0) kill(victim, SIGTERM);
        wait_for_the_end(job, 0.0);
    }

    // Two nodes that are network namespaces.
    void on_a_link() {
        const char* const variable = std::getenv("LOCKSTEP_NETLAB_PROGRAM");
        const std::string netlab = variable != nullptr ? variable : (fs::path(program_).parent_path() / "lockstep_netlab").string();
        if (!fs::exists(netlab)) return skip("lockstep_netlab is not built");
        {
            DrillJob trial({netlab, "--", "/bin/true"}, {}, run_dir_ / "trial.log");
            wait_until(trial, [] { return false; });
            if (trial.exit_code() == kNotPermitted) return skip("network namespaces are not permitted here");
        }
        const bool cuts = drill_.fault == Fault::cut_link;
        std::vector<std::string> words{netlab, "--nodes", "2", "--delay-ms", cuts ? "0.1" : "5"};
        if (!cuts) words.insert(words.end(), {"--rate-mbit", "50"});
        words.insert(words.end(), {"--", program_});
        const std::vector<std::string> command = train(cuts ? endless() : steps(10));
        words.insert(words.end(), command.begin(), command.end());
        DrillJob job(words, {}, result_.log);
        if (cuts && wait_for_the_step(job)) {
            fault_s_ = now_s();
            job.signal(SIGUSR1);
        }
        wait_for_the_end(job, fault_s_);
    }

    // ---- the verdict ----

    void judge() {
        const Expectation& expect = drill_.expect;
        if (result_.exit_code != expect.exit_code)
            complain(fmt::format("exit code {}, expected {}", result_.exit_code, expect.exit_code));
        const std::string output = read_file(result_.log);
        for (const std::string& piece : expect.says) {
            if (output.find(piece) == std::string::npos) complain(fmt::format("it did not say \"{}\"", piece));
        }
        if (expect.within_s > 0.0 && result_.after_s > expect.within_s)
            complain(fmt::format("ended after {:.2f} s, expected within {:.2f} s", result_.after_s, expect.within_s));
    }
    void complain(std::string text) { result_.complaints.push_back(std::move(text)); }
    void skip(std::string reason) { result_.skipped = std::move(reason); }

    const Drill& drill_;
    const ChaosPlan& plan_;
    const ChaosTarget& target_;
    const fs::path run_dir_;
    std::string program_;
    DrillResult result_;
    double fault_s_ = 0.0;
};

}  // namespace

DrillResult run_drill(const Drill& drill, const ChaosPlan& plan, const ChaosTarget& target) {
    return DrillRun(drill, plan, target).run();
}

}  // namespace lockstep::cli
