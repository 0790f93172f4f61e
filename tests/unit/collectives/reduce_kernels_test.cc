#include "collectives/reduce_kernels.h"

#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep {
namespace {

class Inputs {
public:
    Inputs(int rank_count, size_t count, size_t misalignment) : count_(count), misalignment_(misalignment) {
        for (int rank = 0; rank < rank_count; ++rank) {
            RandomStream stream(1, "kernels-test", static_cast<uint64_t>(rank), count);
            std::vector<float> values(count + misalignment);
            for (float& value : values) value = stream.normal() * (stream.next_u32() % 5 == 0 ? 1e30F : 1.0F);
            if (count > 2 && rank == 0) values[misalignment + 1] = std::numeric_limits<float>::infinity();
            if (count > 2) values[misalignment + 2] = 1e-41F;  // denormal
            values_.push_back(std::move(values));
        }
    }
    std::vector<float*> pointers() {
        std::vector<float*> result;
        for (auto& values : values_) result.push_back(values.data() + misalignment_);
        return result;
    }
    std::vector<const float*> inputs() {
        const auto all = pointers();
        return {all.begin(), all.end()};
    }
    bool operator==(const Inputs& other) const {
        if (count_ == 0) return true;
        for (size_t rank = 0; rank < values_.size(); ++rank) {
            if (std::memcmp(values_[rank].data(), other.values_[rank].data(), values_[rank].size() * sizeof(float)) != 0)
                return false;
        }
        return true;
    }

private:
    size_t count_;
    size_t misalignment_;
    std::vector<std::vector<float>> values_;
};

constexpr size_t kCounts[] = {0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 255, 2047, 2048, 2049, 5003};

TEST(ReduceKernels, SumEqualsThePlainLoopsBitForBit) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
        for (const size_t count : kCounts) {
            Inputs inputs(ranks, count, count % 3);
            std::vector<float> fast(count + 1, 5.0F);
            std::vector<float> plain(count + 1, 5.0F);
            reduce_kernels::sum(fast.data(), inputs.inputs().data(), ranks, count);
            reduce_kernels::reference::sum(plain.data(), inputs.inputs().data(), ranks, count);
            EXPECT_EQ(std::memcmp(fast.data(), plain.data(), fast.size() * sizeof(float)), 0) << ranks << " ranks, " << count;
        }
    }
}

TEST(ReduceKernels, SumMayOverwriteAnyOfItsInputs) {
    for (int target = 0; target < 3; ++target) {
        Inputs fast(3, 1003, 1);
        Inputs plain(3, 1003, 1);
        reduce_kernels::sum(fast.pointers()[static_cast<size_t>(target)], fast.inputs().data(), 3, 1003);
        reduce_kernels::reference::sum(plain.pointers()[static_cast<size_t>(target)], plain.inputs().data(), 3, 1003);
        EXPECT_TRUE(fast == plain) << target;
    }
}

TEST(ReduceKernels, SumIntoAllEqualsThePlainLoopsInEveryBuffer) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
        for (const size_t count : kCounts) {
            Inputs fast(ranks, count, count % 5);
            Inputs plain(ranks, count, count % 5);
            reduce_kernels::sum_into_all(fast.pointers().data(), ranks, count);
            reduce_kernels::reference::sum_into_all(plain.pointers().data(), ranks, count);
            EXPECT_TRUE(fast == plain) << ranks << " ranks, " << count;
        }
    }
}

}  // namespace
}  // namespace lockstep
