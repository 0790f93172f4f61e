#include "trainer/common_failure.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr int64_t kPeersFailWithinMs = 1000;

bool all_say(Communicator& communicator, const std::string& message) {
    try {
        const std::vector<std::string> texts = gather_texts(communicator, message, "failure");
        return std::ranges::all_of(texts, [&](const std::string& text) { return text == message; });
    } catch (const CommError&) {
        return false;  // the peers are elsewhere
    }
}

bool all_say(Store& store, const World& world, const std::string& message) {
    const auto key = [](int rank) { return fmt::format("failure/{}", rank); };
    try {
        store.set(key(world.rank), message);
        for (int rank = 0; rank < world.size; ++rank) {
            if (store.wait(key(rank), kPeersFailWithinMs) != message) return false;
        }
        return true;
    } catch (const CommError&) {
        return false;
    }
}

}  // namespace

void fail_together(Communicator& communicator, const CommonFailure& failure) {
    if (all_say(communicator, failure.what())) throw failure;
    communicator.abort(failure.what());
    throw Error(failure.exit_code(), failure.what());
}

void fail_together(Store& store, const World& world, const CommonFailure& failure) {
    if (all_say(store, world, failure.what())) throw failure;
    throw Error(failure.exit_code(), failure.what());
}

}  // namespace lockstep
