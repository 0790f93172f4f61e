#include "data_loader/verify.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "data_loader/decoder.h"

namespace lockstep {

namespace {

int64_t area(ImageSize size) { return int64_t{size.width} * size.height; }

// One thread's findings.
struct Findings {
    std::map<int64_t, std::string> bad;
    int64_t warnings = 0;
    ImageSize smallest{}, largest{};

    void note(ImageSize size) {
        if (area(smallest) == 0 || area(size) < area(smallest)) smallest = size;
        if (area(size) > area(largest)) largest = size;
    }
};

void verify_some(const Source& source, std::atomic<int64_t>& next_index, Findings& findings) {
    Decoder decoder;
    Record record;
    Image image;
    for (int64_t index = next_index.fetch_add(1); index < source.size(); index = next_index.fetch_add(1)) {
        try {
            source.read(index, record);
            const ImageSize size = decoder.open(record);
            decoder.decode(0, size.height, image);
            findings.note(size);
        } catch (const DataError& error) {
            findings.bad.emplace(index, error.what());
        }
    }
    findings.warnings = decoder.warnings();
}

}  // namespace

VerifyResult verify_images(const Source& source, int threads) {
    std::atomic<int64_t> next_index{0};
    std::vector<Findings> findings(static_cast<size_t>(std::max(threads, 1)));
    {
        std::vector<std::jthread> workers;
        for (Findings& mine : findings) workers.emplace_back([&] { verify_some(source, next_index, mine); });
    }
    VerifyResult result{.images = source.size()};
    std::map<int64_t, std::string> bad;
    Findings all;
    for (Findings& mine : findings) {
        bad.merge(mine.bad);
        result.warnings += mine.warnings;
        for (const ImageSize size : {mine.smallest, mine.largest}) {
            if (area(size) > 0) all.note(size);
        }
    }
    for (auto& [index, reason] : bad) result.bad.push_back(std::move(reason));
    result.smallest = all.smallest;
    result.largest = all.largest;
    return result;
}

std::map<int32_t, int64_t> count_labels(const Source& source) {
    std::map<int32_t, int64_t> counts;
    for (int64_t index = 0; index < source.size(); ++index) ++counts[source.label(index)];
    return counts;
}

}  // namespace lockstep
