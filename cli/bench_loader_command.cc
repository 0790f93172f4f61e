// `lockstep bench loader`: how fast pictures become batches, and which stage takes the time.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/loader_bench.h"
#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "core/files.h"
#include "data_loader/source.h"
#include "trainer/recipe.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    std::string path;
    std::vector<std::string> overrides;
    std::string source = "auto", plot;
    int image_size = 224;
    bool json = false;
    bench::LoaderBenchOptions options;
};

bool is_config(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

// What training on ImageNet does to a picture.
PipelineOptions usual_pipeline(int image_size) {
    return {.transforms = {{.kind = Transform::Kind::random_resized_crop, .height = image_size, .width = image_size},
                           {.kind = Transform::Kind::horizontal_flip}},
            .height = image_size,
            .width = image_size};
}

int bench_loader(Arguments arguments) {
    std::unique_ptr<Source> source;
    if (is_config(arguments.path)) {
        const Experiment experiment = read_experiment(arguments.path, arguments.overrides);
        source = open_source(training_source_options(experiment));
        arguments.options.pipeline = pipeline_options(experiment, experiment.data.train);
    } else {
        if (!arguments.overrides.empty()) {
            throw ConfigError(fmt::format("{}: overrides such as {} need a configuration in place of the path of a data set",
                                          arguments.path, arguments.overrides.front()));
        }
        source = open_source({.kind = arguments.source, .path = arguments.path, .image_size = arguments.image_size});
        arguments.options.pipeline = usual_pipeline(arguments.image_size);
    }
    const bench::LoaderBenchResult result = bench::run_loader_bench(*source, arguments.options);
    if (!arguments.plot.empty()) write_file_atomically(arguments.plot, to_svg(result));
    fmt::print("{}", arguments.json ? to_json(result) + "\n" : to_text(result));
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_bench_loader(CLI::App& bench, Action& chosen) {
    CLI::App* command =
        bench.add_subcommand("loader", "time reading, decoding and augmenting, beside libjpeg-turbo's decode alone");
    command->footer("Example: lockstep bench loader imagenet/train --threads 1,2,4 --plot loader.svg");
    const auto arguments = std::make_shared<Arguments>();  // shared with the callback below
    bench::LoaderBenchOptions& options = arguments->options;
    command->add_option("config", arguments->path, "An experiment (YAML), or a data set: then random_resized_crop and hflip")
        ->required();
    command->add_option("overrides", arguments->overrides, "key=value, as for `lockstep train`");
    command->add_option("--source", arguments->source, "Format of the data set; auto: by what lies at the path")
        ->capture_default_str();
    command->add_option("--image-size", arguments->image_size, "Of the crops of a data set")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    command->add_option("--threads", options.threads, "Worker threads, such as 1,2,4; each number is measured")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_option("--images", options.images, "Images of a turn, evenly spaced over the set; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--rounds", options.rounds, "Turns of everything that is measured")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_option("--batch", options.batch, "Images of a batch")->check(CLI::Range(1, 65536))->capture_default_str();
    command->add_option("--batches-ahead", options.batches_ahead, "As data.batches_ahead")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_option("--consumer", options.consumer_images_per_s, "Also against a consumer of so many images/s")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--plot", arguments->plot, "Write the picture here (SVG)");
    command->add_flag("--json", arguments->json, "print one JSON object");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return bench_loader(*arguments); }; });
}

}  // namespace lockstep::cli
