// One element at a time, as the formulas say it.
#include <bit>
#include <cmath>
#include <limits>

#include "nn/onednn/kernels/pooling_lines.h"

namespace lockstep::onednn::pool_lines::plain {

namespace {

float load(const Line& line, int64_t element) {
    if (line.type == DataType::f32) return static_cast<const float*>(line.source)[element];
    return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(line.source)[element]) << 16);
}

// bf16: to nearest, ties to even; NaN stays NaN.
void store(const Line& line, int64_t element, float value) {
    if (line.type == DataType::f32) {
        static_cast<float*>(line.result)[element] = value;
        return;
    }
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = std::isnan(value) ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16) & 1U);
    static_cast<uint16_t*>(line.result)[element] = static_cast<uint16_t>(rounded >> 16);
}

// Calls work(source row, source column, source element) for all that a pixel of the line reads.
template <typename Work>
void for_each_source(const Line& line, int64_t w, int64_t channel, const Work& work) {
    for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
        for (int64_t column = line.columns[w].begin; column < line.columns[w].end; ++column) {
            work(row, column, (row * line.source_width + column) * line.block + channel);
        }
    }
}

int64_t place_of(const Line& line, int64_t w, int64_t row, int64_t column) {
    return line.place + row * line.place_per_row + column * line.place_per_column + w * line.place_per_pixel;
}

template <typename Value>  // value(w, channel)
void for_each_element(const Line& line, const Value& value) {
    for (int64_t w = 0; w < line.width; ++w) {
        for (int64_t channel = 0; channel < line.block; ++channel) store(line, w * line.block + channel, value(w, channel));
    }
}

}  // namespace

void max_forward(const Line& line) {
    for_each_element(line, [&](int64_t w, int64_t channel) {
        float best = -std::numeric_limits<float>::infinity();
        int64_t winner = place_of(line, w, line.rows.begin, line.columns[w].begin);
        for_each_source(line, w, channel, [&](int64_t row, int64_t column, int64_t element) {
            const float value = load(line, element);
            if (!(value > best) && !std::isnan(value)) return;
            best = value;
            winner = place_of(line, w, row, column);
        });
        if (line.winners != nullptr) line.winners[w * line.block + channel] = static_cast<uint8_t>(winner);
        return best;
    });
}

void max_backward(const Line& line) {
    for_each_element(line, [&](int64_t w, int64_t channel) {
        float sum = 0.0F;
        for_each_source(line, w, channel, [&](int64_t row, int64_t column, int64_t element) {
            if (line.source_winners[element] == place_of(line, w, row, column)) sum += load(line, element);
        });
        return sum;
    });
}

void average_forward(const Line& line) {
    for_each_element(line, [&](int64_t w, int64_t channel) {
        float sum = 0.0F;
        for_each_source(line, w, channel, [&](int64_t, int64_t, int64_t element) { sum += load(line, element); });
        return sum * (*line.row_quotients * line.column_quotients[w]);
    });
}

void average_backward(const Line& line) {
    for_each_element(line, [&](int64_t w, int64_t channel) {
        float sum = 0.0F;
        for_each_source(line, w, channel, [&](int64_t row, int64_t column, int64_t element) {
            sum += load(line, element) * (line.row_quotients[row] * line.column_quotients[column]);
        });
        return sum;
    });
}

}  // namespace lockstep::onednn::pool_lines::plain
