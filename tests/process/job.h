// Verbs for process tests: a job is `lockstep run -- train tests/process/tiny.yaml …` in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace lockstep::test {

std::string lockstep_program();
std::string tiny_config();
Program::Environment test_environment();  // where the sample pictures lie; no launcher's variables

using Tensors = std::map<std::string, std::vector<float>>;
Tensors read_tensors(const std::filesystem::path& file);
double relative_difference(const Tensors& left, const Tensors& right);  // norm of the difference over the norm of `right`

std::string sample_file(const std::string& name);  // in tests/cases
int count(const std::string& text, const std::string& piece);

// A listening socket that holds a port for the length of a test.
class HeldPort {
public:
    HeldPort();
    HeldPort(const HeldPort&) = delete;
    HeldPort& operator=(const HeldPort&) = delete;
    ~HeldPort();
    int port() const { return port_; }

private:
    int socket_;
    int port_ = 0;
};
std::string free_port();

class JobTest : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;  // nothing may be left in /dev/shm

    std::string run_dir(const std::string& name = "run") const { return (folder_ / name).string(); }

    // `lockstep run --nproc-per-node RANKS -- train tiny.yaml run.dir=… OVERRIDES`
    std::vector<std::string> job(int ranks, const std::vector<std::string>& overrides = {}, const std::string& name = "run") const;
    Outcome run_job(int ranks, const std::vector<std::string>& overrides = {}, const std::string& name = "run",
                    double limit_s = 120.0) const;
    // The final weights' bytes of a run.
    std::string weights(const std::string& name = "run") const;
    // The lines of metrics.jsonl that have `key`: (step, value).
    std::vector<std::pair<int64_t, double>> metric(const std::string& key, const std::string& name = "run") const;

    // The tensors of a run's newest checkpoint by name.
    Tensors tensors(const std::string& name = "run") const;
    // Copies a sample file or folder of tests/cases into this test's folder, under `name`; returns the new place.
    std::string copy_case(const std::string& sample, const std::string& name) const;

    TemporaryFolder folder_;

private:
    std::vector<std::string> shared_memory_before_;
};

// The newest checkpoint folder of a run by its step number; empty when none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run_dir);

}  // namespace lockstep::test
