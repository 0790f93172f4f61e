// lockstep data show: pictures of an epoch as the network sees them, on one page of HTML that needs no other file.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "core/files.h"
#include "data_loader/pipeline.h"
#include "data_loader/png_encoder.h"
#include "data_loader/sampler.h"
#include "data_loader/source.h"
#include "trainer/recipe.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    std::string config;
    std::vector<std::string> overrides;
    std::string out;
    int64_t epoch = 0;
    int64_t count = 32;
};

std::string base64(const std::vector<uint8_t>& bytes) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t place = 0; place < bytes.size(); place += 3) {
        const size_t count = std::min<size_t>(3, bytes.size() - place);
        uint32_t bits = 0;
        for (size_t byte = 0; byte < 3; ++byte) bits = bits << 8 | (byte < count ? bytes[place + byte] : 0U);
        for (size_t digit = 0; digit < 4; ++digit) text += digit > count ? '=' : kDigits[bits >> (18 - 6 * digit) & 63U];
    }
    return text;
}

std::string escaped(std::string_view text) {
    std::string result;
    for (const char letter : text) {
        if (letter == '<')
            result += "&lt;";
        else if (letter == '&')
            result += "&amp;";
        else if (letter == '"')
            result += "&quot;";
        else
            result += letter;
    }
    return result;
}

// The pipeline's floats back to the pixels they came from.
ImageView to_pixels(const std::vector<float>& values, const PipelineOptions& options, bool mirrored, Image& out) {
    const ImageView view = out.reshape(options.width, options.height, options.channels == 1 ? 1 : 4);
    const size_t width = static_cast<size_t>(options.width), plane = width * static_cast<size_t>(options.height);
    const size_t step = static_cast<size_t>(view.bytes_per_pixel);
    const auto mean_at = [&](size_t channel, size_t place) {
        if (!options.mean_image) return options.mean[channel];
        const size_t x = place % width, from = mirrored ? place - x + (width - 1 - x) : place;
        return options.mean_image->values[channel * plane + from];
    };
    for (size_t place = 0; place < plane; ++place) {
        uint8_t* pixel = view.row(static_cast<int>(place / width)) + place % width * step;
        for (size_t channel = 0; channel < static_cast<size_t>(options.channels); ++channel) {
            const float value = values[channel * plane + place] * options.stddev[channel] + mean_at(channel, place);
            pixel[channel] = static_cast<uint8_t>(std::clamp(std::lround(value * 255.0F), 0L, 255L));
        }
    }
    return view;
}

std::string describe(const PipelineChoices& choices) {
    std::string text = fmt::format("stored {}x{}", choices.stored.width, choices.stored.height);
    for (const CropBox& box : choices.crops) text += fmt::format(", crop {}x{} at {},{}", box.width, box.height, box.x, box.y);
    if (choices.flipped) text += ", flipped";
    for (const auto& [name, value] : choices.operations) text += fmt::format(", {} {:.3g}", name, value);
    if (const CropBox& box = choices.erased; box.width > 0) {
        text += fmt::format(", erased {}x{} at {},{}", box.width, box.height, box.x, box.y);
    }
    return text;
}

class Sheet {
public:
    Sheet(const Source& source, const PipelineOptions& options)
        : source_(source),
          options_(options),
          pipeline_(options),
          values_(static_cast<size_t>(options.channels) * static_cast<size_t>(options.height) *
                  static_cast<size_t>(options.width)) {}

    // One cell; a bad picture's says why.
    std::string cell(int64_t epoch, int64_t sample) {
        std::string picture, choices;
        source_.read(sample, record_);
        try {
            pipeline_.run(record_, epoch, sample, values_);
            std::vector<uint8_t> file;
            encode_png(to_pixels(values_, options_, pipeline_.choices().flipped, image_), file);
            picture =
                fmt::format("<img width=\"{}\" src=\"data:image/png;base64,{}\">", std::max(options_.width, 96), base64(file));
            choices = describe(pipeline_.choices());
        } catch (const DataError& error) {
            picture = escaped(error.what());
        }
        const std::vector<std::string>& names = source_.class_names();
        const std::string label = record_.label < std::ssize(names) ? names[static_cast<size_t>(record_.label)] : "";
        return fmt::format("<figure>{}<figcaption><b>{} {}</b><br>sample {}<br>{}<br><small>{}</small></figcaption></figure>\n",
                           picture, record_.label, escaped(label), sample, choices, escaped(record_.key));
    }

private:
    const Source& source_;
    const PipelineOptions& options_;
    Pipeline pipeline_;
    Record record_;
    Image image_;
    std::vector<float> values_;
};

int show(const Arguments& arguments) {
    if (!arguments.out.ends_with(".html")) {
        throw ConfigError(fmt::format("--out {}: the sheet is a page of HTML; give a name that ends in .html", arguments.out));
    }
    const Experiment experiment = read_experiment(arguments.config, arguments.overrides);
    const std::unique_ptr<Source> source = open_source(training_source_options(experiment));
    const std::vector<int64_t> order = Sampler(sampler_options(experiment, source->size())).permutation(arguments.epoch);
    const PipelineOptions options = pipeline_options(experiment, experiment.data.train);
    const int64_t count = std::min<int64_t>(arguments.count, std::ssize(order));
    std::string page = fmt::format(
        "<!doctype html><meta charset=\"utf-8\"><title>Epoch {0}</title><style>body{{font:13px "
        "sans-serif}}main{{display:grid;gap:16px 12px;grid-template-columns:repeat(auto-fill,minmax({3}px,1fr))}}"
        "figure{{margin:0;overflow-wrap:anywhere}}img{{image-rendering:pixelated}}</style>"
        "<h1>The first {1} samples of epoch {0}</h1><p>{2}</p><main>\n",
        arguments.epoch, count, escaped(source->description()), std::max(options.width, 200));
    Sheet sheet(*source, options);
    for (int64_t place = 0; place < count; ++place) page += sheet.cell(arguments.epoch, order[static_cast<size_t>(place)]);
    write_file_atomically(arguments.out, page + "</main>\n");
    fmt::print("{}: {} samples of epoch {}\n", arguments.out, count, arguments.epoch);
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_data_show(CLI::App& data, Action& chosen) {
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = data.add_subcommand("show", "Show augmented samples of an epoch with labels, crops and flips");
    command->footer("Example: lockstep data show configs/quickstart.yaml --epoch 2 --out sheet.html");
    command->add_option("config", arguments->config, "The experiment (YAML)")->required();
    command->add_option("overrides", arguments->overrides, "key=value, as for `lockstep train`");
    command->add_option("--out", arguments->out, "The page to write, x.html")->required();
    command->add_option("--epoch", arguments->epoch, "Epoch")->check(CLI::NonNegativeNumber)->capture_default_str();
    command->add_option("--count", arguments->count, "Samples, in the order of the epoch")
        ->check(CLI::Range(1, 10'000))
        ->capture_default_str();
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return show(*arguments); }; });
}

}  // namespace lockstep::cli
