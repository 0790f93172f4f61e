// A folder that goes with its owner, however that ends.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "core/file_descriptor.h"

namespace lockstep {

// A folder of its own in the system's place for such (TMPDIR), named PREFIX-xxxxxx; removed with this object. It holds an advisory
// lock on the folder, which the kernel drops when the process is killed; the next owner with this prefix then removes what was
// left.
class TemporaryFolder {
public:
    explicit TemporaryFolder(std::string_view prefix);
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() { remove(); }
    void remove() noexcept;

    const std::filesystem::path& path() const { return path_; }  // empty: the system refused one

private:
    std::filesystem::path path_;
    std::unique_ptr<FileDescriptor> lock_;
};

}  // namespace lockstep
