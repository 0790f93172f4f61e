// One set of pictures as files of every format, put together byte by byte from the published descriptions, for tests of what holds
// for all of them.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data_loader/crc32c.h"
#include "data_loader/pack.h"
#include "data_loader/shard_index.h"
#include "data_loader/sources/sources.h"
#include "tests/unit/data_loader/fixtures.h"
#include "tests/unit/data_loader/format_writers.h"

namespace lockstep {

// tf.train.Example with an image, a label (packed or not) and a feature that nobody asked for.
inline std::string tf_example(const std::string& image, uint64_t label, bool packed = true) {
    const auto entry = [](const std::string& key, const std::string& feature) {
        return bytes_field(1, bytes_field(1, key) + bytes_field(2, feature));
    };
    const std::string number = packed ? bytes_field(1, varint(label)) : varint(1 << 3) + varint(label);
    return bytes_field(1, entry("image/class/text", bytes_field(1, bytes_field(1, "cat"))) +
                              entry("image/class/label", bytes_field(3, number)) +
                              entry("image/encoded", bytes_field(1, bytes_field(1, image))));
}
inline std::string tf_record(const std::string& data) {
    const std::string size = little_endian(uint64_t{data.size()});
    return size + little_endian(masked_crc32c(bytes_of(size))) + data + little_endian(masked_crc32c(bytes_of(data)));
}

// As MosaicML's writer does it: columns in the order of their names; "jpeg" varies, a label has the bytes of its kind.
struct MdsFiles {
    std::string index, shard;
};
inline MdsFiles mds_files(const std::vector<std::pair<std::string, int64_t>>& samples, const std::string& kind = "int",
                          size_t label_bytes = 8) {
    const std::string description = R"({"column_encodings": ["jpeg", ")" + kind + R"("]})";
    std::string data, offsets;
    const uint32_t begin = static_cast<uint32_t>(4 + 4 * (samples.size() + 1) + description.size());
    for (const auto& [image, label] : samples) {
        offsets += little_endian(static_cast<uint32_t>(begin + data.size()));
        data += little_endian(static_cast<uint32_t>(image.size())) + image + little_endian(label).substr(0, label_bytes);
    }
    offsets += little_endian(static_cast<uint32_t>(begin + data.size()));
    MdsFiles files;
    files.shard = little_endian(static_cast<uint32_t>(samples.size())) + offsets + description + data;
    files.index = R"({"version":2,"shards":[{"column_encodings":["jpeg",")" + kind +
                  R"("],"column_names":["image","label"],"column_sizes":[null,)" + std::to_string(label_bytes) +
                  R"(],"compression":null,"format":"mds","hashes":[],"raw_data":{"basename":)"
                  R"("shard.00000.mds","bytes":)" +
                  std::to_string(files.shard.size()) + R"(,"hashes":{}},"samples":)" + std::to_string(samples.size()) +
                  R"(,"size_limit":67108864,"version":2,"zip_data":null}]})";
    return files;
}

class FormatsTest : public ScratchTest {
protected:
    void SetUp() override {
        ScratchTest::SetUp();
        original_ = open_source({.path = case_file("sets/set101/train").string()});
        Record record;
        for (int64_t index = 0; index < original_->size(); ++index) {
            original_->read(index, record);
            samples_.emplace_back(std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()),
                                  record.label);
        }
    }
    int64_t stored_label(size_t index) const { return samples_[index].second + first_label_; }
    SourceOptions tfrecord() const {
        std::string files[2];
        for (size_t index = 0; index < samples_.size(); ++index) {
            const uint64_t label = static_cast<uint64_t>(stored_label(index));
            files[index < 50 ? 0 : 1] += tf_record(tf_example(samples_[index].first, label, index % 2 == 0));
        }
        write("tfrecord/train-00000-of-00002", files[0]);
        write("tfrecord/train-00001-of-00002", files[1]);
        write("tfrecord/validation-00000-of-00001", tf_record(tf_example(samples_[7].first, 1)));
        return {.path = (folder_ / "tfrecord").string(), .first_label = first_label_};
    }
    SourceOptions mds() const {
        std::vector<std::pair<std::string, int64_t>> samples;
        for (size_t index = 0; index < samples_.size(); ++index) samples.emplace_back(samples_[index].first, stored_label(index));
        const MdsFiles files = mds_files(samples);
        write("mds/index.json", files.index);
        write("mds/shard.00000.mds", files.shard);
        return {.path = (folder_ / "mds").string(), .first_label = first_label_};
    }
    SourceOptions lmdb() const {
        std::vector<std::string> datums;
        for (size_t index = 0; index < samples_.size(); ++index) {
            datums.push_back(encoded_datum(samples_[index].first, static_cast<uint64_t>(stored_label(index))));
        }
        write("lmdb/data.mdb", lmdb_file(datums));
        return {.path = (folder_ / "lmdb").string(), .first_label = first_label_};
    }
    SourceOptions beton() const {
        std::vector<BetonInput> inputs;
        for (size_t index = 0; index < samples_.size(); ++index) {
            inputs.push_back({.data = samples_[index].first, .width = 32, .height = 32, .label = stored_label(index)});
        }
        return {.path = write("set.beton", beton_file(inputs)).string(), .first_label = first_label_};
    }
    SourceOptions flat() const {
        std::string lines;
        for (size_t index = 0; index < samples_.size(); ++index) {
            char name[32];
            std::snprintf(name, sizeof name, "val_%04zu.jpg", index);
            write("flat/" + std::string(name), samples_[index].first);
            lines += name + std::string(" ") + std::to_string(stored_label(index)) + "\n";
        }
        return {.kind = "flat",
                .path = (folder_ / "flat").string(),
                .labels_path = write("labels.txt", lines).string(),
                .first_label = first_label_};
    }
    SourceOptions list() const {
        flat();
        return {.path = write("flat/list.txt", read_file(folder_ / "labels.txt")).string(), .first_label = first_label_};
    }
    SourceOptions shards() const {
        TarWriter writers[2];
        for (size_t index = 0; index < samples_.size(); ++index) {
            char name[32];
            std::snprintf(name, sizeof name, "%04zu", index);
            TarWriter& writer = writers[index < 50 ? 0 : 1];
            writer.add(name + std::string(".jpg"), samples_[index].first);
            writer.add(name + std::string(".cls"), std::to_string(stored_label(index)));
        }
        for (const int shard : {0, 1}) write("shards/" + std::to_string(shard) + ".tar", writers[shard].finish());
        return {.path = (folder_ / "shards").string(), .first_label = first_label_};
    }
    // All formats whose labels are stored as integers.
    std::vector<SourceOptions> formats_of_integers() const {
        return {list(), flat(), shards(), tfrecord(), mds(), lmdb(), beton()};
    }
    SourceOptions tar() const {
        TarWriter writer;
        for (size_t index = 0; index < samples_.size(); ++index) {
            char name[32];
            std::snprintf(name, sizeof name, "class%d/%04zu.jpg", samples_[index].second, index);
            writer.add(name, samples_[index].first);
        }
        return {.path = write("set.tar", writer.finish()).string()};
    }
    SourceOptions packed(bool with_index) const {
        const fs::path out = folder_ / "packed";
        pack(*original_, {.out = out, .shard_bytes = 50'000});
        for (const std::string& shard : webdataset_shards(out.string())) {
            if (!with_index) fs::remove(shard_index_path(shard));
        }
        return {.path = out.string()};
    }
    SourceOptions cifar() const {
        std::string file;
        for (int record = 0; record < 50; ++record) {
            file += static_cast<char>(record % 10) + std::string(3072, static_cast<char>(record));
        }
        write("cifar/data_batch_1.bin", file);
        write("cifar/data_batch_2.bin", file);
        return {.path = (folder_ / "cifar").string()};
    }
    SourceOptions mnist() const {
        std::string images("\0\0\x08\3\0\0\0\x37\0\0\0\4\0\0\0\4", 16), labels("\0\0\x08\1\0\0\0\x37", 8);
        for (int record = 0; record < 55; ++record) {
            images += std::string(16, static_cast<char>(record));
            labels += static_cast<char>(record % 10);
        }
        write("mnist/train-images-idx3-ubyte", images);
        write("mnist/train-labels-idx1-ubyte", labels);
        return {.path = (folder_ / "mnist").string()};
    }
    void expect_original(const SourceOptions& options) const {
        const auto source = open_source(options);
        ASSERT_EQ(source->size(), std::ssize(samples_));
        EXPECT_EQ(source->class_total(), original_->class_total());
        Record record;
        for (int64_t index = 0; index < source->size(); ++index) {
            source->read(index, record);
            const auto& [bytes, label] = samples_[static_cast<size_t>(index)];
            EXPECT_EQ(std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()), bytes) << record.key;
            EXPECT_EQ(record.label, label);
            EXPECT_EQ(source->label(index), label);
        }
    }
    static std::string error_of(const SourceOptions& options) {
        return data_error_of([&] { open_source(options); });
    }

    std::unique_ptr<Source> original_;
    std::vector<std::pair<std::string, int32_t>> samples_;  // what the files get
    int first_label_ = 0;                                   // what their labels count from
};

}  // namespace lockstep
