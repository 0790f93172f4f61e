#include "core/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"

namespace lockstep {
namespace {

class FilesTest : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::path(testing::TempDir()) / ("files_" + std::to_string(getpid()));
        make_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    size_t files_in_folder() const {
        return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
    }
    fs::path folder_;
};

TEST_F(FilesTest, AtomicWriteLeavesOneWholeFile) {
    write_file_atomically(folder_ / "a", "first");
    write_file_atomically(folder_ / "a", "second");
    EXPECT_EQ(read_file(folder_ / "a"), "second");
    EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(FilesTest, FailedWriteKeepsTheOldFile) {
    // /dev/full refuses every byte, as a full disk does; a folder as the target makes the rename fail after a whole write.
    make_directories(folder_ / "taken" / "inside");
    EXPECT_THROW(write_file_atomically(folder_ / "taken", "x"), DeviceError);
    EXPECT_TRUE(fs::is_directory(folder_ / "taken"));
    EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(FilesTest, AFolderIsHeldByOneAtATime) {
    {
        const FolderLock first(folder_, 0, "held");
        EXPECT_THROW(FolderLock(folder_, 100, "held"), DeviceError);
    }
    EXPECT_NO_THROW(FolderLock(folder_, 0, "held"));
}

TEST_F(FilesTest, MissingFileIsADataErrorWithItsPath) {
    try {
        read_file(folder_ / "absent");
        FAIL() << "no error";
    } catch (const DataError& error) {
        EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos);
    }
}

TEST_F(FilesTest, EmptyFileIsEmpty) {
    write_file_atomically(folder_ / "empty", "");
    EXPECT_EQ(read_file(folder_ / "empty"), "");
    EXPECT_NE(read_file("/proc/self/status").find("Name:"), std::string::npos);  // which the kernel calls empty, too
}

}  // namespace
}  // namespace lockstep
