// Prints what the pixel pipeline makes of every picture of a set, for scripts that compare with other libraries.
//
//   lockstep_pixels SET MODE > pixels
//
// MODE: decode | train | train_bicubic | train_full | train_once | val | val_bicubic. For each picture one line
//   KEY WIDTH HEIGHT CHANNELS CROP_X CROP_Y CROP_WIDTH CROP_HEIGHT FLIPPED
// and then WIDTH * HEIGHT * CHANNELS bytes (channels last). The crop is the random_resized_crop's, in the stored picture.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/pipeline.h"
#include "data_loader/source.h"

namespace {

using namespace lockstep;

PipelineOptions options_for(const std::string& mode) {
    const bool bicubic = mode.ends_with("bicubic");
    const Filter filter = bicubic ? Filter::bicubic : Filter::bilinear;
    PipelineOptions options{.decode = mode == "train_full" ? DecodeMode::full : DecodeMode::exact, .seed = 1};
    if (mode == "decode") return options;
    if (mode.starts_with("val")) {
        options.transforms = {{.kind = Transform::Kind::resize, .height = 256, .filter = filter},
                              {.kind = Transform::Kind::center_crop, .height = 224, .width = 224}};
        return options;
    }
    if (!mode.starts_with("train")) throw ConfigError(fmt::format("unknown mode {}", mode));
    options.transforms = {{.kind = Transform::Kind::random_resized_crop,
                           .height = 224,
                           .width = 224,
                           .filter = filter,
                           .rounding = mode == "train_once" ? Rounding::once : Rounding::each_pass},
                          {.kind = Transform::Kind::horizontal_flip}};
    return options;
}

void print(const Record& record, const ImageView& view, const PipelineChoices& choices) {
    const CropBox box = choices.crops.empty() ? CropBox{} : choices.crops.front();
    const int channels = view.bytes_per_pixel == 1 ? 1 : 3;
    fmt::print("{} {} {} {} {} {} {} {} {}\n", record.key.substr(record.key.find_last_of(":/") + 1), view.width, view.height,
               channels, box.x, box.y, box.width, box.height, choices.flipped ? 1 : 0);
    std::vector<uint8_t> bytes;
    for (int y = 0; y < view.height; ++y) {
        for (int x = 0; x < view.width; ++x) {
            const uint8_t* pixel = view.row(y) + x * view.bytes_per_pixel;
            bytes.insert(bytes.end(), pixel, pixel + channels);
        }
    }
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        fmt::print(stderr, "lockstep_pixels SET MODE\n");
        return 2;
    }
    try {
        const auto source = open_source({.path = argv[1]});
        Pipeline pipeline(options_for(argv[2]));
        Record record;
        for (int64_t index = 0; index < source->size(); ++index) {
            source->read(index, record);
            const ImageView view = pipeline.pixels(record, 0, index);
            print(record, view, pipeline.choices());
        }
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
