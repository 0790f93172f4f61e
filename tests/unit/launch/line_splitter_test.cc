#include "launch/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LineSplitter, JoinsPiecesIntoWholeLines) {
    LineSplitter splitter;
    EXPECT_THAT(splitter.add("one\ntw"), ElementsAre("one"));
    EXPECT_THAT(splitter.add("o\n\nthr"), ElementsAre("two", ""));
    EXPECT_EQ(splitter.rest(), "thr");
    EXPECT_EQ(splitter.rest(), "");
}

TEST(LineSplitter, CarriageReturnsEndLinesOnce) {
    LineSplitter splitter;
    EXPECT_THAT(splitter.add("10%\r20%\r"), ElementsAre("10%", "20%"));
    EXPECT_THAT(splitter.add("\nend\r\n"), ElementsAre("end"));
    EXPECT_THAT(splitter.add("x"), IsEmpty());
}

TEST(LineSplitter, ALineWithoutEndIsCut) {
    LineSplitter splitter;
    EXPECT_THAT(splitter.add(std::string(LineSplitter::kMaxLineBytes + 5, 'x')), testing::SizeIs(1));
    EXPECT_EQ(splitter.rest(), "xxxxx");
}

}  // namespace
}  // namespace lockstep
