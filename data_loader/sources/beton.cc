// One .beton file of FFCV: pictures as JPEG or raw, with an integer label.
#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/beton.h"
#include "data_loader/sources/mapped_records.h"

namespace lockstep {

namespace {

class BetonSource final : public MappedRecords {
public:
    explicit BetonSource(const SourceOptions& options) : MappedRecords(options) {
        const fs::path path = options.path;
        for (const BetonSample& sample : read_beton(begin_file(path).bytes(), path)) {
            add(sample.label, sample.data, sample.offset);
            raw_count_ += sample.raw ? 1 : 0;
            sizes_.push_back({sample.raw, static_cast<uint16_t>(sample.width), static_cast<uint16_t>(sample.height)});
        }
        if (size() == 0) throw DataError(fmt::format("{}: the file holds no sample; make it again", path.string()));
    }

    std::string description() const override {
        return fmt::format("FFCV {}: {} images ({} raw), {} classes", file_of(0).path().string(), size(), raw_count_,
                           class_total());
    }

    void read(int64_t index, Record& record) const override {
        MappedRecords::read(index, record);
        const Size size = sizes_[static_cast<size_t>(index)];
        if (size.raw) separate(size, record);
    }

private:
    struct Size {
        bool raw;
        uint16_t width, height;
    };

    // Rows of RGB to planes, as raw records have them.
    static void separate(const Size& size, Record& record) {
        record.encoding = Encoding::raw;
        record.channels = 3;
        record.width = size.width;
        record.height = size.height;
        const size_t plane = size_t{size.width} * size.height;
        record.storage.resize(3 * plane);
        for (size_t channel = 0; channel < 3; ++channel) {
            std::byte* to = record.storage.data() + channel * plane;
            const std::byte* from = record.bytes.data() + channel;
            for (size_t place = 0; place < plane; ++place) to[place] = from[3 * place];
        }
        record.bytes = record.storage;
    }

    std::vector<Size> sizes_;
    int64_t raw_count_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_beton_source(const SourceOptions& options) { return std::make_unique<BetonSource>(options); }

}  // namespace lockstep
