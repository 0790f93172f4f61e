#include "trainer/agreement.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/json_text.h"
#include "trainer/common_failure.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

std::string pack(const std::vector<AgreementFact>& facts) {
    Json json = Json::array();
    for (const AgreementFact& fact : facts) json.push_back({fact.name, fact.value});
    return json_text(json);
}

std::vector<AgreementFact> unpack(const std::string& text) {
    std::vector<AgreementFact> facts;
    for (const Json& pair : Json::parse(text)) facts.push_back({pair.at(0).get<std::string>(), pair.at(1).get<std::string>()});
    return facts;
}

std::string trimmed(const std::string& line) {
    const size_t begin = line.find_first_not_of(" \t");
    return begin == std::string::npos ? "" : line.substr(begin);
}

// The first line in which two texts differ, from both.
std::pair<std::string, std::string> first_difference(const std::string& left, const std::string& right) {
    std::istringstream left_lines(left);
    std::istringstream right_lines(right);
    std::string left_line;
    std::string right_line;
    while (true) {
        const bool more_left = static_cast<bool>(std::getline(left_lines, left_line));
        const bool more_right = static_cast<bool>(std::getline(right_lines, right_line));
        if (!more_left) left_line.clear();
        if (!more_right) right_line.clear();
        if (left_line != right_line || (!more_left && !more_right)) return {trimmed(left_line), trimmed(right_line)};
    }
}

std::string value_of(const std::vector<AgreementFact>& facts, size_t index) {
    return index < facts.size() ? facts[index].value : std::string();
}

}  // namespace

std::string find_disagreement(const std::vector<std::vector<AgreementFact>>& facts_of_rank) {
    const std::vector<AgreementFact>& first = facts_of_rank.front();
    for (size_t index = 0; index < first.size(); ++index) {
        std::vector<size_t> others;
        for (size_t rank = 1; rank < facts_of_rank.size(); ++rank) {
            if (value_of(facts_of_rank[rank], index) != first[index].value) others.push_back(rank);
        }
        if (others.empty()) continue;
        const auto [mine, theirs] = first_difference(first[index].value, value_of(facts_of_rank[others.front()], index));
        return fmt::format("the ranks disagree on {}: rank 0 has \"{}\", rank {} has \"{}\" (ranks that differ from rank 0: {})",
                           first[index].name, mine, others.front(), theirs, fmt::join(others, ", "));
    }
    return {};
}

namespace {

void require_agreement(const std::vector<std::string>& texts) {
    std::vector<std::vector<AgreementFact>> facts_of_rank;
    for (const std::string& text : texts) facts_of_rank.push_back(unpack(text));
    const std::string difference = find_disagreement(facts_of_rank);
    if (difference.empty()) return;
    throw CommonFailure(
        ExitCode::kConfig,
        fmt::format("{}; no step was made. Start all ranks with the same program, configuration and data", difference));
}

}  // namespace

void require_agreement(Store& store, const World& world, int64_t timeout_ms, const std::vector<AgreementFact>& mine) {
    const auto key = [](int rank) { return fmt::format("agreement/{}", rank); };
    store.set(key(world.rank), pack(mine));
    std::vector<std::string> texts;
    for (int rank = 0; rank < world.size; ++rank) texts.push_back(store.wait(key(rank), timeout_ms));
    require_agreement(texts);
}

void require_agreement(Communicator& communicator, const std::vector<AgreementFact>& mine) {
    require_agreement(gather_texts(communicator, pack(mine), "agreement"));
}

std::string program_version() { return LOCKSTEP_VERSION; }

std::string program_fingerprint() {
    const MappedFile binary("/proc/self/exe");
    return fmt::format("{} ({})", program_version(), hash_hex(hash_bytes(binary.bytes().data(), binary.bytes().size())));
}

}  // namespace lockstep
