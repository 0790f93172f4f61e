#include "core/temporary_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolder, IsGoneWithItsOwner) {
    fs::path path;
    {
        const TemporaryFolder folder("lockstep-core-test");
        path = folder.path();
        std::ofstream(path / "a.txt") << "{}";
        EXPECT_TRUE(fs::exists(path));
    }
    EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolder, OfAKilledOwnerGoesWithTheNextAndOfALivingOneStays) {
    const std::string prefix = "lockstep-core-" + std::to_string(getpid());
    int tell[2];
    ASSERT_EQ(pipe(tell), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const TemporaryFolder folder(prefix);
        std::ofstream(folder.path() / "a.txt") << "{}";
        const std::string path = folder.path().string();
        if (write(tell[1], path.c_str(), path.size() + 1) < 0) _exit(1);
        pause();
        _exit(1);
    }
    char path[4096] = {};
    ASSERT_GT(read(tell[0], path, sizeof path), 0);
    {
        const TemporaryFolder mine(prefix);
        EXPECT_TRUE(fs::exists(path)) << "its owner lives";
        EXPECT_NE(mine.path(), path);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(fs::exists(path));
    const TemporaryFolder next(prefix);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(fs::exists(next.path()));
    for (const int end : tell) close(end);
}

}  // namespace
}  // namespace lockstep
