#include "configs/document.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

std::string Place::text() const { return line > 0 ? fmt::format("{}:{}:{}", file, line, column) : file; }

const Node* Node::find(std::string_view key) const {
    const auto member = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; });
    return member == members.end() ? nullptr : &member->value;
}

std::string Node::describe() const {
    switch (kind) {
        case Kind::null:
            return "nothing";
        case Kind::sequence:
            return "a list";
        case Kind::mapping:
            return "a block of keys";
        case Kind::scalar:
            break;
    }
    return scalar.size() > 60 ? fmt::format("\"{}…\"", scalar.substr(0, 60)) : fmt::format("\"{}\"", scalar);
}

Node merge_nodes(Node below, Node above) {
    if (below.kind != Node::Kind::mapping || above.kind != Node::Kind::mapping) return above;
    for (Member& member : above.members) {
        const auto existing =
            std::find_if(below.members.begin(), below.members.end(), [&](const Member& m) { return m.key == member.key; });
        if (existing == below.members.end()) {
            below.members.push_back(std::move(member));
        } else {
            existing->key_place = member.key_place;
            existing->value = merge_nodes(std::move(existing->value), std::move(member.value));
        }
    }
    below.place = above.place;
    return below;
}

}  // namespace lockstep
