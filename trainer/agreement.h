// Before step 0 all ranks must be about to do the same thing; what differs is shown.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

struct AgreementFact {
    std::string name;   // "configuration", "program", "training data", "plan"
    std::string value;  // may have several lines; the first line that differs is shown
};

// The first difference among the ranks' facts, as one sentence that names both values and the ranks; empty when all agree. Pure.
std::string find_disagreement(const std::vector<std::vector<AgreementFact>>& facts_of_rank);

// Collective. Throws a CommonFailure with the exit code of a configuration error on all ranks.
void require_agreement(Communicator& communicator, const std::vector<AgreementFact>& mine);

std::string program_version();      // "0.1.0"
std::string program_fingerprint();  // version and checksum of the running binary: two builds are two programs

}  // namespace lockstep
