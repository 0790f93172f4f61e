// Errors about keys that no row has.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/schema.h"
#include "core/nearest.h"

namespace lockstep {

namespace {

std::string leaf_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::string full_name(const std::string& section, const std::string& key) { return section.empty() ? key : section + "." + key; }

// The names directly inside a section: keys and sections.
std::vector<std::string> names_inside(const std::string& section) {
    std::vector<std::string> names;
    const std::string prefix = section.empty() ? "" : section + ".";
    for (const SchemaRow& row : schema()) {
        if (!row.name.starts_with(prefix)) continue;
        const std::string rest = row.name.substr(prefix.size());
        const std::string name = rest.substr(0, rest.find('.'));
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
}

// Rows elsewhere whose last part is meant, best kind of match first, at most three.
std::vector<std::string> rows_like(const std::string& key) {
    std::vector<std::string> leaves;
    for (const SchemaRow& row : schema()) leaves.push_back(leaf_of(row.name));
    const std::string nearest = nearest_name(leaf_of(key), leaves);
    std::vector<std::string> found;
    for (const SchemaRow& row : schema()) {
        if (!nearest.empty() && leaf_of(row.name) == nearest) found.push_back(row.name);
    }
    for (const SchemaRow& row : schema()) {
        const bool known = std::find(found.begin(), found.end(), row.name) != found.end();
        if (found.size() < 3 && !known && share_a_word(key, row.name)) found.push_back(row.name);
    }
    if (found.size() > 3) found.resize(3);
    return found;
}

}  // namespace

std::string unknown_key_text(const std::string& section, const std::string& key) {
    const std::string full = full_name(section, key);
    const std::vector<std::string> siblings = names_inside(section);
    const std::string sibling = nearest_name(key, siblings);
    const std::string head = fmt::format("{}: unknown key", full);
    if (key.find('.') != std::string::npos && find_row(full) != nullptr) {
        return fmt::format("{} in this form; write it as nested blocks: `{}:` and inside it `{}: …`", head,
                           full.substr(0, full.rfind('.')), leaf_of(full));
    }
    if (!sibling.empty()) return fmt::format("{}; did you mean {}?", head, full_name(section, sibling));
    const std::vector<std::string> elsewhere = rows_like(key);
    if (!elsewhere.empty()) return fmt::format("{}; did you mean {}?", head, fmt::join(elsewhere, " or "));
    return fmt::format("{}; {} knows {}", head, section.empty() ? "the top level" : section, fmt::join(siblings, ", "));
}

}  // namespace lockstep
