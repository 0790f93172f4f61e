#include "data_loader/lmdb_file.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE, kVersion = 1;
constexpr uint64_t kPageHead = 16;  // number (8 bytes), pad, flags, end of the offsets, begin of the nodes (2 each)
constexpr uint64_t kNodeHead = 8;   // value's size or child's number (4), flags, key's size (2 each)
constexpr uint64_t kMetaEnd = kPageHead + 136;
constexpr uint64_t kMinPage = 256, kMaxPage = 65536;
constexpr uint64_t kNoPage = ~uint64_t{0};  // the root of an empty tree
constexpr size_t kMaxDepth = 32;
enum PageFlag : uint16_t { kBranch = 1, kLeaf = 2, kOverflow = 4 };
enum NodeFlag : uint16_t { kBigValue = 1, kSubTree = 2, kDuplicates = 4 };

template <typename Number>
Number number_at(std::span<const std::byte> file, uint64_t offset) {
    Number number = 0;
    std::memcpy(&number, file.data() + offset, sizeof number);
    return number;
}

// Of one of the two first pages; offsets from the page's begin.
struct Meta {
    uint64_t page_bytes, entries, root, transaction;
};
bool is_meta(std::span<const std::byte> file, uint64_t begin) {
    return begin + kMetaEnd <= file.size() && number_at<uint32_t>(file, begin + kPageHead) == kMagic;
}
Meta read_meta(std::span<const std::byte> file, uint64_t begin) {
    return {.page_bytes = number_at<uint32_t>(file, begin + 40),
            .entries = number_at<uint64_t>(file, begin + 120),
            .root = number_at<uint64_t>(file, begin + 128),
            .transaction = number_at<uint64_t>(file, begin + 144)};
}

class TreeReader {
public:
    TreeReader(std::span<const std::byte> file, const std::filesystem::path& path) : file_(file), path_(path) {
        if (!is_meta(file, 0)) fail(0, "no LMDB file of 64-bit machines");
        if (const auto version = number_at<uint32_t>(file, kPageHead + 4); version != kVersion) {
            fail(kPageHead + 4, fmt::format("version {} of the format; this program reads {}", version, kVersion));
        }
        meta_ = read_meta(file, 0);
        page_bytes_ = meta_.page_bytes;
        if (page_bytes_ < kMinPage || page_bytes_ > kMaxPage || (page_bytes_ & (page_bytes_ - 1)) != 0) {
            fail(40, fmt::format("pages of {} bytes", page_bytes_));
        }
        if (!is_meta(file, page_bytes_)) fail(page_bytes_, "the second description is missing");
        if (const Meta second = read_meta(file, page_bytes_); second.transaction > meta_.transaction) meta_ = second;
        page_count_ = file.size() / page_bytes_;
        taken_.resize(page_count_);
        // A value takes more than the head of its node.
        if (meta_.entries > file.size() / kNodeHead) fail(120, fmt::format("{} values do not fit into the file", meta_.entries));
    }

    std::vector<std::span<const std::byte>> run() {
        values_.reserve(meta_.entries);
        if (meta_.root != kNoPage) descend(meta_.root, 1);
        if (values_.size() != meta_.entries) {
            fail(0, fmt::format("{} values found, the file says {}", values_.size(), meta_.entries));
        }
        return std::move(values_);
    }

private:
    [[noreturn]] void fail(uint64_t offset, std::string_view reason) const {
        throw DataError(fmt::format("{}: page {} at offset {}: {}; the LMDB file is damaged or cut, copy or make it again",
                                    path_.string(), page_bytes_ == 0 ? 0 : offset / page_bytes_, offset, reason));
    }

    // Where page `number` begins. It was named at `from`, and nowhere else: every page belongs to one place of the tree.
    uint64_t take_page(uint64_t number, uint64_t from) {
        if (number < 2 || number >= page_count_) fail(from, fmt::format("it names page {} of {}", number, page_count_));
        if (taken_[number]) fail(number * page_bytes_, "the tree has it in two places");
        taken_[number] = true;
        return number * page_bytes_;
    }

    void descend(uint64_t number, size_t depth) {
        const uint64_t begin = take_page(number, 0);
        if (depth > kMaxDepth) fail(begin, fmt::format("the tree is deeper than {} pages", kMaxDepth));
        const auto flags = number_at<uint16_t>(file_, begin + 10), lower = number_at<uint16_t>(file_, begin + 12);
        if (flags != kBranch && flags != kLeaf) fail(begin, fmt::format("flags {:#x} are those of no branch or leaf", flags));
        if (lower <= kPageHead || lower > page_bytes_ || lower % 2 != 0) fail(begin, "it holds no node");
        for (uint64_t place = kPageHead; place < lower; place += 2) {
            const auto within = number_at<uint16_t>(file_, begin + place);
            if (within < lower || within + kNodeHead > page_bytes_) fail(begin, fmt::format("a node at {} of the page", within));
            const uint64_t node = begin + within;
            if (flags == kLeaf) {
                add_value(begin, node);
            } else {
                descend(number_at<uint32_t>(file_, node) | uint64_t{number_at<uint16_t>(file_, node + 4)} << 32, depth + 1);
            }
        }
    }

    void add_value(uint64_t begin, uint64_t node) {
        const uint64_t size = number_at<uint32_t>(file_, node);
        const auto flags = number_at<uint16_t>(file_, node + 4), key_size = number_at<uint16_t>(file_, node + 6);
        if ((flags & (kSubTree | kDuplicates)) != 0) fail(node, "named databases and several values of a key are not supported");
        if (values_.size() == meta_.entries) fail(node, fmt::format("more values than the {} that the file says", meta_.entries));
        uint64_t data = node + kNodeHead + key_size, end = begin + page_bytes_;
        if ((flags & kBigValue) != 0) {
            if (data + 8 > end) fail(node, "it ends outside its page");
            const uint64_t page = take_page(number_at<uint64_t>(file_, data), node);
            if (number_at<uint16_t>(file_, page + 10) != kOverflow) fail(page, "a large value should begin here");
            data = page + kPageHead;
            end = file_.size();
        }
        if (data > end || size > end - data) fail(node, fmt::format("a value of {} bytes ends outside", size));
        values_.push_back(file_.subspan(data, size));
    }

    std::span<const std::byte> file_;
    const std::filesystem::path& path_;
    Meta meta_{};
    uint64_t page_bytes_ = 0, page_count_ = 0;
    std::vector<bool> taken_;  // of each page: a branch, a leaf or a large value begins there
    std::vector<std::span<const std::byte>> values_;
};

}  // namespace

bool looks_like_lmdb(std::span<const std::byte> file) { return is_meta(file, 0); }

std::vector<std::span<const std::byte>> read_lmdb_values(std::span<const std::byte> file, const std::filesystem::path& path) {
    return TreeReader(file, path).run();
}

}  // namespace lockstep
