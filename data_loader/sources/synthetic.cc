// Images made on the spot: a pure function of (seed, index). Noise of half the range, with one brighter band whose place is the
// class, so that a network can learn them and a benchmark pays next to nothing for them.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/random.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

constexpr int64_t kDefaultClasses = 10;
constexpr uint64_t kLowBits = 0x7F7F7F7F7F7F7F7F;  // seven bits of noise in each byte

// One output of SplitMix64 (Steele, Lea, Flood 2014): a counter turned into noise, eight pixels at a time.
uint64_t mix(uint64_t counter) {
    counter = (counter ^ (counter >> 30)) * 0xBF58476D1CE4E5B9;
    counter = (counter ^ (counter >> 27)) * 0x94D049BB133111EB;
    return counter ^ (counter >> 31);
}

class SyntheticSource final : public Source {
public:
    explicit SyntheticSource(const SourceOptions& options)
        : options_(options), class_total_(options.num_classes > 0 ? options.num_classes : kDefaultClasses) {
        if (options.synthetic_size < 1 || options.image_size < 1 || options.image_size > 1 << 13 ||
            (options.channels != 1 && options.channels != 3)) {
            throw ConfigError(fmt::format("synthetic data: {} images of {}x{}x{} are impossible", options.synthetic_size,
                                          options.channels, options.image_size, options.image_size));
        }
        names_ = options.class_names;
    }

    int64_t size() const override { return options_.synthetic_size; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    uint64_t fingerprint() const override { return hash_text(description(), options_.seed); }
    std::string description() const override {
        return fmt::format("synthetic: {} images of {}x{}x{}, {} classes", options_.synthetic_size, options_.channels,
                           options_.image_size, options_.image_size, class_total_);
    }
    void read(int64_t index, Record& record) const override {
        check(index >= 0 && index < size(), "SyntheticSource::read: index outside the set");
        RandomStream random(options_.seed, "synthetic", static_cast<uint64_t>(index), options_.train ? 1 : 0);
        record.key.clear();
        fmt::format_to(std::back_inserter(record.key), "synthetic:{}", index);
        record.label = static_cast<int32_t>(random.below(static_cast<uint64_t>(class_total_)));
        record.encoding = Encoding::raw;
        record.channels = options_.channels;
        record.height = record.width = options_.image_size;
        const size_t side = static_cast<size_t>(options_.image_size);
        record.storage.resize(side * side * static_cast<size_t>(options_.channels));
        fill_noise(random.next_u64(), record.storage);
        brighten_band(record.label, record.storage);
        record.bytes = record.storage;
    }

private:
    static void fill_noise(uint64_t key, std::span<std::byte> pixels) {
        for (size_t offset = 0; offset < pixels.size(); offset += sizeof(uint64_t)) {
            key += 0x9E3779B97F4A7C15;
            const uint64_t noise = mix(key) & kLowBits;
            std::memcpy(pixels.data() + offset, &noise, std::min(sizeof noise, pixels.size() - offset));
        }
    }
    // Rows of all channels that belong to the class get 128 more.
    void brighten_band(int64_t label, std::span<std::byte> pixels) const {
        const int64_t side = options_.image_size;
        const int64_t first = label * side / class_total_;
        const int64_t last = std::max(first + 1, (label + 1) * side / class_total_);
        for (int64_t channel = 0; channel < options_.channels; ++channel) {
            const auto band =
                pixels.subspan(static_cast<size_t>((channel * side + first) * side), static_cast<size_t>((last - first) * side));
            for (std::byte& pixel : band) pixel |= std::byte{0x80};
        }
    }

    SourceOptions options_;
    int64_t class_total_;
    std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Source> open_synthetic_source(const SourceOptions& options) { return std::make_unique<SyntheticSource>(options); }

}  // namespace lockstep
