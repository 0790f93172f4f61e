// A folder of MosaicML's MDS shards with its index.json. Shards must lie there uncompressed.
#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/mds.h"
#include "data_loader/sources/mapped_records.h"

namespace lockstep {

namespace {

class MdsSource final : public MappedRecords {
public:
    explicit MdsSource(const SourceOptions& options) : MappedRecords(options), path_(options.path) {
        const fs::path index_path = fs::is_directory(path_) ? path_ / "index.json" : path_;
        for (const MdsShard& shard : parse_mds_index(read_file(index_path), index_path)) add_shard(shard, index_path.parent_path());
        if (size() == 0) throw DataError(fmt::format("{}: the shards hold no sample", path_.string()));
    }

    std::string description() const override {
        return fmt::format("MDS {}: {} shards, {} images, {} classes", path_.string(), file_count(), size(), class_total());
    }

private:
    void add_shard(const MdsShard& shard, const fs::path& folder) {
        const fs::path path = folder / shard.file;
        if (!fs::exists(path)) {
            throw DataError(fmt::format("{}: the index names it, but it is not there; copy it, and unpack it if it is compressed",
                                        path.string()));
        }
        const auto bytes = begin_file(path).bytes();
        for (const MdsSample& sample : read_mds_shard(bytes, shard, path)) add(sample.label, sample.image, sample.offset);
    }

    fs::path path_;
};

}  // namespace

std::unique_ptr<Source> open_mds_source(const SourceOptions& options) { return std::make_unique<MdsSource>(options); }

}  // namespace lockstep
