#include "cli/chaos_job.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "launch/child_process.h"
#include "trainer/checkpoint.h"

namespace lockstep::cli {

namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 5ms;
constexpr int kNotPermitted = 4;  // of scripts/netlab

double now_s() { return 1e-9 * static_cast<double>(now_ns()); }

// A program in a process group of its own, which ends with this object; its output goes to a file.
class Job {
public:
    Job(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& variables,
        const fs::path& log)
        : log_(log) {
        std::vector<std::string> environment = environment_with(variables);
        std::vector<std::string> words = command;
        const std::vector<char*> arguments = pointers(words), values = pointers(environment);
        const pid_t parent = getpid();
        pid_ = fork();
        if (pid_ < 0) throw DeviceError(fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
        if (pid_ == 0) become(arguments.data(), values.data(), log.c_str(), parent);
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() {
        if (has_ended()) return;
        kill(-pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }

    bool has_ended() {
        int status = 0;
        if (exit_code_ || waitpid(pid_, &status, WNOHANG) != pid_) return exit_code_.has_value();
        exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        ended_s_ = now_s();
        return true;
    }
    int exit_code() const { return exit_code_.value_or(-1); }
    double ended_s() const { return ended_s_; }
    void signal(int number) const { kill(pid_, number); }
    std::string output() const { return read_file(log_); }

    // The process that is rank `rank` of this job; 0: not there.
    pid_t process_of_rank(int rank) const {
        const std::string parent = fmt::format("{}", pid_);
        std::error_code error;
        for (const auto& item : fs::directory_iterator("/proc", error)) {
            const pid_t pid = std::atoi(item.path().filename().c_str());
            if (pid <= 0 || parent_of(pid) != pid_) continue;
            if (has_variable(pid, fmt::format("LOCKSTEP_RANK={}", rank))) return pid;
        }
        return 0;
    }

private:
    // In the child. A job ends when whoever makes faults in it is killed: nobody else would end it.
    [[noreturn]] static void become(char* const* arguments, char* const* environment, const char* log, pid_t parent) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(127);
        const int input = open("/dev/null", O_RDONLY), output = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
            execve(arguments[0], arguments, environment);
        _exit(127);
    }
    static std::vector<char*> pointers(std::vector<std::string>& words) {
        std::vector<char*> found;
        for (std::string& word : words) found.push_back(word.data());
        found.push_back(nullptr);
        return found;
    }
    static std::string content(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static pid_t parent_of(pid_t pid) {
        const std::string status = content(fmt::format("/proc/{}/stat", pid));
        const size_t name_end = status.rfind(')');
        return name_end == std::string::npos ? 0 : std::atoi(status.c_str() + name_end + 4);  // ") S 123"
    }
    static bool has_variable(pid_t pid, const std::string& variable) {
        const std::string all = '\0' + content(fmt::format("/proc/{}/environ", pid));
        return all.find('\0' + variable + '\0') != std::string::npos;
    }

    const fs::path log_;
    pid_t pid_ = 0;
    std::optional<int> exit_code_;
    double ended_s_ = 0.0;
};

// A small file system at a place, while it lives; where the system does not permit it, it is not there.
class SmallDisk {
public:
    explicit SmallDisk(fs::path place) : place_(std::move(place)) {
        make_directories(place_);
        // In a view of the file systems that is this process's and its jobs' own: it goes with them, however they end.
        is_there_ = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount("none", place_.c_str(), "tmpfs", 0, "size=64m") == 0;
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk() {
        if (is_there_) umount2(place_.c_str(), MNT_DETACH);
    }
    bool is_there() const { return is_there_; }
    void fill() const {
        std::ofstream file(place_ / "filler", std::ios::binary);
        const std::string block(1 << 16, 'x');
        while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
        }
    }

private:
    const fs::path place_;
    bool is_there_ = false;
};

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

    bool wait_until(Job& job, const std::function<bool()>& condition) {
        const double limit_s = now_s() + plan_.limit_s;
        while (!job.has_ended() && now_s() < limit_s) {
            if (condition()) return true;
            std::this_thread::sleep_for(kGlance);
        }
        return false;
    }
    bool wait_for_the_step(Job& job) {
        return wait_until(job, [this] { return steps_made() >= drill_.at_step; });
    }
    void wait_for_the_end(Job& job, double fault_s) {
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
        Job job(launched(train(ends ? endless() : steps(40))), {}, result_.log);
        if (!wait_for_the_step(job)) complain("the job ended before the fault");
        const pid_t victim = job.process_of_rank(drill_.rank);
        if (victim == 0) {
            complain(fmt::format("there is no rank {}", drill_.rank));
        } else {
            send_signals(job, victim);
        }
        wait_for_the_end(job, ends ? fault_s_ : 0.0);
    }
    void send_signals(Job& job, pid_t victim) {
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
        Job job(launched(train(settings)), {{"LOCKSTEP_DRILL", what}}, result_.log);
        if (wait_until(job, [&] { return job.output().find("drill: ") != std::string::npos; })) fault_s_ = now_s();
        wait_for_the_end(job, fault_s_);
    }

    void wrong_config() {
        const auto quoted = [this](std::vector<std::string> words) {
            std::string text = "'" + program_ + "'";
            for (const std::string& word : words) text += " '" + word + "'";
            return text;
        };
        std::vector<std::string> other = endless();
        other.emplace_back("optim.weight_decay=0.03125");
        const std::string script = fmt::format("if [ \"$LOCKSTEP_RANK\" = {} ]; then exec {}; else exec {}; fi", drill_.rank,
                                               quoted(train(other)), quoted(train(endless())));
        Job job(launched({"sh", "-c", script}), {}, result_.log);
        wait_for_the_end(job, 0.0);
    }

    void corrupt_checkpoint() {
        const auto with_saves = [this](int64_t more) {
            return train(
                {fmt::format("train.duration={}it", drill_.at_step + more), "checkpoint.every=1it", "checkpoint.keep_last=3"});
        };
        {
            Job job(launched(with_saves(0)), {}, result_.log);
            wait_for_the_end(job, 0.0);
        }
        const auto found = list_checkpoints(run_dir_ / "checkpoints");
        if (found.empty()) return complain("the first job left no checkpoint");
        std::fstream file(found.front().second / kModelFile, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-3, std::ios::end);
        file.put('\x5a').put('\xa5');
        file.close();
        Job job(launched(with_saves(3)), {}, result_.log);
        wait_for_the_end(job, 0.0);
    }

    void full_disk() {
        const SmallDisk disk(run_dir_ / "checkpoints");
        if (!disk.is_there()) return skip("file systems may not be mounted here");
        Job job(launched(train(endless("1it"))), {}, result_.log);
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
            Job trial({netlab, "--", "/bin/true"}, {}, run_dir_ / "trial.log");
            wait_until(trial, [] { return false; });
            if (trial.exit_code() == kNotPermitted) return skip("network namespaces are not permitted here");
        }
        const bool cuts = drill_.fault == Fault::cut_link;
        std::vector<std::string> words{netlab, "--nodes", "2", "--delay-ms", cuts ? "0.1" : "5"};
        if (!cuts) words.insert(words.end(), {"--rate-mbit", "50"});
        words.insert(words.end(), {"--", program_});
        const std::vector<std::string> command = train(cuts ? endless() : steps(10));
        words.insert(words.end(), command.begin(), command.end());
        Job job(words, {}, result_.log);
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
