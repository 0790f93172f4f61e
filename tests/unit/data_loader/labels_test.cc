// Labels and fingerprints: what holds for every format.
#include <gmock/gmock.h>

#include "data_loader/verify.h"
#include "tests/unit/data_loader/formats_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class LabelsTest : public FormatsTest {
protected:
    std::vector<uint64_t> fingerprints() const {
        std::vector<uint64_t> all{open_source(tar())->fingerprint()};
        for (const SourceOptions& options : formats_of_integers()) all.push_back(open_source(options)->fingerprint());
        return all;
    }
};

TEST_F(LabelsTest, EveryFormatOfIntegersMayCountFromOne) {
    first_label_ = 1;
    for (SourceOptions options : formats_of_integers()) {
        SCOPED_TRACE(options.path);
        expect_original(options);
        options.first_label = 0;
        EXPECT_EQ(open_source(options)->label(0), samples_[0].second + 1);
    }
}

TEST_F(LabelsTest, ALabelBelowTheFirstIsRefusedByEveryFormat) {
    ASSERT_EQ(samples_[0].second, 0);
    for (SourceOptions options : formats_of_integers()) {
        options.first_label = 1;
        EXPECT_THAT(error_of(options), HasSubstr("[1, ")) << options.path;
    }
}

TEST_F(LabelsTest, TheFingerprintOfEveryFormatSeesOneLabelAndOneSize) {
    const std::vector<uint64_t> before = fingerprints();
    EXPECT_EQ(fingerprints(), before);
    samples_[7].second ^= 1;
    const std::vector<uint64_t> other_label = fingerprints();
    samples_[7].second ^= 1;
    samples_[7].first += 'x';
    const std::vector<uint64_t> other_size = fingerprints();
    for (size_t format = 0; format < before.size(); ++format) {
        EXPECT_NE(other_label[format], before[format]) << format;
        EXPECT_NE(other_size[format], before[format]) << format;
    }
}

TEST_F(LabelsTest, EveryIntegerKindOfMdsIsReadWithItsSize) {
    const auto options = [&](const std::string& kind, size_t bytes, int64_t label) -> SourceOptions {
        const MdsFiles files = mds_files({{"abc", 100}, {"defg", label}}, kind, bytes);
        write("kinds/shard.00000.mds", files.shard);
        return {.path = write("kinds/index.json", files.index).parent_path().string(), .num_classes = 101};
    };
    for (const size_t bytes : {1, 2, 4, 8}) {
        const std::string kind = "int" + std::to_string(8 * bytes);
        for (const std::string& name : {kind, "u" + kind}) {
            const auto source = open_source(options(name, bytes, 7));
            EXPECT_EQ(source->label(0), 100) << name;
            EXPECT_EQ(source->label(1), 7) << name;
        }
        EXPECT_THAT(error_of(options(kind, bytes, -1)), HasSubstr("label -1 is outside")) << kind;
    }
    EXPECT_THAT(error_of(options("uint8", 1, -1)), HasSubstr("label 255 is outside"));
    EXPECT_THAT(error_of(options("uint16", 2, -1)), HasSubstr("label 65535 is outside"));
    EXPECT_THAT(error_of(options("uint32", 4, -1)), HasSubstr("label 4294967295 is outside"));
    EXPECT_THAT(error_of(options("int32", 8, 1)), HasSubstr("another size than its kind"));
}

// Two grey pixels with the labels 0 and `second`, of three classes: no format's own check stands before it.
class TwoLabels final : public Source {
public:
    explicit TwoLabels(int32_t second) : second_(second) {}
    int64_t size() const override { return 2; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return 3; }
    uint64_t fingerprint() const override { return 1; }
    std::string description() const override { return "two"; }
    void read(int64_t index, Record& record) const override {
        record = {.key = "two:" + std::to_string(index), .label = index == 1 ? second_ : 0, .encoding = Encoding::raw};
        record.channels = record.height = record.width = 1;
        record.storage.assign(1, static_cast<std::byte>(index));
        record.bytes = record.storage;
    }

private:
    int32_t second_;
    std::vector<std::string> names_;
};

TEST(Verify, NamesALabelOutsideTheClasses) {
    for (const int32_t label : {0, 2}) EXPECT_TRUE(verify_images(TwoLabels(label), {}).findings.empty()) << label;
    for (const int32_t label : {-1, 3}) {
        const std::vector<Finding> findings = verify_images(TwoLabels(label), {}).findings;
        ASSERT_EQ(findings.size(), 1U) << label;
        EXPECT_EQ(findings[0].kind, "label");
        EXPECT_EQ(findings[0].sample, 1);
        EXPECT_EQ(findings[0].text, "two:1: label " + std::to_string(label) + " is outside [0, 2]");
    }
}

}  // namespace
}  // namespace lockstep
