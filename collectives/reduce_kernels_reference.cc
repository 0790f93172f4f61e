#include "collectives/reduce_kernels.h"

namespace lockstep::reduce_kernels::reference {

void sum(float* output, const float* const* inputs, int rank_count, size_t count) {
    for (size_t index = 0; index < count; ++index) {
        float total = inputs[0][index];
        for (int rank = 1; rank < rank_count; ++rank) total += inputs[rank][index];
        output[index] = total;
    }
}

void sum_into_all(float* const* buffers, int rank_count, size_t count) {
    for (size_t index = 0; index < count; ++index) {
        float total = buffers[0][index];
        for (int rank = 1; rank < rank_count; ++rank) total += buffers[rank][index];
        for (int rank = 0; rank < rank_count; ++rank) buffers[rank][index] = total;
    }
}

}  // namespace lockstep::reduce_kernels::reference
