#include "trainer/common_failure.h"

#include <algorithm>
#include <vector>

namespace lockstep {

namespace {

bool all_say(Communicator& communicator, const std::string& message) {
    try {
        const std::vector<std::string> texts = gather_texts(communicator, message, "failure");
        return std::ranges::all_of(texts, [&](const std::string& text) { return text == message; });
    } catch (const CommError&) {
        return false;  // the peers are elsewhere
    }
}

}  // namespace

void fail_together(Communicator& communicator, const CommonFailure& failure) {
    if (all_say(communicator, failure.what())) throw failure;
    communicator.abort(failure.what());
    throw Error(failure.exit_code(), failure.what());
}

}  // namespace lockstep
