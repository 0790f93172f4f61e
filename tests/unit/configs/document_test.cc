#include "configs/document.h"

#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string error_of_text(const std::string& text) {
    try {
        parse_yaml(text, "t.yaml");
    } catch (const ConfigError& error) {
        return error.what();
    }
    ADD_FAILURE() << "no error for " << text;
    return {};
}

TEST(Document, EveryNodeKnowsItsPlace) {
    const Node root = parse_yaml("a: 1\nb:\n  - x\n  - {c: y}\n", "t.yaml");
    const Node& list = *root.find("b");
    EXPECT_EQ(root.find("a")->place.text(), "t.yaml:1:4");
    EXPECT_EQ(list.items[0].place.text(), "t.yaml:3:5");
    EXPECT_EQ(list.items[1].members[0].key_place.text(), "t.yaml:4:6");
}

TEST(Document, MergeKeysFillWhatIsNotSaid) {
    const Node root = parse_yaml("x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  a: 9\n", "t.yaml");
    const Node& merged = *root.find("z");
    EXPECT_EQ(merged.find("a")->scalar, "9");
    EXPECT_EQ(merged.find("b")->scalar, "2");
    EXPECT_EQ(merged.find("c")->scalar, "4");
    EXPECT_EQ(merged.find("c")->place.text(), "t.yaml:2:17");
}

TEST(Document, DuplicateKeysNameBothLines) { EXPECT_THAT(error_of_text("a: 1\nb: 2\na: 3\n"), HasSubstr("line 1 and in line 3")); }

TEST(Document, TagsAreRefused) { EXPECT_THAT(error_of_text("a: !!int \"1\"\n"), HasSubstr("t.yaml:1:")); }

TEST(Document, DepthIsLimited) {
    EXPECT_THAT(error_of_text(std::string(200, '[') + std::string(200, ']')), HasSubstr("deeper than 32"));
    EXPECT_NO_THROW(parse_yaml(std::string(10, '[') + std::string(10, ']'), "t.yaml"));
}

TEST(Document, AliasesCannotMultiplyWithoutLimit) {
    std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
    for (char name = 'b'; name < 'k'; ++name) {
        const char before = static_cast<char>(name - 1);
        bomb += std::string(1, name) + ": &" + name + " [";
        for (int copy = 0; copy < 10; ++copy) bomb += std::string(copy > 0 ? ", *" : "*") + before;
        bomb += "]\n";
    }
    EXPECT_THAT(error_of_text(bomb), HasSubstr("values (aliases expanded)"));
}

TEST(Document, AnAliasInsideItsOwnAnchorIsRefused) { EXPECT_THAT(error_of_text("a: &a [*a]\n"), HasSubstr("t.yaml:1")); }

TEST(Document, SizeIsLimited) { EXPECT_THAT(error_of_text(std::string(kMaxBytes + 1, '#')), HasSubstr("at most")); }

TEST(Document, ASecondDocumentIsRefused) { EXPECT_THAT(error_of_text("a: 1\n---\nb: 2\n"), HasSubstr("second document")); }

TEST(Document, LaterMappingsWinAndListsReplace) {
    const Node merged = merge_nodes(parse_yaml("a: {b: 1, c: [1, 2]}\n", "x"), parse_yaml("a: {c: [3]}\n", "y"));
    EXPECT_EQ(merged.find("a")->find("b")->scalar, "1");
    EXPECT_EQ(merged.find("a")->find("c")->items.size(), 1U);
}

}  // namespace
}  // namespace lockstep
