#include "launch/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(HostList, ExpandsRangesAndKeepsLeadingZeros) {
    EXPECT_THAT(expand_host_list("n1"), ElementsAre("n1"));
    EXPECT_THAT(expand_host_list("gpu[008-010,7]-ib,login"),
                ElementsAre("gpu008-ib", "gpu009-ib", "gpu010-ib", "gpu7-ib", "login"));
    EXPECT_THAT(expand_host_list("r[1-2]n[1,3]"), testing::UnorderedElementsAre("r1n1", "r1n3", "r2n1", "r2n3"));
}

TEST(HostList, MalformedListsAreRefused) {
    for (const char* text : {"", "a,,b", "n[1", "n[3-1]", "n[x]", "n[1-999999999]", "n[0-99999][0-99999]"}) {
        EXPECT_THROW(expand_host_list(text), ConfigError) << text;
    }
}

TEST(HostList, Counts) {
    EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
    EXPECT_THAT(expand_counts("4"), ElementsAre(4));
    for (const char* text : {"", "x", "2(x", "2(x3", "2(x999999999)"}) EXPECT_THROW(expand_counts(text), ConfigError) << text;
}

}  // namespace
}  // namespace lockstep
