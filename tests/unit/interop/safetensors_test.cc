#include "interop/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "core/random.h"

namespace lockstep {
namespace {

class Safetensors : public testing::Test {
protected:
    Safetensors() : folder_(fs::path(testing::TempDir()) / fmt::format("safetensors-{}", getpid())) {
        fs::create_directories(folder_);
    }
    ~Safetensors() override { fs::remove_all(folder_); }

    fs::path path() const { return folder_ / "file.safetensors"; }

    void write_raw(const std::string& header, const std::string& data, uint64_t claimed_bytes) const {
        std::ofstream file(path(), std::ios::binary | std::ios::trunc);
        file.write(reinterpret_cast<const char*>(&claimed_bytes), 8);
        file << header << data;
    }
    void write_raw(const std::string& header, const std::string& data) const { write_raw(header, data, header.size()); }

    std::string refusal() const {
        try {
            SafetensorsFile::open(path());
        } catch (const DataError& error) {
            return error.what();
        }
        return "accepted";
    }

    fs::path folder_;
    std::vector<float> floats_{1.5F, -2.0F, 3.25F, 0.0F, 5.0F, 6.0F};
    std::vector<int64_t> counter_{7};

    std::vector<NamedTensor> sample() const {
        return {{"b.weight", DataType::f32, {2, 3}, std::as_bytes(std::span(floats_))},
                {"a.num_batches_tracked", DataType::i64, {}, std::as_bytes(std::span(counter_))},
                {"empty", DataType::f32, {0, 4}, {}}};
    }
};

TEST_F(Safetensors, ReadsBackWhatWasWritten) {
    write_safetensors(path(), sample(), {{"format", "pt"}, {"quote", "a \"b\" \\"}});
    const auto file = SafetensorsFile::open(path());
    ASSERT_EQ(file->tensors().size(), 3U);
    EXPECT_EQ(file->metadata().at("format"), "pt");
    EXPECT_EQ(file->metadata().at("quote"), "a \"b\" \\");
    EXPECT_EQ(file->tensors()[0].name, "a.num_batches_tracked");  // sorted by name
    EXPECT_EQ(file->tensors()[0].shape, Shape{});
    const NamedTensor& weight = file->tensors()[1];
    EXPECT_EQ(weight.shape, (Shape{2, 3}));
    ASSERT_EQ(weight.bytes.size(), 24U);
    EXPECT_EQ(std::memcmp(weight.bytes.data(), floats_.data(), 24), 0);
    EXPECT_EQ(file->tensors()[2].bytes.size(), 0U);
}

TEST_F(Safetensors, DataStartsOnACacheLine) {
    write_safetensors(path(), sample(), {});
    const std::string bytes = read_file(path());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    EXPECT_EQ((8 + header_bytes) % 64, 0U);
}

TEST_F(Safetensors, RefusesAHeaderLengthBeyondTheFileWithoutAllocatingIt) {
    write_raw("{}", "", 3);
    EXPECT_THAT(refusal(), testing::HasSubstr("3 bytes is claimed, 2 remain"));
    write_raw("{}", "", ~uint64_t{0});
    EXPECT_THAT(refusal(), testing::HasSubstr("are allowed"));
    std::ofstream(path(), std::ios::trunc) << "abc";
    EXPECT_THAT(refusal(), testing::HasSubstr("needs 8"));
}

TEST_F(Safetensors, RefusesUnsoundHeaders) {
    const std::string four(4, '\0');
    const std::vector<std::pair<std::string, std::string>> cases{
        {R"([1])", "not a JSON object"},
        {R"({"a":)", "not JSON"},
        {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
         "comes twice"},
        {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", "comes twice"},
        {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "do not lie in"},
        {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "do not lie in"},
        {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "does not fit its 4 bytes"},
        {R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", "has type F99"},
        {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "not a whole number"},
        {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "not a whole number"},
        {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "is not a list"},
        {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "has no field dtype"},
        {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,4]}})", "does not fit"},
        {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "is impossible"},
        {R"({"a":{"dtype":"F32","shape":[[[[1]]]],"data_offsets":[0,4]}})", "nested too deeply"},
        {R"({"__metadata__":{"a":1}})", "is not a text"},
        {R"({"a":3})", "has no field"},
        {R"({})", "4 bytes follow the last tensor"},
    };
    for (const auto& [header, reason] : cases) {
        write_raw(header, four);
        EXPECT_THAT(refusal(), testing::HasSubstr(reason)) << header;
        EXPECT_THAT(refusal(), testing::HasSubstr(path().string()));
    }
}

TEST_F(Safetensors, RefusesOverlapsAndHoles) {
    const auto two = [](int a, int b, int c, int d) {
        return fmt::format(
            R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
            b - a, a, b, d - c, c, d);
    };
    write_raw(two(0, 4, 4, 8), std::string(8, 'x'));
    EXPECT_EQ(refusal(), "accepted");
    write_raw(two(0, 5, 4, 8), std::string(8, 'x'));
    EXPECT_THAT(refusal(), testing::HasSubstr("overlaps"));
    write_raw(two(0, 3, 4, 8), std::string(8, 'x'));
    EXPECT_THAT(refusal(), testing::HasSubstr("leaves a hole"));
}

// Flipped, cut and inserted bytes never crash: the file is refused or still sound.
TEST_F(Safetensors, SurvivesMutatedFiles) {
    write_safetensors(path(), sample(), {{"format", "pt"}});
    const std::string good = read_file(path());
    RandomStream random(3, "fuzz");
    for (int round = 0; round < 3000; ++round) {
        std::string bad = good;
        const size_t place = random.below(bad.size());
        switch (random.below(3)) {
            case 0:
                bad[place] = static_cast<char>(random.next_u32());
                break;
            case 1:
                bad.resize(place);
                break;
            default:
                bad.insert(place, 1 + random.below(20), static_cast<char>(random.next_u32()));
                break;
        }
        std::ofstream(path(), std::ios::binary | std::ios::trunc) << bad;
        try {
            const auto file = SafetensorsFile::open(path());
            for (const NamedTensor& tensor : file->tensors()) {
                ASSERT_EQ(static_cast<size_t>(element_count(tensor.shape)) * bytes_per_element(tensor.type), tensor.bytes.size());
                unsigned sum = 0;
                for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
                EXPECT_GE(sum, 0U);
            }
        } catch (const DataError&) {
        }
    }
}

TEST_F(Safetensors, AFailedWriteLeavesNothingBehind) {
    EXPECT_THROW(write_safetensors(folder_ / "absent" / "x", sample(), {}), DeviceError);
    EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace lockstep
