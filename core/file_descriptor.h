// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

namespace lockstep {

class FileDescriptor {
public:
    explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    ~FileDescriptor() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    int get() const { return descriptor_; }  // negative: not open

private:
    int descriptor_;
};

}  // namespace lockstep
