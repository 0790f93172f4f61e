#include "collectives/schedule/parts.h"

#include <numeric>

#include "collectives/communicator.h"

namespace lockstep::schedule {

Group all_ranks(int rank, int rank_count) {
    Group group{.ranks = std::vector<int>(static_cast<size_t>(rank_count)), .self = rank};
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    return group;
}

Group rotated(const Group& group, int first) {
    const int size = group.size();
    Group result{.ranks = {}, .self = (group.self - first + size) % size};
    for (int member = 0; member < size; ++member) result.ranks.push_back(group.ranks[static_cast<size_t>((member + first) % size)]);
    return result;
}

Range piece(Range range, int index, int count) {
    const auto [first, last] = Communicator::slice(range.size(), index, count);
    return {range.first + first, range.first + last};
}

Borders equal_borders(Range range, int count) {
    Borders borders;
    for (int index = 0; index < count; ++index) borders.push_back(piece(range, index, count).first);
    borders.push_back(range.last);
    return borders;
}

std::vector<Stage> distance_doubling(const Shape& shape) {
    std::vector<Stage> stages;
    int distance = 1;
    for (const int factor : shape.factors) {
        stages.push_back({factor, distance});
        distance *= factor;
    }
    return stages;
}

std::vector<Stage> distance_halving(const Shape& shape) {
    std::vector<Stage> stages;
    int distance = shape.participants;
    for (const int factor : shape.factors) {
        distance /= factor;
        stages.push_back({factor, distance});
    }
    return stages;
}

int first_member_of(const Group& group, const Shape& shape, int participant) {
    const int extras = group.size() - shape.participants;
    return participant < extras ? 2 * participant : participant + extras;
}

Folding fold(const Group& group, const Shape& shape) {
    const int extras = group.size() - shape.participants;
    Folding folding{.participants = {.ranks = {}, .self = -1}};
    for (int participant = 0; participant < shape.participants; ++participant) {
        const int member = first_member_of(group, shape, participant);
        folding.participants.ranks.push_back(group.ranks[static_cast<size_t>(member)]);
        if (member == group.self) folding.participants.self = participant;
    }
    if (group.self < 2 * extras) folding.partner = group.ranks[static_cast<size_t>(group.self ^ 1)];
    return folding;
}

}  // namespace lockstep::schedule
