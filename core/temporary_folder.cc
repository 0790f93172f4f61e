#include "core/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPattern = "-XXXXXX";  // mkdtemp replaces these letters

// Null: somebody else has it, or it is no folder of this user.
std::unique_ptr<FileDescriptor> try_to_lock(const fs::path& folder) {
    auto lock = std::make_unique<FileDescriptor>(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat facts {};
    const bool is_mine = lock->get() >= 0 && fstat(lock->get(), &facts) == 0 && facts.st_uid == geteuid();
    return is_mine && flock(lock->get(), LOCK_EX | LOCK_NB) == 0 ? std::move(lock) : nullptr;
}

void remove_what_was_left(const fs::path& place, std::string_view prefix) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
        const std::string name = entry.path().filename().string();
        const bool is_like_mine = name.size() == prefix.size() + kPattern.size() && name.starts_with(prefix);
        if (is_like_mine && try_to_lock(entry.path()) != nullptr) fs::remove_all(entry.path(), error);
    }
}

}  // namespace

TemporaryFolder::TemporaryFolder(std::string_view prefix) {
    std::error_code error;
    const fs::path place = fs::temp_directory_path(error);
    if (error) return;
    try {
        remove_what_was_left(place, prefix);
    } catch (const fs::filesystem_error&) {  // a folder that changes while it is read
    }
    // Another owner may take a folder for left over before it is locked.
    for (int attempt = 0; attempt < 100 && path_.empty(); ++attempt) {
        std::string name = (place / fmt::format("{}{}", prefix, kPattern)).string();
        if (mkdtemp(name.data()) == nullptr) return;
        lock_ = try_to_lock(name);
        if (lock_ != nullptr && fs::exists(name, error)) path_ = name;
    }
}

void TemporaryFolder::remove() noexcept {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace lockstep
