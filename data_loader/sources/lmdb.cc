// An LMDB with one Caffe Datum a picture, in the order of the keys: a folder with data.mdb, or the file itself. Caffe's own tool
// (convert_imageset) stores raw pixels as blue, green, red; others store red first, which nothing in the file tells.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/datum.h"
#include "data_loader/lmdb_file.h"
#include "data_loader/sources/mapped_records.h"

namespace lockstep {

namespace {

class LmdbSource final : public MappedRecords {
public:
    explicit LmdbSource(const SourceOptions& options) : MappedRecords(options), blue_first_(options.raw_colour == "bgr") {
        const fs::path path = fs::is_directory(options.path) ? fs::path(options.path) / "data.mdb" : fs::path(options.path);
        const auto file = begin_file(path).bytes();
        for (const auto value : read_lmdb_values(file, path)) {
            const uint64_t offset = static_cast<uint64_t>(value.data() - file.data());
            const std::optional<Datum> datum = parse_datum(value);
            if (!datum) {
                throw DataError(
                    fmt::format("{}: record {} at offset {}: no Datum with a label and 8-bit pixels of 1 or 3 channels or "
                                "an encoded picture; is it another kind of record?",
                                path.string(), size(), offset));
            }
            (datum->encoded ? encoded_ : raw_) += 1;
            add(datum->label, value, offset);
        }
        if (size() == 0) throw DataError(fmt::format("{}: the LMDB is empty; make it again", path.string()));
    }

    std::string description() const override {
        return fmt::format("LMDB {}: {} images ({} encoded, {} raw{}), {} classes", file_of(0).path().string(), size(), encoded_,
                           raw_,
                           raw_ == 0     ? ""
                           : blue_first_ ? " as BGR"
                                         : " as RGB",
                           class_total());
    }

    void read(int64_t index, Record& record) const override {
        MappedRecords::read(index, record);
        const std::optional<Datum> datum = parse_datum(record.bytes);
        if (!datum) throw DataError(fmt::format("{}: the Datum has changed since the set was opened; start again", record.key));
        record.bytes = datum->data;
        if (datum->encoded) return;
        record.encoding = Encoding::raw;
        record.channels = datum->channels;
        record.height = datum->height;
        record.width = datum->width;
        if (datum->channels == 3 && blue_first_) turn_planes(record);
    }

private:
    static void turn_planes(Record& record) {
        const size_t plane = record.bytes.size() / 3;
        record.storage.resize(record.bytes.size());
        for (size_t channel = 0; channel < 3; ++channel) {
            const auto from = record.bytes.subspan((2 - channel) * plane, plane);
            std::copy(from.begin(), from.end(), record.storage.begin() + static_cast<ptrdiff_t>(channel * plane));
        }
        record.bytes = record.storage;
    }

    const bool blue_first_;
    int64_t encoded_ = 0, raw_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_lmdb_source(const SourceOptions& options) { return std::make_unique<LmdbSource>(options); }

}  // namespace lockstep
