// The kinds of sources, and what they share. Outside this folder everything goes through open_source.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data_loader/source.h"

namespace lockstep {

std::unique_ptr<Source> open_folder_source(const SourceOptions& options);
std::unique_ptr<Source> open_tar_source(const SourceOptions& options);
std::unique_ptr<Source> open_webdataset_source(const SourceOptions& options);
std::unique_ptr<Source> open_list_source(const SourceOptions& options);
std::unique_ptr<Source> open_flat_source(const SourceOptions& options);
std::unique_ptr<Source> open_tfrecord_source(const SourceOptions& options);
std::unique_ptr<Source> open_mds_source(const SourceOptions& options);
std::unique_ptr<Source> open_lmdb_source(const SourceOptions& options);
std::unique_ptr<Source> open_beton_source(const SourceOptions& options);
std::unique_ptr<Source> open_mnist_source(const SourceOptions& options);
std::unique_ptr<Source> open_cifar_source(const SourceOptions& options);
std::unique_ptr<Source> open_synthetic_source(const SourceOptions& options);
std::unique_ptr<Source> open_synthetic_jpeg_source(const SourceOptions& options);

// "folder", "tar", ...: judged from the path and the first bytes behind it. DataError when nothing fits.
std::string detect_source_kind(const SourceOptions& options);

// The image files of a folder for the kinds that are files with known names; nullopt: not there.
std::optional<std::filesystem::path> find_mnist_images(const std::filesystem::path& folder, bool train);
bool has_cifar_files(const std::filesystem::path& folder);
bool is_tfrecord_name(std::string_view name);  // of a file

// Tar files "a{000..012}b{x,y}.tar" spelled out in order, each range with the leading zeros of its first number.
std::vector<std::string> expand_braces(std::string_view pattern);

// The shards of a WebDataset: a pattern spelled out, or the .tar files of a folder in byte order. DataError when there is none.
std::vector<std::string> webdataset_shards(const std::string& path);

// The whole file into `storage`, whose memory is reused. DataError naming the path.
void read_into(const std::string& path, std::vector<std::byte>& storage);

// ".jpg", ".jpeg" or ".png" in any case.
bool has_image_suffix(std::string_view name);

// The class map of a set whose classes have names: the training set's when `options` carries one, else `found`. Every found name
// must be in the map (DataError naming it and `where`), and the map must have num_classes entries where that is set. Bytes of names
// that are no text are spelled out (core/text.h).
struct ClassMap {
    std::vector<std::string> names;
    std::vector<int32_t> label_of_found;  // found index -> label
};
ClassMap map_classes(const std::vector<std::string>& found, const SourceOptions& options, const std::string& where);

// The class from a label's text: an integer in [first_label, first_label + allowed), with no wrap-around. nullopt otherwise.
std::optional<int32_t> parse_label(std::string_view text, int64_t allowed, int first_label = 0);
// Labels are int32: what is allowed when the number of classes is not known.
constexpr int64_t kMaxClasses = int64_t{1} << 31;
int64_t allowed_labels(const SourceOptions& options);

// Labels that files hold as integers, counted from options.first_label.
class IntegerLabels {
public:
    explicit IntegerLabels(const SourceOptions& options)
        : first_(options.first_label), allowed_(allowed_labels(options)), num_classes_(options.num_classes) {}
    // The class. DataError naming `path`, record and offset when it is outside.
    int32_t check(int64_t stored, const std::filesystem::path& path, int64_t record, uint64_t offset);
    // Classes of the set once all labels were checked; `named` of them have names.
    int64_t total(int64_t named) const { return num_classes_ > 0 ? num_classes_ : std::max(max_label_ + 1, named); }

private:
    int64_t first_, allowed_, num_classes_;
    int64_t max_label_ = -1;
};

// DataError naming `path` and record when a byte label is not below `allowed`.
void check_byte_label(unsigned label, int64_t allowed, const std::filesystem::path& path, int64_t record, uint64_t offset);

}  // namespace lockstep
