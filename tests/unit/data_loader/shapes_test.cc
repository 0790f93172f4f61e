#include "data_loader/shapes.h"

#include <cstring>

#include "data_loader/verify.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

using ShapesTest = ScratchTest;

TEST_F(ShapesTest, TheSetIsCompleteBalancedAndTheSameForAnyThreadCount) {
    for (const int threads : {1, 3}) {
        EXPECT_TRUE(write_shapes(
            {.out = folder_ / std::to_string(threads), .train_count = 40, .val_count = 20, .seed = 9, .threads = threads}));
    }
    const auto train = open_source({.path = (folder_ / "1" / "train").string()});
    EXPECT_EQ(train->size(), 40);
    EXPECT_EQ(train->class_names(), std::vector<std::string>(kShapeNames.begin(), kShapeNames.end()));
    for (const auto& [label, images] : count_labels(*train)) EXPECT_EQ(images, 4) << label;
    EXPECT_TRUE(verify_images(*train, {}).findings.empty());
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / "1")) {
        if (!entry.is_regular_file()) continue;
        EXPECT_EQ(read_file(entry.path()), read_file(folder_ / "3" / fs::relative(entry.path(), folder_ / "1"))) << entry.path();
    }
}

TEST_F(ShapesTest, ASecondRunKeepsTheSetAndAnotherSetIsRefused) {
    const ShapesOptions options{.out = folder_ / "set", .train_count = 10, .val_count = 0};
    EXPECT_TRUE(write_shapes(options));
    EXPECT_FALSE(write_shapes(options));
    ShapesOptions other = options;
    other.seed = 2;
    EXPECT_THROW(write_shapes(other), ConfigError);
    fs::remove(options.out / "shapes.txt");
    EXPECT_THROW(write_shapes(options), ConfigError);  // somebody else's folders
    write("set/shapes.unfinished", "");
    EXPECT_TRUE(write_shapes(options));  // an interrupted run is made anew
}

TEST_F(ShapesTest, PicturesOfOneClassDiffer) {
    Image a, b;
    EXPECT_EQ(draw_shape(1, "train", 3, ShapeSize::small, a), draw_shape(1, "train", 13, ShapeSize::small, b));
    EXPECT_NE(std::memcmp(a.view().pixels, b.view().pixels, 32 * 32 * 4), 0);
    draw_shape(1, "val", 3, ShapeSize::small, b);
    EXPECT_NE(std::memcmp(a.view().pixels, b.view().pixels, 32 * 32 * 4), 0);
}

}  // namespace
}  // namespace lockstep
