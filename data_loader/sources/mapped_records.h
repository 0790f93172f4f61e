// What sources share whose samples lie as records with whole-number labels in a few memory-mapped files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

class MappedRecords : public Source {
public:
    int64_t size() const override { return std::ssize(samples_); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return labels_.total(std::ssize(names_)); }
    int32_t label(int64_t index) const override { return samples_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }  // of labels and sizes, in order
    std::string name(int64_t index) const override;                 // FILE:NUMBER
    void will_need(int64_t index) const override { MappedFile::will_need(samples_.at(static_cast<size_t>(index)).image); }
    void read(int64_t index, Record& record) const override;  // the key is the name

protected:
    explicit MappedRecords(const SourceOptions& options) : labels_(options), names_(options.class_names) {}

    const MappedFile& begin_file(const std::filesystem::path& path);  // the samples added from now on lie there
    // The next sample of the file begun last: `stored` label as the file has it, image inside the file's map, offset for errors.
    void add(int64_t stored_label, std::span<const std::byte> image, uint64_t offset);

    int64_t file_count() const { return std::ssize(files_); }
    int64_t count_in_file() const { return size() - first_sample_.back(); }  // of the file begun last, so far
    const MappedFile& file_of(int64_t index) const { return files_[samples_.at(static_cast<size_t>(index)).file]; }
    int64_t number_in_file(int64_t index) const { return index - first_sample_[samples_.at(static_cast<size_t>(index)).file]; }

private:
    struct Sample {
        uint32_t file = 0;
        int32_t label = 0;
        std::span<const std::byte> image;
    };

    IntegerLabels labels_;
    std::vector<std::string> names_;
    std::vector<MappedFile> files_;
    std::vector<int64_t> first_sample_;  // of each file
    std::vector<Sample> samples_;
    uint64_t fingerprint_ = 0;
};

}  // namespace lockstep
