// One element at a time, as the formulas say it.
#include <array>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "nn/onednn/kernels/batch_norm_pieces.h"

namespace lockstep::onednn::norm_pieces::plain {

namespace {

float load(const Piece& piece, const void* data, int64_t element) {
    if (piece.type == DataType::f32) return static_cast<const float*>(data)[element];
    return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[element]) << 16);
}

// bf16: to nearest, ties to even; NaN stays NaN.
void store(const Piece& piece, void* data, int64_t element, float value) {
    if (piece.type == DataType::f32) {
        static_cast<float*>(data)[element] = value;
        return;
    }
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = std::isnan(value) ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16) & 1U);
    static_cast<uint16_t*>(data)[element] = static_cast<uint16_t>(rounded >> 16);
}

template <typename Work>  // work(channel in block, element)
void for_each(const Piece& piece, const Work& work) {
    check(piece.block <= 16, "blocks of 8 or 16 channels");
    for (int64_t plane = 0; plane < piece.planes; ++plane) {
        for (int64_t pixel = 0; pixel < piece.pixels; ++pixel) {
            for (int64_t channel = 0; channel < piece.block; ++channel) {
                work(static_cast<size_t>(channel), plane * piece.plane_stride + pixel * piece.block + channel);
            }
        }
    }
}

bool passes(const Piece& piece, int64_t element) {
    return piece.mask == nullptr || ((piece.mask[element / 8] >> (element % 8)) & 1) != 0;
}

void note(const Piece& piece, int64_t element, bool pass) {
    uint8_t& bits = piece.mask[element / 8];
    const int bit = 1 << (element % 8);
    bits = static_cast<uint8_t>(pass ? bits | bit : bits & ~bit);
}

float gradient_of(const Piece& piece, int64_t element) {
    if (!passes(piece, element)) return 0.0F;
    const float gradient = load(piece, piece.gradient, element);
    if (piece.activated != nullptr) {
        const float y = load(piece, piece.activated, element);
        return gradient * y * (1.0F - y);
    }
    return piece.other == nullptr ? gradient : gradient + load(piece, piece.other, element);
}

using Sums = std::array<double, 16>;

void write_sums(const Piece& piece, const Sums& first, const Sums& second) {
    for (size_t channel = 0; channel < static_cast<size_t>(piece.block); ++channel) {
        piece.sums[channel] = static_cast<float>(first[channel]);
        piece.sums[static_cast<size_t>(piece.block) + channel] = static_cast<float>(second[channel]);
    }
}

}  // namespace

void statistics(const Piece& piece) {
    Sums mean{}, squares{};
    for_each(piece, [&](size_t channel, int64_t element) { mean[channel] += load(piece, piece.source, element); });
    for (double& sum : mean) sum /= static_cast<double>(piece.values());
    for_each(piece, [&](size_t channel, int64_t element) {
        const double distance = load(piece, piece.source, element) - mean[channel];
        squares[channel] += distance * distance;
    });
    write_sums(piece, mean, squares);
}

void normalise(const Piece& piece) {
    for_each(piece, [&](size_t channel, int64_t element) {
        const float addend = piece.other == nullptr ? 0.0F : load(piece, piece.other, element);
        float value =
            (load(piece, piece.source, element) - piece.mean[channel]) * piece.gain[channel] + piece.shift[channel] + addend;
        if (piece.mask != nullptr) {
            note(piece, element, value > 0.0F);
            if (value < 0.0F) value = 0.0F;  // a NaN must not be hidden
        }
        if (piece.sigmoid) value = 1.0F / (1.0F + std::exp(-value));
        store(piece, piece.result, element, value);
    });
}

void reduce(const Piece& piece) {
    Sums gradients{}, products{};
    for_each(piece, [&](size_t channel, int64_t element) {
        const float gradient = gradient_of(piece, element);
        if (piece.passed != nullptr) store(piece, piece.passed, element, gradient);
        gradients[channel] += gradient;
        products[channel] += static_cast<double>(gradient) * (load(piece, piece.source, element) - piece.mean[channel]);
    });
    write_sums(piece, gradients, products);
}

void differentiate(const Piece& piece) {
    for_each(piece, [&](size_t channel, int64_t element) {
        const float gradient = piece.passed != nullptr ? load(piece, piece.passed, element) : gradient_of(piece, element);
        const float distance = load(piece, piece.source, element) - piece.mean[channel];
        store(piece, piece.result, element,
              piece.gain[channel] * gradient + piece.slope[channel] * distance + piece.shift[channel]);
    });
}

}  // namespace lockstep::onednn::norm_pieces::plain
