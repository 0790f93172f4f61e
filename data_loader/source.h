// Where samples come from. A Source is opened once; `read` may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class Encoding : uint8_t { detect, raw };  // detect: a JPEG or PNG file by content; raw: planar 8-bit pixels of known size

// One sample as stored. `bytes` borrows from the source's map or from `storage`.
struct Record {
    std::string key;  // path or member name, for messages
    int32_t label = 0;
    std::span<const std::byte> bytes;
    std::vector<std::byte> storage;
    Encoding encoding = Encoding::detect;
    int channels = 0, height = 0, width = 0;  // raw only
};

// What an index says about a sample beside the data itself.
struct Declared {
    uint64_t hash = 0;          // XXH3 of its bytes
    int width = 0, height = 0;  // 0: it was unreadable when the index was made
};

class Source {
public:
    virtual ~Source() = default;
    virtual int64_t size() const = 0;
    virtual const std::vector<std::string>& class_names() const = 0;  // empty when the format has none
    virtual int64_t class_total() const = 0;
    // Fills `record`, reusing its storage. Throws DataError with file, record number and offset.
    virtual void read(int64_t index, Record& record) const = 0;
    // As `read` would call it, for messages; reads nothing.
    virtual std::string name(int64_t index) const { return "sample " + std::to_string(index) + " of " + description(); }
    // Tells the system that `index` is read soon. Never waits for it.
    virtual void will_need(int64_t /*index*/) const {}
    // Without reading the sample where the kind allows it.
    virtual int32_t label(int64_t index) const {
        Record record;
        read(index, record);
        return record.label;
    }
    virtual std::optional<Declared> declared(int64_t /*index*/) const { return std::nullopt; }
    // Where an index and the data it belongs to disagree; reads the headers of all. Empty for formats that have none.
    virtual std::vector<std::string> contradictions() const { return {}; }
    virtual uint64_t fingerprint() const = 0;     // of names, sizes and labels: equal on all ranks or no step is made
    virtual std::string description() const = 0;  // kind, path, counts, what was ignored
};

struct SourceOptions {
    // auto | folder | tar | webdataset | list | flat | tfrecord | mds | lmdb | beton | mnist | cifar_bin | synthetic |
    // synthetic_jpeg
    std::string kind = "auto";
    std::string path;         // folder, file, or brace pattern "train-{000..127}.tar" (webdataset)
    std::string labels_path;  // mnist labels (empty: found beside the images); the label file of a flat folder
    // The training set's class map: validation uses it, and a class that is only here is a DataError that names it.
    std::vector<std::string> class_names;
    int64_t num_classes = 0;         // labels must lie in [0, num_classes) where > 0
    int first_label = 0;             // what integer labels count from: 0 or 1; other kinds of labels refuse 1
    bool coarse_labels = false;      // CIFAR-100: the 20 superclasses
    std::string raw_colour = "bgr";  // lmdb: which colour of raw pixels comes first: bgr | rgb
    bool train = true;               // mnist and cifar folders hold both parts
    // Of the two synthetic kinds:
    int64_t synthetic_size = 1024;
    int image_size = 224;  // of synthetic's images; synthetic_jpeg draws the size of shapes that suits it
    int channels = 3;      // synthetic alone: JPEG has three
    uint64_t seed = 0;
};
std::unique_ptr<Source> open_source(const SourceOptions& options);

}  // namespace lockstep
