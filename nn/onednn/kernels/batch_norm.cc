#include "nn/onednn/kernels/batch_norm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "hwy/cache_control.h"
#include "nn/onednn/kernels/batch_norm_pieces.h"

namespace lockstep::onednn {

namespace {

using norm_pieces::Piece;

constexpr int64_t kPieceElements = 4096;      // 16 KiB in fp32: both sweeps of the statistics find it in the first-level cache
constexpr int64_t kSmallestParallel = 16384;  // elements
constexpr int64_t kPastCachesBytes = int64_t{24} << 20;  // results larger than this leave the caches before they are read
using Lanes = std::array<double, 16>;

// The fixed cut of a tensor into pieces: either some whole planes of a block of channels or a part of one.
class Pieces {
public:
    explicit Pieces(const NormShape& shape) : shape_(shape), blocks_(shape.channels / shape.block) {
        check(shape.channels % shape.block == 0 && (shape.block == 8 || shape.block == 16), "whole blocks of 8 or 16 channels");
        check(shape.type == DataType::f32 || shape.type == DataType::bf16, "batch norm knows f32 and bf16 only");
        const int64_t plane_elements = shape.pixels * shape.block;
        planes_ = std::clamp<int64_t>(kPieceElements / plane_elements, 1, shape.images);
        pixels_ = std::min(shape.pixels, kPieceElements / shape.block);
        groups_ = (shape.images + planes_ - 1) / planes_;
        parts_ = (shape.pixels + pixels_ - 1) / pixels_;
    }

    int64_t blocks() const { return blocks_; }
    int64_t per_block() const { return groups_ * parts_; }
    int64_t count() const { return blocks_ * per_block(); }

    // Where a piece's first element lies, in elements from the tensor's start; its size is set in `piece`.
    int64_t place(int64_t index, Piece& piece) const {
        const int64_t block = index / per_block();
        const int64_t group = index % per_block() / parts_;
        const int64_t part = index % parts_;
        piece.type = shape_.type;
        piece.block = shape_.block;
        piece.plane_stride = shape_.channels * shape_.pixels;
        piece.planes = std::min(planes_, shape_.images - group * planes_);
        piece.pixels = std::min(pixels_, shape_.pixels - part * pixels_);
        return group * planes_ * piece.plane_stride + (block * shape_.pixels + part * pixels_) * shape_.block;
    }

private:
    NormShape shape_;
    int64_t blocks_, planes_ = 1, pixels_ = 0, groups_ = 0, parts_ = 0;
};

const void* at(const NormShape& shape, const void* data, int64_t element) {
    return data == nullptr ? nullptr
                           : static_cast<const std::byte*>(data) + static_cast<size_t>(element) * bytes_per_element(shape.type);
}
void* at(const NormShape& shape, void* data, int64_t element) {
    return const_cast<void*>(at(shape, static_cast<const void*>(data), element));
}
uint8_t* bits_at(const uint8_t* mask, int64_t element) {
    return mask == nullptr ? nullptr : const_cast<uint8_t*>(mask) + element / 8;
}

bool goes_past_caches(const NormShape& shape, const void* result) {
    const int64_t bytes = shape.element_count() * static_cast<int64_t>(bytes_per_element(shape.type));
    return bytes >= kPastCachesBytes && reinterpret_cast<uintptr_t>(result) % 64 == 0;
}

// sums(piece) for all pieces of a block, then finish(block), then results(piece): block after block where every thread has blocks
// of its own, else all threads together in three rounds. The same work on the same pieces either way.
template <typename Sums, typename Finish, typename Results>
void two_sweeps(const Pieces& pieces, int64_t element_count, const Sums& sums, const Finish& finish, const Results& results) {
    const auto whole_blocks = [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * pieces.per_block(), last = first + pieces.per_block();
            for (int64_t piece = first; piece < last; ++piece) sums(piece);
            finish(block);
            for (int64_t piece = first; piece < last; ++piece) results(piece);
        }
        hwy::FlushStream();  // stores around the caches are seen by others from here on
    };
    const int64_t threads = element_count < kSmallestParallel ? 1 : omp_get_max_threads();
    if (threads == 1) {
        whole_blocks(0, pieces.blocks());
        return;
    }
    if (pieces.blocks() % threads == 0 || pieces.blocks() >= 4 * threads) {
#pragma omp parallel num_threads(static_cast <int>(threads))
        whole_blocks(pieces.blocks() * omp_get_thread_num() / threads, pieces.blocks() * (omp_get_thread_num() + 1) / threads);
        return;
    }
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
        const int64_t begin = pieces.count() * omp_get_thread_num() / threads;
        const int64_t end = pieces.count() * (omp_get_thread_num() + 1) / threads;
        for (int64_t piece = begin; piece < end; ++piece) sums(piece);
#pragma omp barrier
        for (int64_t block = omp_get_thread_num(); block < pieces.blocks(); block += threads) finish(block);
#pragma omp barrier
        for (int64_t piece = begin; piece < end; ++piece) results(piece);
        hwy::FlushStream();
    }
}

// The scratch: two sums per channel of every piece, then per-channel coefficients.
struct Scratch {
    float* sums;
    float* coefficients;
};
Scratch scratch_of(const NormShape& shape, const Pieces& pieces, float* data) {
    return {data, data + pieces.count() * 2 * shape.block};
}

// Mean and squared distances of a block's pieces become those of the whole (Chan, Golub and LeVeque, 1979).
void merge_statistics(const Pieces& pieces, const NormShape& shape, int64_t block, const float* sums, float* mean,
                      float* variance) {
    const auto lanes = static_cast<size_t>(shape.block);
    const double count = static_cast<double>(shape.images * shape.pixels);
    const int64_t first = block * pieces.per_block(), last = first + pieces.per_block();
    Lanes means{}, squares{};
    Piece piece;
    for (int64_t index = first; index < last; ++index) {
        pieces.place(index, piece);
        const float* own = sums + index * 2 * shape.block;
        for (size_t lane = 0; lane < lanes; ++lane) means[lane] += static_cast<double>(piece.values()) * own[lane];
    }
    for (double& value : means) value /= count;
    for (int64_t index = first; index < last; ++index) {
        pieces.place(index, piece);
        const float* own = sums + index * 2 * shape.block;
        for (size_t lane = 0; lane < lanes; ++lane) {
            const double distance = own[lane] - means[lane];
            squares[lane] += own[lanes + lane] + static_cast<double>(piece.values()) * distance * distance;
        }
    }
    for (size_t lane = 0; lane < lanes; ++lane) {
        mean[lane] = static_cast<float>(means[lane]);
        variance[lane] = static_cast<float>(squares[lane] / count);
    }
}

void add_up(const Pieces& pieces, const NormShape& shape, int64_t block, const float* sums, Lanes& first_sums, Lanes& second_sums) {
    const auto lanes = static_cast<size_t>(shape.block);
    for (int64_t index = block * pieces.per_block(); index < (block + 1) * pieces.per_block(); ++index) {
        const float* own = sums + index * 2 * shape.block;
        for (size_t lane = 0; lane < lanes; ++lane) {
            first_sums[lane] += own[lane];
            second_sums[lane] += own[lanes + lane];
        }
    }
}

double inverse_deviation(float variance, float epsilon) { return 1.0 / std::sqrt(static_cast<double>(variance) + epsilon); }

double scale_at(const float* scale, int64_t channel) { return scale == nullptr ? 1.0 : scale[channel]; }

void put(float& target, double value, bool accumulate) { target = (accumulate ? target : 0.0F) + static_cast<float>(value); }

}  // namespace

size_t NormShape::scratch_floats() const { return static_cast<size_t>(Pieces(*this).count() * 2 * block + 3 * channels); }

void norm_forward(const NormShape& shape, const NormForward& forward) {
    const Pieces pieces(shape);
    const Scratch scratch = scratch_of(shape, pieces, forward.scratch);
    float* const gains = scratch.coefficients;
    float* const shifts = gains + shape.channels;
    const bool past_caches = goes_past_caches(shape, forward.result);
    const auto piece_of = [&](int64_t index) {
        Piece piece;
        const int64_t element = pieces.place(index, piece);
        const int64_t channel = index / pieces.per_block() * shape.block;
        piece.source = at(shape, forward.source, element);
        piece.other = at(shape, forward.addend, element);
        piece.result = at(shape, forward.result, element);
        piece.mask = bits_at(forward.mask, element);
        piece.mean = forward.mean + channel;
        piece.gain = gains + channel;
        piece.sigmoid = forward.sigmoid;
        piece.shift = shifts + channel;
        piece.sums = scratch.sums + index * 2 * shape.block;
        piece.past_caches = past_caches;
        return piece;
    };
    const auto finish = [&](int64_t block) {
        const int64_t channel = block * shape.block;
        if (!forward.again) {
            merge_statistics(pieces, shape, block, scratch.sums, forward.mean + channel, forward.variance + channel);
        }
        for (int64_t c = channel; c < channel + shape.block; ++c) {
            gains[c] = static_cast<float>(scale_at(forward.scale, c) * inverse_deviation(forward.variance[c], forward.epsilon));
            shifts[c] = forward.shift == nullptr ? 0.0F : forward.shift[c];
        }
    };
    two_sweeps(
        pieces, shape.element_count(),
        [&](int64_t index) {
            if (!forward.again) norm_pieces::statistics(piece_of(index));
        },
        finish, [&](int64_t index) { norm_pieces::normalise(piece_of(index)); });
}

void norm_backward(const NormShape& shape, const NormBackward& backward) {
    const Pieces pieces(shape);
    const Scratch scratch = scratch_of(shape, pieces, backward.scratch);
    float* const gains = scratch.coefficients;
    float* const slopes = gains + shape.channels;
    float* const constants = slopes + shape.channels;
    const bool past_caches = goes_past_caches(shape, backward.source_gradient);
    const auto piece_of = [&](int64_t index) {
        Piece piece;
        const int64_t element = pieces.place(index, piece);
        const int64_t channel = index / pieces.per_block() * shape.block;
        piece.source = at(shape, backward.source, element);
        piece.gradient = at(shape, backward.gradient, element);
        piece.other = at(shape, backward.second_gradient, element);
        piece.result = at(shape, backward.source_gradient, element);
        piece.passed = at(shape, backward.passed, element);
        piece.mask = bits_at(backward.mask, element);
        piece.activated = at(shape, backward.activated, element);
        piece.mean = backward.mean + channel;
        piece.gain = gains + channel;
        piece.slope = slopes + channel;
        piece.shift = constants + channel;
        piece.sums = scratch.sums + index * 2 * shape.block;
        piece.past_caches = past_caches;
        return piece;
    };
    const auto finish = [&](int64_t block) {
        Lanes gradients{}, products{};
        add_up(pieces, shape, block, scratch.sums, gradients, products);
        const double count = static_cast<double>(shape.images * shape.pixels);
        for (int64_t lane = 0; lane < shape.block; ++lane) {
            const int64_t c = block * shape.block + lane;
            const double gradient = gradients[static_cast<size_t>(lane)], product = products[static_cast<size_t>(lane)];
            const double inverse = inverse_deviation(backward.variance[c], backward.epsilon);
            if (backward.scale != nullptr) {
                put(backward.shift_gradient[c], gradient, backward.accumulate);
                put(backward.scale_gradient[c], product * inverse, backward.accumulate);
            }
            const double gain = scale_at(backward.scale, c) * inverse;
            gains[c] = static_cast<float>(gain);
            slopes[c] = static_cast<float>(-gain * inverse * inverse * product / count);
            constants[c] = static_cast<float>(-gain * gradient / count);
        }
    };
    two_sweeps(
        pieces, shape.element_count(), [&](int64_t index) { norm_pieces::reduce(piece_of(index)); }, finish,
        [&](int64_t index) { norm_pieces::differentiate(piece_of(index)); });
}

}  // namespace lockstep::onednn
