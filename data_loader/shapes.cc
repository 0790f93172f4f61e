#include "data_loader/shapes.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <numbers>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/random.h"
#include "data_loader/jpeg_encoder.h"

namespace lockstep {

namespace {

struct Point {
    float x, y;
};
struct Colour {
    float red, green, blue;
};

Colour mix(const Colour& a, const Colour& b, float weight) {
    return {a.red + (b.red - a.red) * weight, a.green + (b.green - a.green) * weight, a.blue + (b.blue - a.blue) * weight};
}

// Backgrounds are dark and shapes bright, in any hue: what tells the classes apart is the outline, and a small network finds it
// within a few epochs. With free colours on both sides it first has to learn that polarity means nothing, which takes it many times
// longer.
constexpr float kTurnRange = std::numbers::pi_v<float> / 3;  // 30 degrees to either side
constexpr float kDarkest = 0.0F, kDarkEnd = 100.0F, kBrightBegin = 135.0F, kBrightest = 255.0F;

Colour random_colour(RandomStream& random, float low, float high) {
    const auto channel = [&] { return low + random.uniform() * (high - low); };
    const float red = channel(), green = channel(), blue = channel();
    return {red, green, blue};
}

// Signed distances, negative inside; shapes are about one unit in radius around the origin.
float box(Point p, float half_width, float half_height) {
    const float x = std::abs(p.x) - half_width, y = std::abs(p.y) - half_height;
    return std::hypot(std::max(x, 0.0F), std::max(y, 0.0F)) + std::min(std::max(x, y), 0.0F);
}
float disc(Point p, float radius) { return std::hypot(p.x, p.y) - radius; }

// A regular figure of `corners` corners whose inner radius is `inner` of its outer one.
float star(Point p, int corners, float inner) {
    const float sector = std::numbers::pi_v<float> / static_cast<float>(corners);
    const float angle = std::atan2(p.y, p.x);
    const float folded = std::abs(std::remainder(angle, 2 * sector));
    const float radius = std::hypot(p.x, p.y);
    const Point q{radius * std::cos(folded), radius * std::sin(folded)};
    // The edge runs from the tip (1, 0) to the notch.
    const Point notch{inner * std::cos(sector), inner * std::sin(sector)};
    const float edge_x = notch.x - 1, edge_y = notch.y;
    return ((q.x - 1) * edge_y - q.y * edge_x) / std::hypot(edge_x, edge_y);
}

// Distance to the nearest of the bands of width `width` that repeat every two widths.
float bands(float value, float width) { return std::abs(std::remainder(value, 2 * width)) - width / 2; }

// Squares of a board, every other one: where the two bands agree.
float checker(Point p, float width) {
    const float x = bands(p.x, width), y = bands(p.y, width);
    return std::max(std::min(x, y), -std::max(x, y));
}

float shape_distance(int32_t label, Point p) {
    switch (label) {
        case 0:
            return box(p, 1.05F, 0.26F);
        case 1:
            return std::max(box(p, 0.9F, 0.9F), checker(p, 0.6F));
        case 2:
            return disc(p, 0.9F);
        case 3:
            return std::max(disc(p, 0.95F), -disc({p.x - 0.5F, p.y}, 0.75F));
        case 4:
            return std::min(box(p, 1.0F, 0.28F), box(p, 0.28F, 1.0F));
        case 5:
            return std::abs(disc(p, 0.75F)) - 0.2F;
        case 6:
            return box(p, 0.78F, 0.78F);
        case 7:
            return star(p, 5, 0.42F);
        case 8:
            return std::max(disc(p, 1.0F), bands(p.y, 0.32F));
        default:
            return star(p, 3, 0.5F);
    }
}

struct Placed {
    int32_t label = 0;
    Point centre{};
    float radius = 1, cosine = 1, sine = 0;
    Colour colour{};

    // How much of the pixel around `p` the shape covers: 1 inside, 0 outside, between at the edge.
    float coverage(Point p) const {
        const float x = (p.x - centre.x) / radius, y = (p.y - centre.y) / radius;
        if (x * x + y * y > 2.25F) return 0.0F;
        const Point local{cosine * x + sine * y, cosine * y - sine * x};
        return std::clamp(0.5F - shape_distance(label, local) * radius, 0.0F, 1.0F);
    }
};

void turn(Placed& shape, float angle) {
    shape.cosine = std::cos(angle);
    shape.sine = std::sin(angle);
}

ImageSize random_size(ShapeSize size, RandomStream& random) {
    switch (size) {
        case ShapeSize::small:
            return {32, 32};
        case ShapeSize::medium:
            return {128, 128};
        case ShapeSize::imagenet:
            break;
    }
    const int width = 300 + static_cast<int>(random.below(201));
    const int height = 300 + static_cast<int>(random.below(201));
    return {width, height};
}

struct Scene {
    Colour corner_a{}, corner_b{};
    Point slope{};  // of the background's grading, per pixel
    std::vector<Placed> clutter;
    Placed shape;
    float noise = 0;
};

Scene random_scene(int32_t label, ImageSize size, RandomStream& random) {
    const float width = static_cast<float>(size.width), height = static_cast<float>(size.height);
    const float side = std::min(width, height);
    Scene scene;
    scene.corner_a = random_colour(random, kDarkest, kDarkEnd);
    scene.corner_b = random_colour(random, kDarkest, kDarkEnd);
    const float direction = random.uniform() * 2 * std::numbers::pi_v<float>;
    scene.slope = {std::cos(direction) / width, std::sin(direction) / height};
    scene.shape.label = label;
    scene.shape.radius = side * (0.24F + 0.16F * random.uniform());
    const float margin = scene.shape.radius * 0.95F;
    scene.shape.centre = {margin + random.uniform() * (width - 2 * margin), margin + random.uniform() * (height - 2 * margin)};
    turn(scene.shape, (random.uniform() - 0.5F) * kTurnRange);
    scene.shape.colour = random_colour(random, kBrightBegin, kBrightest);
    const uint64_t clutter_count = 2 + random.below(5);
    for (uint64_t index = 0; index < clutter_count; ++index) {
        Placed piece;
        piece.label = static_cast<int32_t>(random.below(kShapeNames.size()));
        piece.radius = side * (0.03F + 0.05F * random.uniform());
        piece.centre = {random.uniform() * width, random.uniform() * height};
        turn(piece, random.uniform() * 2 * std::numbers::pi_v<float>);
        piece.colour = random_colour(random, kDarkest, kBrightest);
        scene.clutter.push_back(piece);
    }
    scene.noise = 4.0F + 20.0F * random.uniform();
    return scene;
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)); }

void paint(const Scene& scene, const ImageView& image, RandomStream& random) {
    const float centre_x = static_cast<float>(image.width) / 2, centre_y = static_cast<float>(image.height) / 2;
    for (int y = 0; y < image.height; ++y) {
        uint8_t* pixel = image.row(y);
        for (int x = 0; x < image.width; ++x, pixel += 4) {
            const Point p{static_cast<float>(x) + 0.5F, static_cast<float>(y) + 0.5F};
            const float grade = 0.5F + (p.x - centre_x) * scene.slope.x + (p.y - centre_y) * scene.slope.y;
            Colour colour = mix(scene.corner_a, scene.corner_b, grade);
            for (const Placed& piece : scene.clutter) colour = mix(colour, piece.colour, piece.coverage(p));
            colour = mix(colour, scene.shape.colour, scene.shape.coverage(p));
            const uint32_t bits = random.next_u32();
            const auto noise = [&](int shift) { return (static_cast<float>(bits >> shift & 0xFFU) / 127.5F - 1.0F) * scene.noise; };
            pixel[0] = to_byte(colour.red + noise(0));
            pixel[1] = to_byte(colour.green + noise(8));
            pixel[2] = to_byte(colour.blue + noise(16));
            pixel[3] = 0xFF;
        }
    }
}

void write_plain(const fs::path& path, const std::vector<uint8_t>& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw DeviceError(fmt::format("cannot write {}; free space or choose another folder", path.string()));
}

std::string parameters(const ShapesOptions& options) {
    return fmt::format("shapes 2: train {} val {} size {} seed {}\n", options.train_count, options.val_count,
                       static_cast<int>(options.size), options.seed);
}

// Pictures [0, train + val) by several threads; the first failure stops all and is thrown.
void write_pictures(const ShapesOptions& options) {
    std::atomic<int64_t> next_picture{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            Image image;
            std::vector<uint8_t> file;
            while (true) {
                const int64_t picture = next_picture.fetch_add(1);
                if (picture >= options.train_count + options.val_count) return;
                const bool train = picture < options.train_count;
                const std::string_view part = train ? "train" : "val";
                const int64_t index = train ? picture : picture - options.train_count;
                const int32_t label = draw_shape_file(options.seed, part, index, options.size, image, file);
                write_plain(options.out / part / kShapeNames[static_cast<size_t>(label)] / fmt::format("{:06}.jpg", index), file);
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
            next_picture = options.train_count + options.val_count;
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < std::max(options.threads, 1); ++thread) threads.emplace_back(work);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

int32_t draw_shape(uint64_t seed, std::string_view part, int64_t index, ShapeSize size, Image& out) {
    RandomStream random(seed, fmt::format("shapes.{}", part), static_cast<uint64_t>(index));
    const int32_t label = static_cast<int32_t>(index % std::ssize(kShapeNames));
    const ImageSize pixels = random_size(size, random);
    const Scene scene = random_scene(label, pixels, random);
    paint(scene, out.reshape(pixels.width, pixels.height, 4), random);
    return label;
}

int32_t draw_shape_file(uint64_t seed, std::string_view part, int64_t index, ShapeSize size, Image& image,
                        std::vector<uint8_t>& file) {
    const int32_t label = draw_shape(seed, part, index, size, image);
    encode_jpeg(image.view(), {.half_chroma = size != ShapeSize::small}, file);
    return label;
}

bool write_shapes(const ShapesOptions& options) {
    if (options.train_count < 0 || options.val_count < 0 || options.train_count + options.val_count == 0) {
        throw ConfigError(fmt::format("--train {} and --val {} must not be negative, and one must be positive", options.train_count,
                                      options.val_count));
    }
    // shapes.txt is written last and says what the folder holds; shapes.unfinished stands there meanwhile.
    const fs::path done = options.out / "shapes.txt", unfinished = options.out / "shapes.unfinished";
    const fs::path train = options.out / "train", val = options.out / "val";
    if (fs::exists(done)) {
        if (read_file(done) == parameters(options)) return false;
        throw ConfigError(fmt::format("{} holds another set of shapes; remove it or choose another --out", options.out.string()));
    }
    if (fs::exists(unfinished)) {
        fs::remove_all(train);
        fs::remove_all(val);
    } else if (fs::exists(train) || fs::exists(val)) {
        throw ConfigError(
            fmt::format("{} already holds train or val and they are not shapes; choose another --out", options.out.string()));
    }
    make_directories(options.out);
    write_file_atomically(unfinished, parameters(options));
    for (const std::string_view name : kShapeNames) {
        if (options.train_count > 0) make_directories(train / name);
        if (options.val_count > 0) make_directories(val / name);
    }
    write_pictures(options);
    write_file_atomically(done, parameters(options));
    fs::remove(unfinished);
    return true;
}

}  // namespace lockstep
