// A set as large as ImageNet, opened by its side indexes: 1.3 million pictures in 128 shards, of which only the headers that an
// index is compared with are there. How long it took is told, never judged.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "core/clock.h"
#include "data_loader/shard_index.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

constexpr int kShards = 128, kPerShard = 10'157, kClasses = 1000;
constexpr uint64_t kPictureBytes = 110'000, kStride = 512 + 110'080 + 1024;  // header, padded picture, its cls member

class LargeIndexTest : public ScratchTest {
protected:
    // Mostly a hole.
    void write_shard(const std::string& name, const ShardIndex& index) const {
        std::ofstream tar(folder_ / name, std::ios::binary);
        for (const int place : {0, kPerShard / 2, kPerShard - 1}) {
            const ShardEntry& entry = index.entries()[static_cast<size_t>(place)];
            const std::string member = TarWriter().add(std::string(index.name(static_cast<size_t>(place))), "").unfinished();
            std::string header = member.substr(0, 512);
            header.replace(124, 11, fmt::format("{:011o}", entry.bytes));
            TarWriter::set_checksum(header);
            tar.seekp(static_cast<std::streamoff>(entry.offset - 512));
            tar.write(header.data(), 512);
        }
        tar.close();
        fs::resize_file(folder_ / name, index.tar_bytes);
    }

    void write_set() const {
        for (int shard = 0; shard < kShards; ++shard) {
            ShardIndex index;
            index.tar_bytes = kPerShard * kStride + 1024;
            index.has_contents = true;
            for (int place = 0; place < kPerShard; ++place) {
                const int number = shard * kPerShard + place;
                index.add(fmt::format("{:07}.jpg", number), {.offset = static_cast<uint64_t>(place) * kStride + 512,
                                                             .bytes = kPictureBytes,
                                                             .hash = static_cast<uint64_t>(number),
                                                             .label = number % kClasses,
                                                             .width = 500,
                                                             .height = 375});
            }
            const std::string name = fmt::format("shard-{:06}.tar", shard);
            write_shard(name, index);
            write(name + ".idx", encode(index));
        }
    }
};

TEST_F(LargeIndexTest, OpensInBoundedMemoryWithoutReadingTheShards) {
    write_set();
    const int64_t before = resident_bytes(), begin_ns = now_ns();
    const auto source = open_source({.path = folder_.string()});
    const double seconds = 1e-9 * static_cast<double>(now_ns() - begin_ns);
    const int64_t taken = resident_bytes() - before;
    fmt::print("{} pictures in {} shards: opened in {:.2f} s, {} MB\n", source->size(), kShards, seconds, taken / 1'000'000);
    EXPECT_EQ(source->size(), int64_t{kShards} * kPerShard);
    EXPECT_EQ(source->class_total(), kClasses);
    EXPECT_LT(taken, 200'000'000);
    const int64_t last = source->size() - 1;
    EXPECT_EQ(source->label(last), last % kClasses);
    EXPECT_EQ(source->declared(last)->hash, static_cast<uint64_t>(last));
    Record record;
    source->read(last, record);
    EXPECT_EQ(record.bytes.size(), kPictureBytes);
    EXPECT_NE(record.key.find(fmt::format("{:07}.jpg", last)), std::string::npos) << record.key;
}

}  // namespace
}  // namespace lockstep
