// Several sources one after another: every question about a sample is answered by the source that holds it.
#include "data_loader/joined_source.h"

#include <gmock/gmock.h>

#include "data_loader/pack.h"
#include "data_loader/shard_index.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class JoinedSourceTest : public ScratchTest {
protected:
    static SourceOptions folder() { return {.path = case_file("sets/folders/train").string()}; }
    static SourceOptions synthetic() { return {.kind = "synthetic", .num_classes = 7, .synthetic_size = 3, .image_size = 5}; }
    SourceOptions shards() const {
        pack(*open_source({.path = case_file("sets/set101/val21").string()}), {.out = folder_ / "shards"});
        return {.path = (folder_ / "shards").string()};
    }
    static std::unique_ptr<Source> join(const std::vector<SourceOptions>& parts) {
        std::vector<std::unique_ptr<Source>> sources;
        for (const SourceOptions& part : parts) sources.push_back(open_source(part));
        return join_sources(std::move(sources));
    }
};

TEST_F(JoinedSourceTest, EverySampleIsThatOfItsPart) {
    const std::vector<SourceOptions> parts{folder(), shards(), synthetic()};
    const auto joined = join(parts);
    int64_t index = 0;
    Record mine, whole;
    for (const SourceOptions& options : parts) {
        const auto part = open_source(options);
        for (int64_t within = 0; within < part->size(); ++within, ++index) {
            SCOPED_TRACE(part->name(within));
            part->read(within, mine);
            joined->read(index, whole);
            EXPECT_EQ(whole.key, mine.key);
            EXPECT_EQ(whole.label, mine.label);
            EXPECT_TRUE(std::ranges::equal(whole.bytes, mine.bytes));
            EXPECT_EQ(joined->label(index), part->label(within));
            EXPECT_EQ(joined->name(index), part->name(within));
            EXPECT_EQ(joined->declared(index).has_value(), part->declared(within).has_value());
            if (part->declared(within)) {
                EXPECT_EQ(joined->declared(index)->hash, part->declared(within)->hash);
            }
            joined->will_need(index);
        }
    }
    EXPECT_EQ(joined->size(), index);
    EXPECT_EQ(joined->size(), 10 + 21 + 3);
}

TEST_F(JoinedSourceTest, TheWholeKnowsAllParts) {
    const auto joined = join({folder(), shards(), synthetic()});
    EXPECT_EQ(joined->class_names(), open_source(folder())->class_names());
    EXPECT_EQ(joined->class_total(), 7) << "the most of them";
    EXPECT_THAT(joined->description(), testing::AllOf(HasSubstr("class folders"), HasSubstr("; WebDataset"), HasSubstr("; synth")));
    EXPECT_EQ(joined->contradictions(), std::vector<std::string>{});
    const std::string index = shard_index_path(folder_ / "shards/shard-000000.tar");
    write_file_atomically(index, "damaged");
    EXPECT_THAT(join({folder(), {.path = (folder_ / "shards").string()}})->contradictions(),
                testing::ElementsAre(HasSubstr(index)));
}

TEST_F(JoinedSourceTest, TheFingerprintSeesTheOrder) {
    EXPECT_EQ(join({folder(), synthetic()})->fingerprint(), join({folder(), synthetic()})->fingerprint());
    EXPECT_NE(join({folder(), synthetic()})->fingerprint(), join({synthetic(), folder()})->fingerprint());
    EXPECT_EQ(join({folder()})->fingerprint(), open_source(folder())->fingerprint()) << "one source stays as it is";
}

}  // namespace
}  // namespace lockstep
