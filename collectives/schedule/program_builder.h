// Verbs for writing a Program down. Empty ranges are left out by themselves, so builders need no case for a rank without elements.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

class ProgramBuilder {
public:
    void lane();
    void round();
    void send(int peer, Range range);
    void receive(int peer, Range range, int32_t slot = kInPlace);
    void sum(Range range, std::span<const int32_t> operands);
    Program finish();

private:
    void drop_empty_round();

    Program program_;
};

}  // namespace lockstep::schedule
