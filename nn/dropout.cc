#include "nn/dropout.h"

#include "core/random.h"

namespace lockstep {

namespace {

constexpr uint32_t kDropoutTag = 0x44524F50;  // keeps these counters apart from other uses of the generator
constexpr uint64_t kWordsPerBlock = 4;

std::array<uint32_t, 4> words_of_block(uint64_t dropout_key, int op, uint64_t block) {
    return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(op), kDropoutTag},
                      {static_cast<uint32_t>(dropout_key), static_cast<uint32_t>(dropout_key >> 32)});
}

}  // namespace

void fill_dropout_factors(uint64_t dropout_key, int op, float probability, int64_t first_element, std::span<float> factors) {
    const auto threshold = static_cast<uint64_t>(static_cast<double>(probability) * 0x1.0p32);
    const float survivor = 1.0F / (1.0F - probability);
    const auto first = static_cast<uint64_t>(first_element);
    size_t done = 0;
    while (done < factors.size()) {
        const uint64_t element = first + done;
        const std::array<uint32_t, 4> words = words_of_block(dropout_key, op, element / kWordsPerBlock);
        for (uint64_t word = element % kWordsPerBlock; word < kWordsPerBlock && done < factors.size(); ++word, ++done) {
            factors[done] = words[word] < threshold ? 0.0F : survivor;
        }
    }
}

}  // namespace lockstep
