// lockstep data: look at a data set, change its form, or draw one.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/choice.h"
#include "cli/commands.h"
#include "cli/data_source_options.h"
#include "core/error.h"
#include "core/hash.h"
#include "data_loader/shapes.h"
#include "data_loader/source.h"
#include "data_loader/verify.h"

namespace lockstep::cli {

namespace {

struct InspectArguments {
    SourceChoice source;
};

std::string class_label(const Source& source, int64_t label) {
    const std::vector<std::string>& names = source.class_names();
    return label < std::ssize(names) ? names[static_cast<size_t>(label)] : fmt::format("{}", label);
}

void print_classes(const Source& source) {
    constexpr int kMaxLines = 40;
    const std::map<int32_t, int64_t> images_per_class = count_labels(source);
    int lines = 0;
    for (const auto& [label, images] : images_per_class) {
        if (++lines > kMaxLines) {
            fmt::print("  ... {} classes more\n", std::ssize(images_per_class) - kMaxLines);
            break;
        }
        fmt::print("  {:>5}  {:<24} {:>9} images\n", label, class_label(source, label), images);
    }
}

int inspect(const InspectArguments& arguments) {
    const std::unique_ptr<Source> source = open_chosen(arguments.source);
    fmt::print("{}\nfingerprint {}\n", source->description(), hash_hex(source->fingerprint()));
    print_classes(*source);
    return static_cast<int>(ExitCode::kDone);
}

int draw(const ShapesOptions& options) {
    const bool written = write_shapes(options);
    fmt::print("{} {} training and {} validation images of {} classes in {}\n",
               written ? "wrote" : "already there:", options.train_count, options.val_count, kShapeNames.size(),
               options.out.string());
    return static_cast<int>(ExitCode::kDone);
}

void add_inspect(CLI::App& data, Action& chosen) {
    const auto arguments = std::make_shared<InspectArguments>();
    CLI::App* command = data.add_subcommand("inspect", "Show what a data set is, its classes and its fingerprint");
    add_source_options(*command, arguments->source, Paths::one);
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return inspect(*arguments); }; });
}

void add_shapes(CLI::App& data, Action& chosen) {
    static const std::map<std::string, ShapeSize> kSizes{
        {"small", ShapeSize::small}, {"medium", ShapeSize::medium}, {"imagenet", ShapeSize::imagenet}};
    const auto options = std::make_shared<ShapesOptions>();
    options->threads = default_threads();
    CLI::App* command = data.add_subcommand("shapes", "Draw a learnable set of ten classes as JPEG files in class folders");
    command->add_option("--out", options->out, "Folder that gets train/ and val/")->required();
    command->add_option("--train", options->train_count, "Training images")->check(CLI::NonNegativeNumber)->capture_default_str();
    command->add_option("--val", options->val_count, "Validation images")->check(CLI::NonNegativeNumber)->capture_default_str();
    command->add_option("--size", options->size, "small (32x32), medium (128x128) or imagenet (300 to 500 a side)")
        ->transform(one_of(kSizes));
    command->add_option("--seed", options->seed, "The same seed gives the same files")->capture_default_str();
    command->add_option("--threads", options->threads, "Drawing threads")->check(CLI::Range(1, 1024))->capture_default_str();
    command->parse_complete_callback([options, &chosen] { chosen = [options] { return draw(*options); }; });
}

}  // namespace

void add_data(CLI::App& app, Action& chosen) {
    CLI::App* data = app.add_subcommand("data", "Look at a data set, change its form, or draw one");
    data->require_subcommand(1);
    add_inspect(*data, chosen);
    add_shapes(*data, chosen);
    add_data_audit(*data, chosen);
    add_data_order(*data, chosen);
    add_data_pack(*data, chosen);
    add_data_look(*data, chosen);
    add_data_show(*data, chosen);
}

}  // namespace lockstep::cli
