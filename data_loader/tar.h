// The members of a tar file, found without copying: plain ustar, pax (path and size) and GNU long names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct TarMember {
    std::string name;  // without leading "./"
    uint64_t offset = 0, size = 0;
};

struct TarIndex {
    std::vector<TarMember> members;  // regular files in file order
    int64_t skipped = 0;             // links and devices
};

// Every length is checked against the file before it is used. DataError naming `path`, the record number and the offset for: an
// empty or cut file, a wrong header checksum, an impossible length, a missing end mark (a file cut between members must not lose
// samples in silence), data after the end mark, sparse and multi-volume members.
TarIndex read_tar_index(std::span<const std::byte> bytes, const std::filesystem::path& path);

// Does the first block have a tar header with a right checksum?
bool looks_like_tar(std::span<const std::byte> bytes);

// Does the block before `offset` hold a right header of a member of `size` bytes?
bool is_tar_member(std::span<const std::byte> bytes, uint64_t offset, uint64_t size);

}  // namespace lockstep
