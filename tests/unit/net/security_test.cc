// Secrets, own addresses and room for open files.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "net/local_address.h"
#include "net/open_files.h"
#include "net/secrets.h"
#include "tests/support/error_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char each : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(each));
    return text;
}

// RFC 4231, test cases 2 and 6.
TEST(Secrets, KeyedHashIsHmacSha256) {
    EXPECT_EQ(hex(keyed_hash("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hex(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secrets, ComparisonSeesEveryDifference) {
    EXPECT_TRUE(equal_secrets("abc", "abc"));
    EXPECT_FALSE(equal_secrets("abc", "abd"));
    EXPECT_FALSE(equal_secrets("abc", "ab"));
    EXPECT_TRUE(equal_secrets("", ""));
    EXPECT_NE(random_bytes(32), random_bytes(32));
    EXPECT_EQ(random_bytes(32).size(), 32U);
}

class SecretFromEnvironment : public testing::Test {
protected:
    void TearDown() override {
        unsetenv("LOCKSTEP_JOB_SECRET");
        unsetenv("LOCKSTEP_JOB_SECRET_FILE");
    }
    void SetUp() override { TearDown(); }
    const std::string path_ = testing::TempDir() + "job-secret-" + std::to_string(getpid());
};

TEST_F(SecretFromEnvironment, IsTheVariableOrTheFilesFirstLine) {
    EXPECT_EQ(job_secret_from_environment(), "");
    setenv("LOCKSTEP_JOB_SECRET", "0123456789abcdef", 1);
    EXPECT_EQ(job_secret_from_environment(), "0123456789abcdef");
    unsetenv("LOCKSTEP_JOB_SECRET");
    std::ofstream(path_) << "a secret in a file\nsecond line\n";
    setenv("LOCKSTEP_JOB_SECRET_FILE", path_.c_str(), 1);
    EXPECT_EQ(job_secret_from_environment(), "a secret in a file");
    std::remove(path_.c_str());
}

TEST_F(SecretFromEnvironment, RefusesWhatIsWeakMissingOrAmbiguousWithoutShowingIt) {
    setenv("LOCKSTEP_JOB_SECRET", "short", 1);
    const std::string weak = error_of([] { job_secret_from_environment(); });
    EXPECT_THAT(weak, AllOf(HasSubstr("has 5 characters"), HasSubstr("openssl rand")));
    EXPECT_EQ(weak.find("short"), std::string::npos);
    setenv("LOCKSTEP_JOB_SECRET_FILE", "/no/such/file", 1);
    EXPECT_THAT(error_of([] { job_secret_from_environment(); }), HasSubstr("both set"));
    unsetenv("LOCKSTEP_JOB_SECRET");
    EXPECT_THAT(error_of([] { job_secret_from_environment(); }), HasSubstr("/no/such/file"));
}

TEST(LocalAddress, IsLoopbackForJobsOfOneNode) {
    EXPECT_EQ(local_addresses({.store_host = "127.0.0.1", .store_port = 1}, ""), std::vector<std::string>{"127.0.0.1"});
    EXPECT_EQ(local_addresses({.store_host = "no.such.host.invalid"}, ""), std::vector<std::string>{"127.0.0.1"});
}

TEST(LocalAddress, OfSeveralNodesIsNeverLoopback) {
    const World world{.size = 2, .node_count = 2, .store_host = "127.0.0.1", .store_port = 1};
    const std::vector<std::string> addresses = local_addresses(world, "");
    // Only a machine that has nothing else can but play all nodes itself.
    if (addresses == std::vector<std::string>{"127.0.0.1"}) GTEST_SKIP() << "this machine has loopback only";
    for (const std::string& each : addresses) EXPECT_FALSE(each.starts_with("127.") || each == "::1") << each;
}

TEST(LocalAddress, ForcedInterfaceMustExist) {
    EXPECT_EQ(local_addresses({}, "lo").size(), 1U);
    EXPECT_THAT(error_of([] { local_addresses({}, "nosuch0"); }),
                AllOf(HasSubstr("`nosuch0`"), HasSubstr("there are: "), HasSubstr("lo")));
}

// In a process of its own: limits cannot be raised again.
std::string with_file_limits(rlim_t soft, rlim_t hard, const std::function<std::string()>& action) {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
        check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit can be lowered");
        const std::string text = action();
        _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string text(4096, '\0');
    const ssize_t got = read(ends[0], text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return text;
}

TEST(OpenFiles, TheSoftLimitIsRaisedAsFarAsNeeded) {
    const std::string text = with_file_limits(30, 200, [] {
        reserve_open_files(100, "the test");
        for (int file = 0; file < 100; ++file) {
            if (open("/dev/null", O_RDONLY) < 0) return fmt::format("only {} could be opened", file);
        }
        return std::string("all");
    });
    EXPECT_EQ(text, "all");
}

TEST(OpenFiles, BeyondTheHardLimitTheErrorGivesNeededAndAllowed) {
    const std::string text = with_file_limits(30, 40, [] { return error_of([] { reserve_open_files(100, "the test"); }); });
    EXPECT_THAT(text, AllOf(HasSubstr("the test needs 1"), HasSubstr("this process may have 30 (hard limit 40)"),
                            HasSubstr("ulimit -n 1")));
}

}  // namespace
}  // namespace lockstep
