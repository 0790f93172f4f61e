#include "configs/compose.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/schema.h"
#include "core/error.h"
#include "core/files.h"

namespace lockstep {

namespace {

constexpr int kMaxIncludes = 64;
constexpr size_t kMaxExpandedBytes = 64 << 10;

// The text of a configuration file; what read_file reports is a configuration's fault here.
std::string read_text(const fs::path& path, const std::string& included_from) {
    try {
        return read_file(path);
    } catch (const Error& error) {
        throw ConfigError(included_from.empty() ? std::string(error.what())
                                                : fmt::format("{}: include: {}", included_from, error.what()));
    }
}

// Expands ${…} in texts. `root`: for references to other keys; null: only the environment is known.
class Expander {
public:
    Expander(const Node* root, const VariableLookup& environment) : root_(root), environment_(environment) {}

    std::string expand(const std::string& text, const Place& place) {
        std::string result;
        for (size_t at = 0; at < text.size();) {
            if (text.compare(at, 2, "$$") == 0) {
                result += '$';
                at += 2;
            } else if (text.compare(at, 2, "${") == 0) {
                const size_t end = text.find('}', at);
                if (end == std::string::npos)
                    fail(place, fmt::format("\"{}\": `${{` without `}}`; write $$ for a dollar sign", text));
                result += value_of(text.substr(at + 2, end - at - 2), place);
                at = end + 1;
            } else {
                result += text[at++];
            }
            if (result.size() > kMaxExpandedBytes) fail(place, fmt::format("expands to more than {} bytes", kMaxExpandedBytes));
        }
        return result;
    }

private:
    [[noreturn]] static void fail(const Place& place, const std::string& text) {
        throw ConfigError(fmt::format("{}: {}", place.text(), text));
    }

    std::string value_of(const std::string& reference, const Place& place) {
        if (reference.starts_with("env:")) return environment_value(reference.substr(4), place);
        if (root_ == nullptr) fail(place, fmt::format("${{{}}}: only ${{env:NAME}} can stand here", reference));
        return key_value(reference, place);
    }

    std::string environment_value(const std::string& reference, const Place& place) const {
        const size_t separator = reference.find(":-");
        const std::string name = reference.substr(0, separator);
        if (name.empty()) fail(place, "${env:}: the variable's name is missing; write ${env:NAME} or ${env:NAME:-default}");
        const auto value = environment_(name);
        if (value && !(value->empty() && separator != std::string::npos)) return *value;
        if (separator != std::string::npos) return reference.substr(separator + 2);
        fail(place,
             fmt::format("${{env:{}}}: the variable {} is not set; set it, or write ${{env:{}:-default}}", name, name, name));
    }

    std::string key_value(const std::string& name, const Place& place) {
        if (std::find(open_.begin(), open_.end(), name) != open_.end()) {
            fail(place, fmt::format("${{{}}} refers to itself: {} -> {}", name, fmt::join(open_, " -> "), name));
        }
        const Node* node = root_;
        for (size_t at = 0; node != nullptr && at <= name.size();) {
            const size_t end = std::min(name.find('.', at), name.size());
            node = node->find(name.substr(at, end - at));
            at = end + 1;
        }
        if (node != nullptr && node->kind == Node::Kind::scalar) {
            open_.push_back(name);
            std::string value = expand(node->scalar, place);
            open_.pop_back();
            return value;
        }
        if (node != nullptr)
            fail(place, fmt::format("${{{}}}: {} is {}; only texts and numbers can be referred to", name, name, node->describe()));
        return default_of(name, place);
    }

    std::string default_of(const std::string& name, const Place& place) {
        const SchemaRow* row = find_row(name);
        if (row == nullptr)
            fail(place,
                 fmt::format("${{{}}}: no such key; variables are ${{env:NAME:-default}} and keys such as ${{run.name}}", name));
        Experiment experiment;
        const Field field = row->field(experiment);
        if (const auto* text = std::get_if<std::string*>(&field)) return **text;
        return format_value(*row, experiment);
    }

    const Node* root_;
    const VariableLookup& environment_;
    std::vector<std::string> open_;  // references being expanded
};

void expand_all(Node& node, Expander& expander) {
    if (node.kind == Node::Kind::scalar && node.scalar.find('$') != std::string::npos)
        node.scalar = expander.expand(node.scalar, node.place);
    for (Node& item : node.items) expand_all(item, expander);
    for (Member& member : node.members) expand_all(member.value, expander);
}

class FileLoader {
public:
    explicit FileLoader(const VariableLookup& environment) : environment_(environment) {}

    Node load(const std::string& path, const std::string& included_from) {
        enter(path, included_from);
        Node node = parse_yaml(read_text(path, included_from), path);
        if (node.kind == Node::Kind::null) {
            throw ConfigError(fmt::format(
                "{}: the file is empty; a configuration needs at least data.train.path (see configs/quickstart.yaml)", path));
        }
        if (node.kind != Node::Kind::mapping) {
            throw ConfigError(fmt::format("{}: found {}; allowed: a block of keys such as `model:` and `data:`", node.place.text(),
                                          node.describe()));
        }
        std::erase_if(node.members, [](const Member& member) { return member.key.starts_with("x-"); });
        Node below = load_includes(node, path);
        std::erase_if(node.members, [](const Member& member) { return member.key == "include"; });
        open_.pop_back();
        return merge_nodes(std::move(below), std::move(node));
    }

private:
    void enter(const std::string& path, const std::string& included_from) {
        std::error_code ignored;
        const std::string canonical = fs::weakly_canonical(path, ignored).string();
        if (std::find(open_.begin(), open_.end(), canonical) != open_.end()) {
            throw ConfigError(fmt::format("{}: include: {} includes itself ({} -> {}); break the circle", included_from, path,
                                          fmt::join(open_, " -> "), canonical));
        }
        if (++file_count_ > kMaxIncludes)
            throw ConfigError(fmt::format("{}: include: more than {} files", included_from, kMaxIncludes));
        open_.push_back(canonical);
    }

    Node load_includes(const Node& node, const std::string& path) {
        Node below{.kind = Node::Kind::mapping, .place = node.place};
        const Node* include = node.find("include");
        if (include == nullptr) return below;
        std::vector<Node> entries = include->kind == Node::Kind::sequence ? include->items : std::vector<Node>{*include};
        for (const Node& entry : entries) {
            if (entry.kind != Node::Kind::scalar || entry.scalar.empty()) {
                throw ConfigError(
                    fmt::format("{}: include: found {}; allowed: a list of files", entry.place.text(), entry.describe()));
            }
            const std::string name = Expander(nullptr, environment_).expand(entry.scalar, entry.place);
            below = merge_nodes(std::move(below), load((fs::path(path).parent_path() / name).string(), entry.place.text()));
        }
        return below;
    }

    const VariableLookup& environment_;
    std::vector<std::string> open_;  // files being read, outermost first
    int file_count_ = 0;
};

void set_place(Node& node, const Place& place) {
    node.place = place;
    for (Node& item : node.items) set_place(item, place);
    for (Member& member : node.members) {
        member.key_place = place;
        set_place(member.value, place);
    }
}

// The value's node: text keys take it as it stands, so that a path needs no second layer of quotes.
Node override_value(const std::string& key, const std::string& text) {
    const SchemaRow* row = find_row(key);
    Experiment experiment;
    if (row != nullptr && std::holds_alternative<std::string*>(row->field(experiment))) {
        return Node{.kind = Node::Kind::scalar, .scalar = text};
    }
    try {
        return parse_yaml(text, kCommandLine);
    } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{} (in {}={})", error.what(), key, text));
    }
}

// `a.b=c` as the document {a: {b: c}}.
Node parse_override(const std::string& text) {
    const size_t separator = text.find('=');
    const std::string key = text.substr(0, separator);
    if (separator == std::string::npos || key.empty() || key.front() == '.' || key.back() == '.' ||
        key.find("..") != std::string::npos) {
        throw ConfigError(fmt::format("{}: found \"{}\"; allowed: key=value, such as lr.base=0.1", kCommandLine, text));
    }
    if (std::count(key.begin(), key.end(), '.') > 8)
        throw ConfigError(fmt::format("{}: {}: no key is nested that deep", kCommandLine, key));
    Node node = override_value(key, text.substr(separator + 1));
    for (size_t end = key.size(); end != std::string::npos && end > 0;) {
        const size_t dot = key.rfind('.', end - 1);
        const size_t begin = dot == std::string::npos ? 0 : dot + 1;
        Node outer{.kind = Node::Kind::mapping};
        outer.members.push_back({key.substr(begin, end - begin), {}, std::move(node)});
        node = std::move(outer);
        end = dot;
    }
    set_place(node, {.file = kCommandLine});
    return node;
}

}  // namespace

Node compose_document(const std::string& path, const std::vector<std::string>& overrides, const VariableLookup& environment) {
    Node root = FileLoader(environment).load(path, "");
    for (const std::string& text : overrides) root = merge_nodes(std::move(root), parse_override(text));
    Node expanded = root;
    Expander expander(&root, environment);
    expand_all(expanded, expander);
    return expanded;
}

}  // namespace lockstep
