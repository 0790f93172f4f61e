#include "cli/data_source_options.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/choice.h"
#include "data_loader/joined_source.h"

namespace lockstep::cli {

void add_source_options(CLI::App& command, SourceChoice& choice, Paths paths) {
    command.add_option("path", choice.paths, "Folder, file, or shards such as train-{000..127}.tar")
        ->required()
        ->expected(1, paths == Paths::one ? 1 : CLI::detail::expected_max_vector_size);
    command.add_option("--source", choice.options.kind, "Format; auto: by what lies at the path (docs/data.md lists them)")
        ->capture_default_str();
    command.add_option("--labels", choice.options.labels_path,
                       "Label file of a flat folder, or of idx images that have none beside them");
    command.add_option("--first-label", choice.options.first_label, "What integer labels count from")->check(CLI::Range(0, 1));
    command.add_flag("--coarse", choice.options.coarse_labels, "The 20 superclasses of CIFAR-100");
    command.add_option("--raw-colour", choice.options.raw_colour, "Of raw pixels in an LMDB, which colour comes first")
        ->check(one_of({"bgr", "rgb"}))
        ->capture_default_str();
    command.add_option("--num-classes", choice.options.num_classes, "Refuse labels outside [0, N)");
    command.add_flag("--val", choice.validation, "The validation part of a folder that holds both (mnist, cifar_bin)");
}

std::unique_ptr<Source> open_chosen(const SourceChoice& choice) {
    SourceOptions options = choice.options;
    options.train = !choice.validation;
    std::vector<std::unique_ptr<Source>> sources;
    for (const std::string& path : choice.paths) {
        options.path = path;
        sources.push_back(open_source(options));
        options.class_names = sources.front()->class_names();
    }
    return join_sources(std::move(sources));
}

int default_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace lockstep::cli
