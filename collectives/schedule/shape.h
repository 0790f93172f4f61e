// How a number of ranks is cut into the factors of an exchange.
#pragma once

#include <vector>

namespace lockstep::schedule {

// `participants` = the product of `factors`. The ranks beyond are folded in: each hands its data to a participant before and gets
// the result after, for two more messages in a row.
struct Shape {
    int participants = 1;
    std::vector<int> factors;  // powers of two first: then one odd factor keeps the rank tree

    bool is_one_shot(int rank_count) const { return participants == rank_count && factors.size() <= 1; }
};

// The fewest rounds with factors of at most `radix` (or a prime up to 7), then the least sum of factors; radix >= rank_count is one
// factor. Only a rank count with a larger prime in it is folded, onto the number of participants that needs the fewest rounds.
Shape shape_for(int rank_count, int radix);

}  // namespace lockstep::schedule
