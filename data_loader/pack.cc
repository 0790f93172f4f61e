#include "data_loader/pack.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/random.h"
#include "data_loader/repack.h"
#include "data_loader/shard_index.h"
#include "data_loader/shard_writer.h"

namespace lockstep {

namespace {

constexpr size_t kBlockPerThread = 32;  // samples prepared between two rounds of writing

fs::path shard_path(const PackOptions& options, int64_t shard) {
    return options.out / fmt::format("{}-{:06}.tar", options.prefix, shard);
}

std::vector<int64_t> writing_order(int64_t count, const PackOptions& options) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), int64_t{0});
    if (!options.shuffle_seed) return order;
    RandomStream random(*options.shuffle_seed, "pack");
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
    return order;
}

// What decides every byte written; one "key value" a line.
std::string recipe(const Source& source, const PackOptions& options) {
    return fmt::format(
        "lockstep pack 1\nsource {}\nfingerprint {}\nimages {}\nshard_bytes {}\nmax_side {}\nquality {}\nsubsampling {}\n"
        "shuffle {}\nskip_bad {}\n",
        source.description(), hash_hex(source.fingerprint()), source.size(), options.shard_bytes, options.max_side, options.quality,
        static_cast<int>(options.subsampling), options.shuffle_seed ? fmt::format("{}", *options.shuffle_seed) : "none",
        options.skip_bad);
}

// Refuses a folder that holds something else. True when there is an earlier run to go on with.
bool claim_folder(const std::string& wanted, const PackOptions& options) {
    make_directories(options.out);
    const fs::path path = options.out / "pack.txt";
    const bool known = fs::exists(path);
    if (known && options.resume) {
        const std::string found = read_file(path);
        if (found == wanted) return true;
        const auto [a, b] = std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end());
        const auto line_at = [](const std::string& text, size_t place) {
            const size_t begin = place == 0 ? 0 : text.rfind('\n', place - 1) + 1;
            return text.substr(begin, text.find('\n', begin) - begin);
        };
        throw ConfigError(
            fmt::format("{} was packed with \"{}\", this run says \"{}\"; give the same source and options or another "
                        "--out",
                        options.out.string(), line_at(found, static_cast<size_t>(a - found.begin())),
                        line_at(wanted, static_cast<size_t>(b - wanted.begin()))));
    }
    if (known || fs::exists(shard_path(options, 0))) {
        throw ConfigError(
            fmt::format("{} already holds shards; add --resume to go on with an unfinished run, or choose another --out",
                        options.out.string()));
    }
    write_file_atomically(path, wanted);
    return false;
}

void write_class_names(const Source& source, const PackOptions& options) {
    if (source.class_names().empty()) return;
    write_file_atomically(options.out / "class_names.txt", fmt::format("{}\n", fmt::join(source.class_names(), "\n")));
}

class Packer {
public:
    Packer(const Source& source, const PackOptions& options)
        : source_(source),
          options_(options),
          order_(writing_order(source.size(), options)),
          repackers_(static_cast<size_t>(std::max(options.threads, 1))),
          block_(repackers_.size() * kBlockPerThread) {}

    PackResult run(bool resume) {
        if (resume) skip_complete_shards();
        for (size_t first = next_; first < order_.size(); first += block_.size()) {
            const size_t count = std::min(block_.size(), order_.size() - first);
            prepare(first, count);
            for (size_t place = 0; place < count; ++place) write(first + place, block_[place]);
            if (options_.progress) options_.progress(static_cast<int64_t>(first + count), std::ssize(order_));
        }
        close_shard();
        result_.images = result_.resumed + result_.copied + result_.encoded;
        if (result_.images == 0) throw DataError("no picture could be packed; `lockstep data verify` says why");
        return std::move(result_);
    }

private:
    // Keys hold the place in the writing order, so the last key of the last complete shard says where to go on.
    void skip_complete_shards() {
        for (; fs::exists(shard_path(options_, result_.shards)); ++result_.shards) {
            const fs::path shard = shard_path(options_, result_.shards);
            const fs::path path = shard_index_path(shard);
            const ShardIndex index = parse_shard_index(MappedFile(path).bytes(), path);
            const std::string reason = mismatch(index, MappedFile(shard).bytes());
            const std::string_view key = index.entries().empty() ? "" : index.name(index.entries().size() - 1);
            const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), next_);
            const bool ours = error == std::errc() && end != key.data() + key.size() && *end == '.';
            if (!reason.empty() || !ours) {
                throw DataError(fmt::format("{}: cannot go on after this shard ({}); remove it and its .idx", shard.string(),
                                            reason.empty() ? "its last key is not ours" : reason));
            }
            ++next_;
            result_.resumed += std::ssize(index.entries());
        }
    }

    // Samples [first, first + count) of the order into block_, by all threads.
    void prepare(size_t first, size_t count) {
        std::atomic<size_t> next{0};
        std::vector<std::jthread> workers;
        for (Repacker& repacker : repackers_) {
            workers.emplace_back([&] {
                for (size_t place = next.fetch_add(1); place < count; place = next.fetch_add(1)) {
                    Slot& slot = block_[place];
                    slot.failure = nullptr;
                    try {
                        source_.read(order_[first + place], slot.record);
                        repacker.run(slot.record, options_, slot.packed);
                    } catch (...) {
                        slot.failure = std::current_exception();
                    }
                }
            });
        }
    }

    struct Slot {
        Record record;
        Repacked packed;
        std::exception_ptr failure;
    };

    void write(size_t position, const Slot& slot) {
        if (slot.failure) {
            note_bad(slot.failure);
            return;
        }
        const uint64_t added = ShardWriter::bytes_of_sample(slot.packed.bytes.size());
        if (shard_ && shard_->bytes() + added > options_.shard_bytes) close_shard();
        if (!shard_) shard_ = std::make_unique<ShardWriter>(shard_path(options_, result_.shards));
        shard_->add(fmt::format("{:08}", position), slot.packed.suffix, slot.packed.bytes, slot.record.label, slot.packed.size);
        ++(slot.packed.copied ? result_.copied : result_.encoded);
        result_.picture_bytes += slot.packed.bytes.size();
    }

    void note_bad(const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const DataError& error) {
            if (!options_.skip_bad) throw;
            result_.bad.emplace_back(error.what());
        }
    }

    void close_shard() {
        if (!shard_) return;
        shard_->finish();
        shard_.reset();
        ++result_.shards;
    }

    const Source& source_;
    const PackOptions& options_;
    const std::vector<int64_t> order_;
    std::vector<Repacker> repackers_;  // one per thread
    std::vector<Slot> block_;
    std::unique_ptr<ShardWriter> shard_;
    size_t next_ = 0;  // place in the order to begin at
    PackResult result_;
};

}  // namespace

PackResult pack(const Source& source, const PackOptions& options) {
    make_directories(options.out);
    const FolderLock lock(options.out, 0, "another `lockstep data pack` writes there");
    const bool resume = claim_folder(recipe(source, options), options);
    write_class_names(source, options);
    return Packer(source, options).run(resume);
}

std::string shard_pattern(const PackOptions& options, int64_t shards) {
    return (options.out / fmt::format("{}-{{000000..{:06}}}.tar", options.prefix, shards - 1)).string();
}

}  // namespace lockstep
