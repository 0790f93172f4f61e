#include "data_loader/sources/mapped_records.h"

#include <fmt/format.h>

#include "core/hash.h"

namespace lockstep {

const MappedFile& MappedRecords::begin_file(const std::filesystem::path& path) {
    first_sample_.push_back(size());
    return files_.emplace_back(path);
}

void MappedRecords::add(int64_t stored_label, std::span<const std::byte> image, uint64_t offset) {
    const int32_t label = labels_.check(stored_label, files_.back().path(), count_in_file(), offset);
    samples_.push_back({static_cast<uint32_t>(files_.size() - 1), label, image});
    const uint64_t numbers[2] = {image.size(), static_cast<uint64_t>(label)};
    fingerprint_ = hash_bytes(numbers, sizeof numbers, fingerprint_);
}

std::string MappedRecords::name(int64_t index) const {
    return fmt::format("{}:{}", file_of(index).path().native(), number_in_file(index));
}

void MappedRecords::read(int64_t index, Record& record) const {
    record.key.clear();
    fmt::format_to(std::back_inserter(record.key), "{}:{}", file_of(index).path().native(), number_in_file(index));
    record.label = label(index);
    record.encoding = Encoding::detect;
    record.bytes = samples_[static_cast<size_t>(index)].image;
}

}  // namespace lockstep
