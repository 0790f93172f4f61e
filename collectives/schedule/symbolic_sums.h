// Sums as trees over ranks. Equal trees have equal numbers; left and right may change places, as IEEE addition commutes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::schedule {

class SymbolicSums {
public:
    static constexpr int32_t kUndefined = -1;
    static constexpr int32_t kTwice = -2;  // the answer to adding sums that share a rank

    explicit SymbolicSums(int rank_count);

    int32_t contribution(int rank) const { return rank; }
    int32_t add(int32_t left, int32_t right);
    int32_t add_as_tree(std::span<const int32_t> operands);  // as Round's operands are added
    bool is_complete(int32_t sum) const;                     // every rank is in it
    std::string describe(int32_t sum) const;                 // "the sum of ranks 0 2 3"

private:
    std::span<const uint64_t> members(int32_t sum) const;

    const int rank_count_;
    const size_t word_count_;
    std::vector<uint64_t> members_;  // a bit per rank, word_count_ words per sum
    std::unordered_map<uint64_t, int32_t> known_;
};

}  // namespace lockstep::schedule
