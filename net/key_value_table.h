// The meaning of the store's operations, shared by the server and the memory store. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class KeyValueTable {
public:
    void set(std::string_view key, std::string_view value);
    const std::string* find(std::string_view key) const;  // nullptr: absent
    // Adds to a decimal number; nullopt when the present value is no number.
    std::optional<int64_t> add(std::string_view key, int64_t delta);
    std::string compare_set(std::string_view key, const std::optional<std::string>& expected, std::string_view desired);
    bool remove(std::string_view key);
    // The key under which `value` now stands: LIST/0, LIST/1, ...
    std::string append(std::string_view list, std::string_view value);

private:
    std::map<std::string, std::string, std::less<>> values_;
    std::map<std::string, int64_t, std::less<>> list_lengths_;
};

}  // namespace lockstep
