#include "collectives/schedule/interval_map.h"

#include <algorithm>

namespace lockstep::schedule {

IntervalMap::IntervalMap(int64_t count, int32_t content) : firsts_{0, count}, contents_{content} {}

size_t IntervalMap::index_at(int64_t element) const {
    const auto behind = std::upper_bound(firsts_.begin(), firsts_.end() - 1, element);
    return static_cast<size_t>(behind - firsts_.begin()) - 1;
}

std::vector<Stretch> IntervalMap::read(Range range) const {
    std::vector<Stretch> stretches;
    read(range, stretches);
    return stretches;
}

void IntervalMap::read(Range range, std::vector<Stretch>& into) const {
    into.clear();
    if (range.size() == 0) return;
    for (size_t index = index_at(range.first); index < contents_.size() && firsts_[index] < range.last; ++index) {
        const Range common{std::max(range.first, firsts_[index]), std::min(range.last, firsts_[index + 1])};
        into.push_back({common, contents_[index]});
    }
}

void IntervalMap::write(const Stretch& stretch) {
    if (stretch.range.size() == 0) return;
    const size_t first = index_at(stretch.range.first);
    const size_t last = index_at(stretch.range.last - 1);
    // The stretches first .. last become at most three: what is left before, the new one, what is left behind.
    int64_t starts[3];
    int32_t contents[3];
    size_t pieces = 0;
    const auto add = [&](int64_t start, int32_t content) {
        if (pieces > 0 && contents[pieces - 1] == content) return;
        starts[pieces] = start;
        contents[pieces++] = content;
    };
    if (firsts_[first] < stretch.range.first) add(firsts_[first], contents_[first]);
    add(stretch.range.first, stretch.content);
    if (firsts_[last + 1] > stretch.range.last) add(stretch.range.last, contents_[last]);
    const size_t replaced = last - first + 1;
    const auto at = static_cast<std::ptrdiff_t>(first);
    const auto resize = [&](auto& list, const auto* source) {
        const size_t common = std::min(replaced, pieces);
        std::copy(source, source + common, list.begin() + at);
        if (pieces > replaced) {
            list.insert(list.begin() + at + static_cast<std::ptrdiff_t>(common), source + common, source + pieces);
        } else {
            list.erase(list.begin() + at + static_cast<std::ptrdiff_t>(common),
                       list.begin() + at + static_cast<std::ptrdiff_t>(replaced));
        }
    };
    resize(firsts_, starts);
    resize(contents_, contents);
}

}  // namespace lockstep::schedule
