// The convolutions and fully connected layers of a network as im2col + GEMM, the way the first CPU frameworks did them: image by
// image, all three directions, by the library's threads. Everything else of a step is taken to cost nothing, so the time is a lower
// bound of such an engine's. For bench/ablation.py; the BLAS is loaded when the program runs, nothing of it is needed to build.
//
//   lockstep_im2col_step BLAS MODEL BATCH STEPS train|infer      BLAS: path of a shared library with cblas_sgemm
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/statistics.h"
#include "bench/synthetic_step.h"
#include "core/clock.h"
#include "core/error.h"
#include "models/models.h"

namespace lockstep::bench {

namespace {

// cblas.h, as far as it is used.
enum class Order : int { row_major = 101 };
enum class Transpose : int { no = 111, yes = 112 };
using Sgemm = void (*)(Order, Transpose, Transpose, int rows, int columns, int depth, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);

// One convolution of one image. A fully connected layer is one whose kernel covers the whole map.
struct Layer {
    int64_t channels = 0, height = 0, width = 0;  // of the source
    int64_t out_channels = 0, out_height = 0, out_width = 0;
    int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, groups = 1;
    bool needs_source_gradient = true;

    int64_t source_count() const { return channels * height * width; }
    int64_t result_count() const { return out_channels * out_height * out_width; }
    int64_t depth() const { return channels / groups * kernel_h * kernel_w; }  // of the product, per group
    int64_t pixels() const { return out_height * out_width; }
    int64_t weight_count() const { return out_channels * depth(); }
    int64_t column_count() const { return channels * kernel_h * kernel_w * pixels(); }
    bool is_plain() const { return kernel_h * kernel_w * stride_h * stride_w == 1 && pad_h + pad_w == 0; }
};

std::vector<Layer> layers_of(const Graph& graph) {
    const std::vector<FeatureShape> shapes = infer_shapes(graph);
    std::vector<Layer> layers;
    for (size_t index = 1; index < graph.ops.size(); ++index) {
        const Op& op = graph.ops[index];
        const auto* conv = std::get_if<ConvOp>(&op.attributes);
        const auto* fc = std::get_if<FullyConnectedOp>(&op.attributes);
        if (conv == nullptr && fc == nullptr) continue;
        const FeatureShape& in = shapes[static_cast<size_t>(op.inputs[0])];
        const FeatureShape& out = shapes[index];
        Layer layer{.channels = in.channels,
                    .height = in.height,
                    .width = in.width,
                    .out_channels = out.channels,
                    .out_height = out.height,
                    .out_width = out.width,
                    .needs_source_gradient = op.inputs[0] != 0};
        if (fc != nullptr) {
            layer.channels = in.count();
            layer.height = layer.width = 1;
        } else {
            layer.kernel_h = conv->kernel_h;
            layer.kernel_w = conv->kernel_w;
            layer.stride_h = conv->stride_h;
            layer.stride_w = conv->stride_w;
            layer.pad_h = conv->pad_h;
            layer.pad_w = conv->pad_w;
            layer.groups = conv->groups;
            check(conv->dilation_h == 1 && conv->dilation_w == 1, "no dilation in these networks");
        }
        layers.push_back(layer);
    }
    return layers;
}

// Calls work(column element, image element or -1) row by row of the column matrix (channel, tap) x (output pixel).
template <typename Work>
void for_each_column(const Layer& layer, const Work& work) {
    int64_t column = 0;
    for (int64_t channel = 0; channel < layer.channels; ++channel) {
        for (int64_t ky = 0; ky < layer.kernel_h; ++ky) {
            for (int64_t kx = 0; kx < layer.kernel_w; ++kx) {
                for (int64_t y = 0; y < layer.out_height; ++y) {
                    const int64_t row = y * layer.stride_h - layer.pad_h + ky;
                    const bool row_inside = row >= 0 && row < layer.height;
                    const int64_t first = (channel * layer.height + row) * layer.width;
                    for (int64_t x = 0; x < layer.out_width; ++x, ++column) {
                        const int64_t place = x * layer.stride_w - layer.pad_w + kx;
                        work(column, row_inside && place >= 0 && place < layer.width ? first + place : -1);
                    }
                }
            }
        }
    }
}

class Engine {
public:
    Engine(Sgemm sgemm, std::vector<Layer> layers, int batch) : sgemm_(sgemm), layers_(std::move(layers)), batch_(batch) {
        int64_t source = 0, result = 0, weights = 0, columns = 0;
        for (const Layer& layer : layers_) {
            source = std::max(source, batch * layer.source_count());
            result = std::max(result, batch * layer.result_count());
            weights = std::max(weights, layer.weight_count());
            columns = std::max(columns, layer.column_count());
        }
        for (auto& [buffer, count] : {std::pair{&source_, source},
                                      {&source_gradient_, source},
                                      {&result_, result},
                                      {&weights_, weights},
                                      {&weight_gradient_, weights},
                                      {&columns_, columns}}) {
            buffer->assign(static_cast<size_t>(count), 0.01F);
        }
    }

    void forward() {
        for (const Layer& layer : layers_) {
            for (int image = 0; image < batch_; ++image) forward(layer, image);
        }
    }
    void backward() {
        for (const Layer& layer : layers_) {
            std::fill_n(weight_gradient_.begin(), layer.weight_count(), 0.0F);
            for (int image = 0; image < batch_; ++image) backward(layer, image);
        }
    }

private:
    const float* columns_of(const Layer& layer, int image) {
        const float* source = source_.data() + image * layer.source_count();
        if (layer.is_plain()) return source;
        float* columns = columns_.data();
        for_each_column(layer, [&](int64_t column, int64_t element) { columns[column] = element < 0 ? 0.0F : source[element]; });
        return columns;
    }

    void forward(const Layer& layer, int image) {
        const float* columns = columns_of(layer, image);
        const int64_t outs = layer.out_channels / layer.groups;
        for (int64_t group = 0; group < layer.groups; ++group) {
            product(Transpose::no, Transpose::no, outs, layer.pixels(), layer.depth(),
                    weights_.data() + group * outs * layer.depth(), columns + group * layer.depth() * layer.pixels(), 0.0F,
                    result_.data() + image * layer.result_count() + group * outs * layer.pixels());
        }
    }

    void backward(const Layer& layer, int image) {
        const int64_t outs = layer.out_channels / layer.groups;
        const float* columns = columns_of(layer, image);
        for (int64_t group = 0; group < layer.groups; ++group) {
            product(Transpose::no, Transpose::yes, outs, layer.depth(), layer.pixels(), gradient(layer, image, group),
                    columns + group * layer.depth() * layer.pixels(), 1.0F, weight_gradient_.data() + group * outs * layer.depth());
        }
        if (!layer.needs_source_gradient) return;
        float* source_gradient = source_gradient_.data() + image * layer.source_count();
        float* column_gradient = layer.is_plain() ? source_gradient : columns_.data();
        for (int64_t group = 0; group < layer.groups; ++group) {
            product(Transpose::yes, Transpose::no, layer.depth(), layer.pixels(), outs,
                    weights_.data() + group * outs * layer.depth(), gradient(layer, image, group), 0.0F,
                    column_gradient + group * layer.depth() * layer.pixels());
        }
        if (layer.is_plain()) return;
        std::fill_n(source_gradient, layer.source_count(), 0.0F);
        for_each_column(layer, [&](int64_t column, int64_t element) {
            if (element >= 0) source_gradient[element] += column_gradient[column];
        });
    }

    const float* gradient(const Layer& layer, int image, int64_t group) const {
        return result_.data() + image * layer.result_count() + group * layer.out_channels / layer.groups * layer.pixels();
    }

    // c (rows x columns) = a b + beta c, with a and b transposed where said.
    void product(Transpose a_form, Transpose b_form, int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b,
                 float beta, float* c) const {
        const auto narrow = [](int64_t value) { return static_cast<int>(value); };
        sgemm_(Order::row_major, a_form, b_form, narrow(rows), narrow(columns), narrow(depth), 1.0F, a,
               narrow(a_form == Transpose::no ? depth : rows), b, narrow(b_form == Transpose::no ? columns : depth), beta, c,
               narrow(columns));
    }

    Sgemm sgemm_;
    std::vector<Layer> layers_;
    int batch_;
    std::vector<float> source_, source_gradient_, result_, weights_, weight_gradient_, columns_;
};

Sgemm load(const char* path) {
    void* library = dlopen(path, RTLD_NOW);
    if (library == nullptr) throw ConfigError(fmt::format("im2col: cannot load {}: {}; give the path of a BLAS", path, dlerror()));
    void* symbol = dlsym(library, "cblas_sgemm");
    if (symbol == nullptr) throw ConfigError(fmt::format("im2col: {} has no cblas_sgemm; give the path of another BLAS", path));
    return reinterpret_cast<Sgemm>(symbol);
}

int run(const char* blas, const std::string& model, int batch, int steps, bool trains) {
    Engine engine(load(blas), layers_of(build_model(usual_model(model))), batch);
    std::vector<double> rates;
    for (int step = 0; step <= steps; ++step) {
        const int64_t start_ns = now_ns();
        engine.forward();
        if (trains) engine.backward();
        if (step > 0) rates.push_back(batch * 1e9 / static_cast<double>(now_ns() - start_ns));
    }
    const Spread spread = spread_of(rates);
    fmt::print(R"({{"benchmark": "im2col", "model": "{}", "batch": {}, "phase": "{}", "images_per_s": {}, "min": {}, "max": {}}})"
               "\n",
               model, batch, trains ? "train" : "infer", spread.median, spread.smallest, spread.largest);
    return 0;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) {
    try {
        if (argc != 6 || (std::string(argv[5]) != "train" && std::string(argv[5]) != "infer")) {
            fmt::print(stderr, "usage: {} BLAS MODEL BATCH STEPS train|infer\n", argv[0]);
            return 2;
        }
        const int batch = std::stoi(argv[3]), steps = std::stoi(argv[4]);
        if (batch < 1 || steps < 1) throw lockstep::ConfigError("im2col: batch and steps must be at least 1");
        return lockstep::bench::run(argv[1], argv[2], batch, steps, std::string(argv[5]) == "train");
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
}
