#include "configs/scalars.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Scalars, NumbersFollowTheCoreSchema) {
    EXPECT_EQ(parse_number("1e-4"), 1e-4);
    EXPECT_EQ(parse_number("1.e-4"), 1e-4);
    EXPECT_EQ(parse_number(".0001"), 1e-4);
    EXPECT_EQ(parse_number("+1"), 1.0);
    for (const char* text :
         {"", ".", "-", "1e", "e5", "0x10", "1_000", "1,5", " 1", "1 ", ".inf", "nan", "inf", "1e999", "--1", "+-1"}) {
        EXPECT_FALSE(parse_number(text)) << text;
    }
}

TEST(Scalars, OnlyTrueAndFalseAreBooleans) {
    EXPECT_EQ(parse_bool("true"), true);
    EXPECT_EQ(parse_bool("false"), false);
    for (const char* text : {"yes", "no", "on", "off", "True", "TRUE", "1", ""}) EXPECT_FALSE(parse_bool(text)) << text;
}

TEST(Scalars, DurationsNeedAUnit) {
    EXPECT_EQ(parse_duration("90ep"), (Duration{Duration::Unit::epochs, 90}));
    EXPECT_EQ(parse_duration("0.5ep"), (Duration{Duration::Unit::epochs, 0.5}));
    EXPECT_EQ(parse_duration("100it"), (Duration{Duration::Unit::iterations, 100}));
    for (const char* text : {"90", "ep", "0.5it", "-1ep", "1 ep", "1epoch"}) EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Scalars, SizesAndTimes) {
    EXPECT_EQ(parse_byte_count("8MiB"), 8 << 20);
    EXPECT_EQ(parse_byte_count("1.5KiB"), 1536);
    EXPECT_EQ(parse_byte_count("512B"), 512);
    EXPECT_EQ(parse_byte_count("25MB"), 25'000'000);
    for (const char* text : {"8", "8M", "MiB", "-1MiB", "0.3B", "1e30GiB"}) EXPECT_FALSE(parse_byte_count(text)) << text;
    EXPECT_EQ(parse_nanoseconds("10s"), 10'000'000'000);
    EXPECT_EQ(parse_nanoseconds("500ms"), 500'000'000);
    EXPECT_EQ(parse_nanoseconds("2min"), 120'000'000'000);
    for (const char* text : {"10", "s", "-1s", "10sec"}) EXPECT_FALSE(parse_nanoseconds(text)) << text;
}

TEST(Scalars, IntegersDoNotWrapAround) {
    EXPECT_EQ(parse_integer("-3"), -3);
    for (const char* text : {"9223372036854775808", "1.0", "1e3", "0x1", "", "+", "+-1"}) EXPECT_FALSE(parse_integer(text)) << text;
    EXPECT_EQ(parse_unsigned("18446744073709551615"), ~uint64_t{0});
    EXPECT_FALSE(parse_unsigned("-1"));
}

TEST(Scalars, FormattedValuesReadBackTheSame) {
    for (const double value : {1e-4, 0.1, 1e12, 3.0, 1.0 / 3.0, 1e-300}) EXPECT_EQ(parse_number(format_number(value)), value);
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1536}, int64_t{8} << 20})
        EXPECT_EQ(parse_byte_count(format_byte_count(bytes)), bytes);
    for (const int64_t time : {int64_t{0}, int64_t{7}, int64_t{1'500}, int64_t{10'000'000'000}}) {
        EXPECT_EQ(parse_nanoseconds(format_nanoseconds(time)), time);
    }
    const Duration third{Duration::Unit::epochs, 1.0 / 3.0};
    EXPECT_EQ(parse_duration(format_duration(third)), third);
}

}  // namespace
}  // namespace lockstep
