// Before step 0 all ranks must be about to do the same thing; what differs is shown.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

struct AgreementFact {
    std::string name;   // "configuration", "program", "training data", "plan"
    std::string value;  // may have several lines; the first line that differs is shown
};

// The first difference among the ranks' facts, as one sentence that names both values and the ranks; empty when all agree. Pure.
std::string find_disagreement(const std::vector<std::vector<AgreementFact>>& facts_of_rank);

// Collective; both throw a CommonFailure with the exit code of a configuration error on all ranks. Through the store it needs no
// communicator, whose memory already depends on what has to be agreed on; waits at most `timeout_ms` for the others' facts.
void require_agreement(Store& store, const World& world, int64_t timeout_ms, const std::vector<AgreementFact>& mine);
void require_agreement(Communicator& communicator, const std::vector<AgreementFact>& mine);

std::string program_version();      // "0.1.0"
std::string program_fingerprint();  // version and checksum of the running binary: two builds are two programs

}  // namespace lockstep
