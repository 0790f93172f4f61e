// A YAML text as a tree of nodes, each with its place. Scalars stay text: the schema gives them their type.
//
// What is accepted: YAML 1.2 without tags, with anchors and aliases, and `<<` merge keys (explicit keys win; of several merged
// mappings the earlier wins). Quotes never change what a scalar means, because every key has one type: `"0.1"` is the number 0.1.
// Limits: kMaxBytes of text, kMaxDepth of nesting, kMaxNodes after aliases are expanded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Where a node was written. `line` and `column` count from 1; 0: no position (command line).
struct Place {
    std::string file;
    int line = 0, column = 0;
    std::string text() const;  // "file:line:column", or just "command line"
};

struct Member;

struct Node {
    enum class Kind : uint8_t { null, scalar, sequence, mapping } kind = Kind::null;
    std::string scalar;
    std::vector<Node> items;      // sequence
    std::vector<Member> members;  // mapping, in order of writing; keys are unique
    Place place;

    const Node* find(std::string_view key) const;  // of a mapping; null when absent
    std::string describe() const;                  // for messages: "text \"eight\"", "a list", "nothing"
};

struct Member {
    std::string key;
    Place key_place;
    Node value;
};

inline constexpr size_t kMaxBytes = 1 << 20;
inline constexpr int kMaxDepth = 32;
inline constexpr int64_t kMaxNodes = 20'000;

// Throws ConfigError "file:line:column: …" for text that is not YAML, duplicate keys (with both lines), tags and exceeded limits.
// An empty text is a null node.
Node parse_yaml(std::string_view text, const std::string& file);

// `above` laid over `below`: mappings merge key by key, everything else replaces.
Node merge_nodes(Node below, Node above);

}  // namespace lockstep
