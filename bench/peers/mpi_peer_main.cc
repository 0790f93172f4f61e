// MPI in the allreduce benchmark; compiled once per MPI that is installed. Its settings are the launcher's options and variables.
#include <mpi.h>

#include <string>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "core/error.h"
#include "core/tensor.h"

namespace lockstep::bench {

namespace {

class MpiAllreducer final : public Allreducer {
public:
    explicit MpiAllreducer(const ContestantPlan& plan)
        : buffer_(HeapPool().allocate(static_cast<size_t>(plan.buffer_count) * sizeof(float))) {}

    // The first line, which ends in a zero for some.
    std::string version() const override {
        char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
        int length = 0;
        MPI_Get_library_version(text, &length);
        std::string name(text);
        name = name.substr(0, name.find_first_of("\n,"));
        while (!name.empty() && name.back() <= ' ') name.pop_back();
        for (char& letter : name) letter = letter == '\t' ? ' ' : letter;
        return name;
    }
    std::span<float> buffer() override { return buffer_.f32(); }
    void prepare(TensorViews unit) override { unit_ = unit; }
    void allreduce() override {
        for (const std::span<float> tensor : unit_) {
            MPI_Allreduce(MPI_IN_PLACE, tensor.data(), static_cast<int>(tensor.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
    }

private:
    Buffer buffer_;
    TensorViews unit_;
};

// Cores are taken before MPI_Init, which looks at them. Only on one node.
int body(const ContestantPlan& plan) {
    bind_to_cores(plan, rank_of(plan));
    MPI_Init(nullptr, nullptr);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != plan.rank_count) throw CommError(fmt::format("the launcher made {} ranks, not {}", size, plan.rank_count));
    MpiAllreducer library(plan);
    take_turns(plan, rank, library);
    MPI_Finalize();
    return 0;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::run_contestant(argc, argv, lockstep::bench::body); }
