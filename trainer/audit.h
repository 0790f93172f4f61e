// Which samples each step used (run.audit): a log per rank, and the proof that every sample was used once in each epoch, however
// often the run was killed and on however many ranks it went on.
//
// RUN/audit/rank-R.tsv has a line for each virtual worker of that rank: step, epoch, world size, worker, samples. A step's lines
// are written before its gradients are summed, so they are there whenever a checkpoint has that step. A run that continues at step
// s drops the lines from s on, of all ranks that there ever were, before it makes a step. RUN/audit/plan.json says what an epoch
// is, and for each start of the run with another global batch from which step on that one holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data_loader/loader.h"
#include "data_loader/sampler.h"

namespace lockstep {

// Rank 0, before any rank opens its log: drops what will be made again and writes the plan, in which step `start_step` of the run
// is step `start_step + shift` (trainer/course.h). Throws DeviceError.
void prepare_audit(const std::filesystem::path& run_dir, const SamplerOptions& plan, int64_t start_step, int64_t shift = 0);

class AuditLog {
public:
    AuditLog(const std::filesystem::path& run_dir, int rank, int world_size);
    AuditLog(const AuditLog&) = delete;
    AuditLog& operator=(const AuditLog&) = delete;
    ~AuditLog();

    void add(int64_t step, const Batch& batch);
    // Hands the step's lines to the system, in one write. Throws DeviceError naming the file and the reason.
    void write();

private:
    std::filesystem::path path_;
    int world_size_;
    int descriptor_ = -1;
    std::string lines_;  // of the step under way; keeps its memory
};

struct AuditReport {
    int64_t steps = 0;                       // in the log, without gaps
    int64_t whole_epochs = 0;                // of which every sample of the plan was used, once each
    int64_t samples = 0;                     // used, all epochs together
    std::map<int64_t, int> world_from_step;  // number of ranks, from which step on
    std::vector<std::string> problems;       // one line each: a sample used twice or not at all, a step cut short; at most twenty
};
// Throws DataError when there is no log or a line that is none.
AuditReport check_audit(const std::filesystem::path& run_dir);

}  // namespace lockstep
