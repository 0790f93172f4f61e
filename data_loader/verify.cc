#include "data_loader/verify.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "data_loader/decoder.h"

namespace lockstep {

namespace {

int64_t area(ImageSize size) { return int64_t{size.width} * size.height; }

// One thread's part.
struct Part {
    std::vector<Finding> findings;
    int64_t warnings = 0, declared = 0;
    ImageSize smallest{}, largest{};

    void note(ImageSize size) {
        if (area(size) == 0) return;
        if (area(smallest) == 0 || area(size) < area(smallest)) smallest = size;
        if (area(size) > area(largest)) largest = size;
    }
};

class Verifier {
public:
    Verifier(const Source& source, std::vector<uint64_t>& hashes) : source_(source), hashes_(hashes) {}

    void run(std::atomic<int64_t>& next_index, Part& part) {
        for (int64_t index = next_index.fetch_add(1); index < source_.size(); index = next_index.fetch_add(1)) {
            const auto add = [&](std::string_view kind, std::string text) {
                part.findings.push_back({kind, index, std::move(text)});
            };
            try {
                source_.read(index, record_);
                hashes_[static_cast<size_t>(index)] = hash_bytes(record_.bytes.data(), record_.bytes.size());
                part.declared += compare_checksum(index, add) ? 1 : 0;
                const ImageSize size = decoder_.open(record_);
                compare_size(index, size, add);
                decoder_.decode_all(size, image_);
                part.note(size);
            } catch (const DataError& error) {
                add("unreadable", error.what());
            }
        }
        part.warnings = decoder_.warnings();
    }

private:
    template <typename Add>
    bool compare_checksum(int64_t index, const Add& add) const {
        if (record_.label < 0 || record_.label >= source_.class_total()) {
            add("label", fmt::format("{}: label {} is outside [0, {}]", record_.key, record_.label, source_.class_total() - 1));
        }
        const std::optional<Declared> declared = source_.declared(index);
        if (!declared) return false;
        const uint64_t hash = hashes_[static_cast<size_t>(index)];
        if (hash != declared->hash) {
            add("checksum", fmt::format("{}: the bytes have XXH3 {}, the index says {}", record_.key, hash_hex(hash),
                                        hash_hex(declared->hash)));
        }
        return true;
    }
    template <typename Add>
    void compare_size(int64_t index, ImageSize size, const Add& add) const {
        const std::optional<Declared> declared = source_.declared(index);
        if (!declared || size == ImageSize{declared->width, declared->height}) return;
        add("dimensions", fmt::format("{}: {}x{} pixels, the index says {}x{}", record_.key, size.width, size.height,
                                      declared->width, declared->height));
    }

    const Source& source_;
    std::vector<uint64_t>& hashes_;  // of each sample; 0: not read
    Decoder decoder_;
    Record record_;
    Image image_;
};

// Every sample but the first of those with the same bytes.
void add_duplicates(const Source& source, const std::vector<uint64_t>& hashes, std::vector<Finding>& findings) {
    std::vector<int64_t> order;
    for (size_t index = 0; index < hashes.size(); ++index) {
        if (hashes[index] != 0) order.push_back(static_cast<int64_t>(index));
    }
    const auto hash_of = [&](int64_t index) { return hashes[static_cast<size_t>(index)]; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return hash_of(a) < hash_of(b); });
    Record first, again;
    for (size_t place = 1, group = 0; place < order.size(); ++place) {
        if (hash_of(order[place]) != hash_of(order[group])) {
            group = place;
            continue;
        }
        source.read(order[group], first);
        source.read(order[place], again);
        const std::string labels =
            first.label == again.label ? "" : fmt::format(", but label {} instead of {}", again.label, first.label);
        findings.push_back({"duplicate", order[place], fmt::format("{}: the same bytes as {}{}", again.key, first.key, labels)});
    }
}

}  // namespace

VerifyResult verify_images(const Source& source, const VerifyOptions& options) {
    std::atomic<int64_t> next_index{0};
    std::vector<uint64_t> hashes(static_cast<size_t>(source.size()), 0);
    std::vector<Part> parts(static_cast<size_t>(std::max(options.threads, 1)));
    {
        std::vector<std::jthread> workers;
        for (Part& part : parts) workers.emplace_back([&] { Verifier(source, hashes).run(next_index, part); });
    }
    VerifyResult result{.images = source.size()};
    Part all;
    for (Part& part : parts) {
        std::move(part.findings.begin(), part.findings.end(), std::back_inserter(result.findings));
        result.warnings += part.warnings;
        result.declared += part.declared;
        all.note(part.smallest);
        all.note(part.largest);
    }
    for (std::string& text : source.contradictions()) result.findings.push_back({"index", -1, std::move(text)});
    if (options.find_duplicates) add_duplicates(source, hashes, result.findings);
    for (Finding& finding : result.findings) finding.text = printable(finding.text);  // names in them are foreign
    std::stable_sort(result.findings.begin(), result.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.sample < b.sample; });
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
