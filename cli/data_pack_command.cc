// lockstep data pack: any source to WebDataset shards. lockstep data index: side indexes for shards that others made.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/choice.h"
#include "cli/commands.h"
#include "cli/data_source_options.h"
#include "core/clock.h"
#include "core/error.h"
#include "data_loader/pack.h"
#include "data_loader/shard_index.h"
#include "data_loader/sources/sources.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    SourceChoice source;
    PackOptions pack;
    uint64_t shuffle_seed = 0;
    std::string on_bad_image = "error";
};

// One line that is written over, on a terminal only.
void show_progress(int64_t done, int64_t total, int64_t start_ns) {
    const double seconds = static_cast<double>(now_ns() - start_ns) * 1e-9;
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
    fmt::print(stderr, "\r{} of {} images, {:.0f} images/s, {:.0f} s left   {}", done, total, rate,
               static_cast<double>(total - done) / std::max(rate, 1e-3), done == total ? "\n" : "");
    std::fflush(stderr);
}

int run_pack(const Arguments& arguments) {
    PackOptions options = arguments.pack;
    options.skip_bad = arguments.on_bad_image == "skip";
    const std::unique_ptr<Source> source = open_chosen(arguments.source);
    const int64_t start_ns = now_ns();
    if (isatty(STDERR_FILENO) != 0) {
        options.progress = [start_ns](int64_t done, int64_t total) { show_progress(done, total, start_ns); };
    }
    const PackResult result = pack(*source, options);
    for (const std::string& reason : result.bad) fmt::print("left out: {}\n", reason);
    fmt::print("{}: {} images in {} shards; {} copied as they were, {} encoded anew, {} there before, {} left out; {:.1f} MB\n",
               shard_pattern(options, result.shards), result.images, result.shards, result.copied, result.encoded, result.resumed,
               result.bad.size(), static_cast<double>(result.picture_bytes) * 1e-6);
    return static_cast<int>(ExitCode::kDone);
}

int run_index(const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
        for (const std::string& path : webdataset_shards(pattern)) {
            const MappedFile shard(path);
            ShardIndex index = scan_shard(shard.bytes(), path);
            read_contents(shard.bytes(), path, index);
            write_file_atomically(shard_index_path(path), encode(index));
            fmt::print("{}: {} samples, {} other members\n", shard_index_path(path).string(), index.entries().size(),
                       index.ignored);
        }
    }
    return static_cast<int>(ExitCode::kDone);
}

void add_index(CLI::App& data, Action& chosen) {
    const auto paths = std::make_shared<std::vector<std::string>>();
    CLI::App* command = data.add_subcommand("index", "Write the side indexes of WebDataset shards, which then open at once");
    command->add_option("path", *paths, "Folder, shard, or pattern such as train-{000..127}.tar")->required();
    command->parse_complete_callback([paths, &chosen] { chosen = [paths] { return run_index(*paths); }; });
}

}  // namespace

void add_data_pack(CLI::App& data, Action& chosen) {
    static const std::map<std::string, Subsampling> kSubsamplings{
        {"keep", Subsampling::keep}, {"420", Subsampling::half}, {"444", Subsampling::full}};
    const auto arguments = std::make_shared<Arguments>();
    PackOptions& pack = arguments->pack;
    pack.threads = default_threads();
    CLI::App* command = data.add_subcommand("pack", "Write any data set as WebDataset shards with side indexes");
    command->footer("Example: lockstep data pack imagenet/train --out packed/train --max-side 500 --shuffle 1");
    add_source_options(*command, arguments->source, Paths::several);
    command->add_option("--out", pack.out, "Folder that gets the shards")->required();
    command->add_option("--prefix", pack.prefix, "Shards are named PREFIX-000000.tar and so on")->capture_default_str();
    command->add_option("--shard-size", pack.shard_bytes, "Largest shard, such as 256MB")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
    command->add_option("--max-side", pack.max_side, "Reduce longer sides to this many pixels; 0: keep every size")
        ->check(CLI::Range(0, 16384))
        ->capture_default_str();
    command->add_option("--quality", pack.quality, "JPEG quality of what is encoded anew")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command->add_option("--subsampling", pack.subsampling, "Colour of JPEG files: keep, or encode what differs anew as 420 or 444")
        ->transform(one_of(kSubsamplings));
    CLI::Option* shuffle = command->add_option("--shuffle", arguments->shuffle_seed, "Write in a random order of this seed");
    command->add_option("--threads", pack.threads, "Threads that read and encode")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_option("--on-bad-image", arguments->on_bad_image, "error: stop at it; skip: leave it out and list it")
        ->check(one_of({"error", "skip"}))
        ->capture_default_str();
    command->add_flag("--resume", pack.resume, "Go on after the last complete shard of an unfinished run");
    command->parse_complete_callback([arguments, shuffle, &chosen] {
        if (shuffle->count() > 0) arguments->pack.shuffle_seed = arguments->shuffle_seed;
        chosen = [arguments] { return run_pack(*arguments); };
    });
    add_index(data, chosen);
}

}  // namespace lockstep::cli
