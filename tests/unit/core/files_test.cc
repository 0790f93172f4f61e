#include "core/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <fstream>

#include <algorithm>
#include <csignal>

#include "core/direct_file.h"
#include "core/error.h"
#include "core/tensor.h"

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

TEST_F(FilesTest, WhatGoesPastTheCacheArrivesWholeWhateverItsSize) {
    HeapPool pool;
    for (const size_t size : {0, 1, 4095, 4096, 4097, 1 << 20, (1 << 20) + 3}) {
        const Buffer buffer = pool.allocate(size);
        for (size_t index = 0; index < size; ++index) buffer.bytes()[index] = static_cast<std::byte>(index * 7 % 251);
        write_file_past_cache(folder_ / "a", buffer.bytes());
        const std::string found = read_file(folder_ / "a");
        ASSERT_EQ(found.size(), size);
        EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(found)), buffer.bytes())) << size;
    }
}

TEST_F(FilesTest, WhatTheDiskRefusesIsAnErrorAndLeavesNoPartOfAFile) {
    HeapPool pool;
    const Buffer buffer = pool.allocate(1 << 20);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = 100 << 10, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(write_file_past_cache(folder_ / "a", buffer.bytes()), DeviceError);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(files_in_folder(), 0U);
    EXPECT_THROW(write_file_past_cache(folder_ / "absent" / "a", buffer.bytes()), DeviceError);
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
