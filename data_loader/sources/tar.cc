// A tar with class folders inside: members "[top/]CLASS/.../image". The class is the folder that holds the image directly; classes
// and images stand in byte order, as if the tar were unpacked and read as class folders. Hidden names and files without an image
// suffix are ignored and counted.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tar.h"

namespace lockstep {

namespace {

struct ClassAndName {
    std::string_view class_name;
    const TarMember* member = nullptr;
};

bool is_hidden(std::string_view name) { return name.starts_with('.') || name.find("/.") != std::string_view::npos; }

std::string_view folder_of(std::string_view name) {
    const size_t slash = name.rfind('/');
    if (slash == std::string_view::npos) return {};
    const std::string_view folder = name.substr(0, slash);
    const size_t above = folder.rfind('/');
    return above == std::string_view::npos ? folder : folder.substr(above + 1);
}

class TarSource final : public Source {
public:
    explicit TarSource(const SourceOptions& options) : file_(options.path) {
        const TarIndex index = read_tar_index(file_.bytes(), file_.path());
        ignored_ = index.skipped;
        std::vector<ClassAndName> images;
        for (const TarMember& member : index.members) {
            const std::string_view folder = folder_of(member.name);
            if (folder.empty() || is_hidden(member.name) || !has_image_suffix(member.name)) {
                ++ignored_;
            } else {
                images.push_back({folder, &member});
            }
        }
        if (images.empty()) {
            throw DataError(fmt::format("{}: no member CLASS/image.jpg among {}; is it a WebDataset shard (source: webdataset)?",
                                        options.path, index.members.size()));
        }
        std::sort(images.begin(), images.end(), [](const ClassAndName& a, const ClassAndName& b) {
            return a.class_name != b.class_name ? a.class_name < b.class_name : a.member->name < b.member->name;
        });
        keep(images, options);
    }

    int64_t size() const override { return static_cast<int64_t>(members_.size()); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return static_cast<int64_t>(names_.size()); }
    int32_t label(int64_t index) const override { return labels_.at(static_cast<size_t>(index)); }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("tar {} with class folders: {} images, {} classes, {} other members ignored", file_.path().string(),
                           members_.size(), names_.size(), ignored_);
    }
    std::string name(int64_t index) const override {
        return file_.path().native() + ":" + members_.at(static_cast<size_t>(index)).name;
    }
    void will_need(int64_t index) const override {
        const TarMember& member = members_.at(static_cast<size_t>(index));
        MappedFile::will_need(file_.bytes().subspan(member.offset, member.size));
    }
    void read(int64_t index, Record& record) const override {
        const TarMember& member = members_.at(static_cast<size_t>(index));
        record.key = file_.path().native();
        record.key += ':';
        record.key += member.name;
        record.label = labels_[static_cast<size_t>(index)];
        record.encoding = Encoding::detect;
        record.bytes = file_.bytes().subspan(member.offset, member.size);
    }

private:
    void keep(const std::vector<ClassAndName>& images, const SourceOptions& options) {
        std::vector<std::string> found;
        for (const ClassAndName& image : images) {
            if (found.empty() || found.back() != image.class_name) found.emplace_back(image.class_name);
        }
        const ClassMap map = map_classes(found, options, options.path);
        names_ = map.names;
        size_t found_index = 0;
        for (const ClassAndName& image : images) {
            while (found[found_index] != image.class_name) ++found_index;
            const uint64_t numbers[2] = {image.member->size, static_cast<uint64_t>(map.label_of_found[found_index])};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, hash_text(image.member->name, fingerprint_));
            labels_.push_back(map.label_of_found[found_index]);
            members_.push_back(*image.member);
        }
    }

    MappedFile file_;
    std::vector<TarMember> members_;
    std::vector<int32_t> labels_;
    std::vector<std::string> names_;
    int64_t ignored_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_tar_source(const SourceOptions& options) { return std::make_unique<TarSource>(options); }

}  // namespace lockstep
