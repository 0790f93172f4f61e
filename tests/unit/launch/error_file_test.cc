// The file in which a rank says why it failed: written as torchrun wants it, read whatever is in it.
#include "launch/error_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/files.h"
#include "core/random.h"
#include "core/temporary_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class ErrorFileTest : public testing::Test {
protected:
    ErrorFileTest() { setenv(kErrorFileVariable, path().c_str(), 1); }
    ~ErrorFileTest() override { unsetenv(kErrorFileVariable); }

    fs::path path() const { return folder_.path() / "error.json"; }
    std::string read_back(const std::string& content) const {
        std::ofstream(path(), std::ios::trunc) << content;
        return read_error_file(path());
    }

    const TemporaryFolder folder_{"lockstep-errors"};
};

TEST_F(ErrorFileTest, WhatIsWrittenHasTheFormThatTorchrunReads) {
    write_error_file("run.dir: \"x\" is\nno folder");
    const auto json = nlohmann::json::parse(read_file(path()));
    EXPECT_EQ(json["message"]["message"], "run.dir: \"x\" is\nno folder");
    EXPECT_NEAR(std::stod(json["message"]["extraInfo"]["timestamp"].get<std::string>()), wall_clock_s(), 60);
    EXPECT_EQ(read_error_file(path()), "run.dir: \"x\" is\nno folder");
}

TEST_F(ErrorFileTest, WithoutTheVariableOrAFolderNothingIsWrittenAndNobodyIsHarmed) {
    for (const char* place : {"", "/not/there/error.json"}) {
        setenv(kErrorFileVariable, place, 1);
        write_error_file("too bad");
    }
    unsetenv(kErrorFileVariable);
    write_error_file("too bad");
    EXPECT_TRUE(fs::is_empty(folder_.path()));
    EXPECT_EQ(read_error_file(path()), "");
}

TEST_F(ErrorFileTest, TheFilesOfOtherProgramsAreUnderstood) {
    EXPECT_EQ(read_back(R"({"message": {"message": "ValueError: 3", "extraInfo": {"py_callstack": "a\nb", "timestamp": "1"}}})"),
              "ValueError: 3");
    EXPECT_EQ(read_back(R"({"message": "plain", "timestamp": 5})"), "plain");
    EXPECT_EQ(read_back(R"({"message": {"message": "bell \u0007 and \u001b[2J", "errorCode": 4}})"), "bell \\x07 and \\x1B[2J");
}

TEST_F(ErrorFileTest, WhatIsNoneOrTooMuchSaysNothingOrLittle) {
    for (const std::string content : {"", "{", "[]", "17", "{\"message\": 3}", "{\"message\": {\"message\": {}}}", "\xff\xfe"}) {
        EXPECT_EQ(read_back(content), "") << content;
    }
    EXPECT_EQ(read_back(std::string(500'000, '[')), "");
    EXPECT_EQ(read_back("{\"message\": \"" + std::string(2 << 20, 'x') + "\"}"), "") << "larger than any message";
    EXPECT_EQ(read_back("{\"message\": \"" + std::string(100'000, 'x') + "\"}").size(), 2'000U);
    const std::string many =
        read_back("{\"message\": \"" + std::string(100, 'x') + "\\n1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n11\\n12\\n13\"}");
    EXPECT_THAT(many, testing::EndsWith("\n11")) << "twelve lines";
}

TEST_F(ErrorFileTest, APipeALinkOrAFolderInItsPlaceIsNotReadAndNotWaitedFor) {
    ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
    EXPECT_EQ(read_error_file(path()), "");
    fs::remove(path());
    const fs::path other = folder_.path() / "other.json";
    std::ofstream(other) << R"({"message": "of somebody else"})";
    fs::create_symlink(other, path());
    EXPECT_EQ(read_error_file(path()), "");
    fs::remove(path());
    fs::create_directory(path());
    EXPECT_EQ(read_error_file(path()), "");
}

TEST_F(ErrorFileTest, AnyBytesAreSurvived) {
    const std::string sound = R"({"message": {"message": "ValueError: 3", "extraInfo": {"timestamp": "1"}}})";
    RandomStream random(5, "fuzz");
    for (int round = 0; round < 500; ++round) {
        std::string bad = sound;
        for (int change = 0; change < 3; ++change) bad[random.below(bad.size())] = static_cast<char>(random.next_u32());
        EXPECT_LE(read_back(bad).size(), 4 * sound.size()) << "what is no text is spelled out";
    }
}

}  // namespace
}  // namespace lockstep
