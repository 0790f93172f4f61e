// The one file that knows yaml-cpp: its parser's events become our nodes.
#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "configs/document.h"
#include "core/error.h"

namespace lockstep {

namespace {

Place place_of(const std::string& file, const YAML::Mark& mark) {
    if (mark.is_null()) return {file, 1, 1};
    return {file, mark.line + 1, mark.column + 1};
}

int64_t count_nodes(const Node& node) {
    int64_t count = 1;
    for (const Node& item : node.items) count += count_nodes(item);
    for (const Member& member : node.members) count += count_nodes(member.value);
    return count;
}

int depth_of(const Node& node) {
    int deepest = 0;
    for (const Node& item : node.items) deepest = std::max(deepest, depth_of(item));
    for (const Member& member : node.members) deepest = std::max(deepest, depth_of(member.value));
    return deepest + 1;
}

class TreeBuilder final : public YAML::EventHandler {
public:
    explicit TreeBuilder(const std::string& file) : file_(file) {}

    Node take_root() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark& mark) override { root_.place = place_of(file_, mark); }
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        finish(Node{.kind = Node::Kind::null, .place = place_of(file_, mark)}, anchor);
    }

    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
        refuse_tag(mark, tag);
        finish(Node{.kind = Node::Kind::scalar, .scalar = value, .place = place_of(file_, mark)}, anchor);
    }

    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end()) fail(place_of(file_, mark), "an alias cannot stand inside the value that its anchor names");
        if (depth_of(found->second) + static_cast<int>(open_.size()) > kMaxDepth) fail_depth(place_of(file_, mark));
        add_to_budget(count_nodes(found->second), place_of(file_, mark));
        Node copy = found->second;
        place_node(std::move(copy), place_of(file_, mark));
    }

    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        begin(Node::Kind::sequence, mark, tag, anchor);
    }
    void OnSequenceEnd() override { end(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
        begin(Node::Kind::mapping, mark, tag, anchor);
    }
    void OnMapEnd() override { end(); }

private:
    struct Key {
        std::string text;
        Place place;
    };
    struct Open {
        Node node;
        YAML::anchor_t anchor = YAML::NullAnchor;
        std::optional<Key> key;    // of a mapping: read, its value is still to come
        std::vector<Node> merged;  // of a mapping: values of `<<`
    };

    [[noreturn]] static void fail(const Place& place, const std::string& text) {
        throw ConfigError(fmt::format("{}: {}", place.text(), text));
    }
    [[noreturn]] static void fail_depth(const Place& place) {
        fail(place, fmt::format("nested deeper than {} levels; a configuration needs about 6", kMaxDepth));
    }

    void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
        if (tag.empty() || tag == "?" || tag == "!") return;
        fail(place_of(file_, mark),
             fmt::format("found the tag {}; tags are not used here: every key has one type, delete it", tag));
    }

    void add_to_budget(int64_t nodes, const Place& place) {
        node_count_ += nodes;
        if (node_count_ > kMaxNodes)
            fail(place, fmt::format("more than {} values (aliases expanded); shorten the file", kMaxNodes));
    }

    void begin(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
        refuse_tag(mark, tag);
        if (static_cast<int>(open_.size()) >= kMaxDepth) fail_depth(place_of(file_, mark));
        open_.push_back({.node = {.kind = kind, .place = place_of(file_, mark)}, .anchor = anchor});
    }

    void end() {
        Open done = std::move(open_.back());
        open_.pop_back();
        for (const Node& merged : done.merged) merge_into(done.node, merged);
        finish(std::move(done.node), done.anchor);
    }

    // Keys of `<<` fill what the mapping does not say itself.
    static void merge_into(Node& node, const Node& merged) {
        if (merged.kind == Node::Kind::sequence) {
            for (const Node& item : merged.items) merge_into(node, item);
            return;
        }
        if (merged.kind != Node::Kind::mapping) {
            fail(merged.place,
                 fmt::format("`<<`: found {}; allowed: an alias of a block of keys, or a list of them", merged.describe()));
        }
        for (const Member& member : merged.members) {
            if (node.find(member.key) == nullptr) node.members.push_back(member);
        }
    }

    void finish(Node node, YAML::anchor_t anchor) {
        add_to_budget(1, node.place);
        if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
        const Place place = node.place;
        place_node(std::move(node), place);
    }

    // Puts a finished node where it belongs. `written_at`: differs from the node's own place for an alias.
    void place_node(Node node, const Place& written_at) {
        if (open_.empty()) {
            root_ = std::move(node);
            return;
        }
        Open& parent = open_.back();
        if (parent.node.kind == Node::Kind::sequence) {
            parent.node.items.push_back(std::move(node));
        } else if (!parent.key) {
            open_key(parent, node, written_at);
        } else if (parent.key->text == "<<") {
            parent.merged.push_back(std::move(node));
            parent.key.reset();
        } else {
            if (node.kind == Node::Kind::null) node.place = parent.key->place;  // an empty value has no place of its own
            parent.node.members.push_back({std::move(parent.key->text), parent.key->place, std::move(node)});
            parent.key.reset();
        }
    }

    static void open_key(Open& parent, const Node& node, const Place& written_at) {
        if (node.kind != Node::Kind::scalar) fail(written_at, fmt::format("a key must be a name; found {}", node.describe()));
        for (const Member& member : parent.node.members) {
            if (member.key != node.scalar) continue;
            fail(written_at, fmt::format("{}: the key stands twice in one block, in line {} and in line {}; delete one",
                                         node.scalar, member.key_place.line, written_at.line));
        }
        if (node.scalar == "<<" && !parent.merged.empty()) fail(written_at, "`<<` stands twice in one block; write <<: [*a, *b]");
        parent.key = Key{node.scalar, written_at};
    }

    const std::string& file_;
    Node root_;
    std::vector<Open> open_;
    std::map<YAML::anchor_t, Node> anchors_;
    int64_t node_count_ = 0;
};

void refuse_second_document(YAML::Parser& parser, const std::string& file) {
    TreeBuilder second(file);
    if (!parser.HandleNextDocument(second)) return;
    throw ConfigError(fmt::format("{}: a second document begins; one file holds one configuration, delete `---`",
                                  second.take_root().place.text()));
}

}  // namespace

Node parse_yaml(std::string_view text, const std::string& file) {
    if (text.size() > kMaxBytes) {
        throw ConfigError(
            fmt::format("{}: {} bytes; a configuration has at most {}; is this the right file?", file, text.size(), kMaxBytes));
    }
    if (text.find('\0') != std::string_view::npos) {
        throw ConfigError(fmt::format("{}: holds a zero byte: not a text file; is this the right file?", file));
    }
    TreeBuilder builder(file);
    try {
        std::istringstream stream{std::string(text)};
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder)) return Node{.place = {file, 1, 1}};
        refuse_second_document(parser, file);
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}: not valid YAML: {}; check indentation, colons and quotes near this place",
                                      place_of(file, error.mark).text(), error.msg));
    }
    return builder.take_root();
}

}  // namespace lockstep
