// A folder of MosaicML's MDS shards with its index.json. Shards must lie there uncompressed.
#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/mds.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

struct Sample {
    uint32_t file = 0;
    int32_t label = 0;
    std::span<const std::byte> image;  // inside the file's map
};

class MdsSource final : public Source {
public:
    explicit MdsSource(const SourceOptions& options) : path_(options.path), labels_(options) {
        const fs::path index_path = fs::is_directory(path_) ? path_ / "index.json" : path_;
        for (const MdsShard& shard : parse_mds_index(read_file(index_path), index_path)) add_shard(shard, index_path.parent_path());
        if (samples_.empty()) throw DataError(fmt::format("{}: the shards hold no sample", path_.string()));
        names_ = options.class_names;
        class_total_ = labels_.total(std::ssize(names_));
    }

    int64_t size() const override { return std::ssize(samples_); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override { return samples_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("MDS {}: {} shards, {} images, {} classes", path_.string(), files_.size(), samples_.size(),
                           class_total_);
    }
    void read(int64_t index, Record& record) const override {
        const Sample& sample = samples_.at(static_cast<size_t>(index));
        record.key.clear();
        fmt::format_to(std::back_inserter(record.key), "{}:{}", files_[sample.file].path().native(),
                       index - first_sample_[sample.file]);
        record.label = sample.label;
        record.encoding = Encoding::detect;
        record.bytes = sample.image;
    }

private:
    void add_shard(const MdsShard& shard, const fs::path& folder) {
        const fs::path path = folder / shard.file;
        if (!fs::exists(path)) {
            throw DataError(fmt::format("{}: the index names it, but it is not there; copy it, and unpack it if it is compressed",
                                        path.string()));
        }
        files_.emplace_back(path);
        first_sample_.push_back(size());
        for (const MdsSample& sample : read_mds_shard(files_.back().bytes(), shard, path)) {
            const int64_t number = size() - first_sample_.back();
            const int32_t label = labels_.check(sample.label, path, number, sample.offset);
            samples_.push_back({static_cast<uint32_t>(files_.size() - 1), label, sample.image});
            const uint64_t numbers[2] = {sample.image.size(), static_cast<uint64_t>(label)};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, fingerprint_);
        }
    }

    fs::path path_;
    IntegerLabels labels_;
    std::vector<MappedFile> files_;
    std::vector<int64_t> first_sample_;  // of each file
    std::vector<Sample> samples_;
    std::vector<std::string> names_;
    int64_t class_total_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_mds_source(const SourceOptions& options) { return std::make_unique<MdsSource>(options); }

}  // namespace lockstep
