#include "core/text.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

TEST(Printable, TextStaysAsItIs) {
    for (const std::string text : {"", "cat", "a b/c.jpg", "\u00fc\u20ac\U0001F408", "back\\slash"})
        EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAndForeignBytesAreSpelledOut) {
    EXPECT_EQ(printable("new\nline\t\x7f"), "new\\x0Aline\\x09\\x7F");
    EXPECT_EQ(printable("c\xe9t"), "c\\xE9t");                // Latin-1
    EXPECT_EQ(printable("\xc3"), "\\xC3");                    // cut
    EXPECT_EQ(printable("\xc0\xaf"), "\\xC0\\xAF");           // overlong
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xED\\xA0\\x80");  // a surrogate
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");
    EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, WhatMovesTheCursorOrTurnsTheLineIsSpelledOut) {
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\xC2\\x9B31m");
    EXPECT_EQ(printable("\xc2\x85\xc2\xa0"), "\\xC2\\x85\xc2\xa0") << "a space that does not break stays";
    EXPECT_EQ(printable("a\xe2\x80\xa8"
                        "b\xe2\x80\xae\xe2\x81\xa9"),
              "a\\xE2\\x80\\xA8b\\xE2\\x80\\xAE\\xE2\\x81\\xA9");
    EXPECT_EQ(printable("\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5"), "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5");
}

TEST(Printable, AnErrorIsOneLineWhateverNamesItHolds) {
    EXPECT_STREQ(DataError("a\nb.jpg: not an image").what(), "a\\x0Ab.jpg: not an image");
}

TEST(Printable, ASecondPassChangesNothing) { EXPECT_EQ(printable(printable("c\xe9t\n")), printable("c\xe9t\n")); }

TEST(Counted, OneIsSingular) {
    EXPECT_EQ(counted(1, "rank"), "1 rank");
    EXPECT_EQ(counted(0, "rank"), "0 ranks");
    EXPECT_EQ(counted(8192, "rank"), "8192 ranks");
}

TEST(DataSize, SmallOnesAreNotZeroMegabytes) {
    EXPECT_EQ(data_size(851), "851 B");
    EXPECT_EQ(data_size(6808), "6.8 kB");
    EXPECT_EQ(data_size(1'080'000), "1.08 MB");
    EXPECT_EQ(data_size(102'228'128), "102.23 MB");
}

}  // namespace
}  // namespace lockstep
