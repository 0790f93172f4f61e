#include "collectives/schedule/symbolic_sums.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

SymbolicSums::SymbolicSums(int rank_count) : rank_count_(rank_count), word_count_((static_cast<size_t>(rank_count) + 63) / 64) {
    for (int rank = 0; rank < rank_count; ++rank) {
        members_.resize(members_.size() + word_count_, 0);
        members_[members_.size() - word_count_ + static_cast<size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
    }
}

std::span<const uint64_t> SymbolicSums::members(int32_t sum) const {
    return std::span(members_).subspan(static_cast<size_t>(sum) * word_count_, word_count_);
}

int32_t SymbolicSums::add(int32_t left, int32_t right) {
    if (left < 0 || right < 0) return std::min(left, right);
    const auto [low, high] = std::minmax(left, right);
    const uint64_t key = (static_cast<uint64_t>(low) << 32) | static_cast<uint32_t>(high);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    int32_t result = static_cast<int32_t>(members_.size() / word_count_);
    std::vector<uint64_t> both(word_count_);
    for (size_t word = 0; word < word_count_; ++word) {
        if ((members(left)[word] & members(right)[word]) != 0) result = kTwice;
        both[word] = members(left)[word] | members(right)[word];
    }
    if (result != kTwice) members_.insert(members_.end(), both.begin(), both.end());
    known_.emplace(key, result);
    return result;
}

int32_t SymbolicSums::add_as_tree(std::span<const int32_t> operands) {
    if (operands.size() == 1) return operands[0];
    const auto left = static_cast<size_t>(left_operands(static_cast<int>(operands.size())));
    const int32_t left_sum = add_as_tree(operands.first(left));
    return add(left_sum, add_as_tree(operands.subspan(left)));
}

bool SymbolicSums::is_complete(int32_t sum) const {
    if (sum < 0) return false;
    const std::span<const uint64_t> words = members(sum);
    return std::accumulate(words.begin(), words.end(), 0, [](int total, uint64_t word) { return total + std::popcount(word); }) ==
           rank_count_;
}

std::string SymbolicSums::describe(int32_t sum) const {
    if (sum < 0) return sum == kTwice ? "a sum with a rank twice" : "nothing";
    std::string list;
    for (int rank = 0; rank < rank_count_; ++rank) {
        if ((members(sum)[static_cast<size_t>(rank) / 64] >> (rank % 64) & 1) != 0) list += fmt::format(" {}", rank);
    }
    return sum < rank_count_ ? fmt::format("the data of rank{}", list) : fmt::format("the sum of ranks{}", list);
}

}  // namespace lockstep::schedule
