#include "net/key_value_table.h"

#include <charconv>

#include "net/store.h"

namespace lockstep {

void KeyValueTable::set(std::string_view key, std::string_view value) { values_.insert_or_assign(std::string(key), value); }

const std::string* KeyValueTable::find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

std::optional<int64_t> KeyValueTable::add(std::string_view key, int64_t delta) {
    int64_t value = 0;
    if (const std::string* present = find(key)) {
        const char* end = present->data() + present->size();
        const auto [stopped, error] = std::from_chars(present->data(), end, value);
        if (error != std::errc() || stopped != end) return std::nullopt;
    }
    int64_t sum = 0;
    if (__builtin_add_overflow(value, delta, &sum)) return std::nullopt;
    set(key, std::to_string(sum));
    return sum;
}

std::string KeyValueTable::compare_set(std::string_view key, const std::optional<std::string>& expected, std::string_view desired) {
    const std::string* present = find(key);
    const bool matches = expected ? present != nullptr && *present == *expected : present == nullptr;
    if (matches) {
        set(key, desired);
        return std::string(desired);
    }
    return present == nullptr ? std::string() : *present;
}

bool KeyValueTable::remove(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values_.erase(found);
    return true;
}

std::string KeyValueTable::append(std::string_view list, std::string_view value) {
    const int64_t number = list_lengths_[std::string(list)]++;
    std::string key = list_key(list, number);
    set(key, value);
    return key;
}

}  // namespace lockstep
