#include <chrono>
#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

#include "core/error.h"
#include "net/key_value_table.h"
#include "net/store.h"

namespace lockstep {

namespace {

class MemoryStore final : public Store {
public:
    void set(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(mutex_);
        table_.set(key, value);
        changed_.notify_all();
    }

    std::optional<std::string> get(std::string_view key) override {
        const std::lock_guard lock(mutex_);
        const std::string* value = table_.find(key);
        return value == nullptr ? std::nullopt : std::optional<std::string>(*value);
    }

    std::string wait(std::string_view key, int64_t timeout_ms) override {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return table_.find(key) != nullptr; })) {
            throw CommError(fmt::format("key `{}` did not appear in the store within {:.1f} s; check the other ranks' output", key,
                                        1e-3 * static_cast<double>(timeout_ms)));
        }
        return *table_.find(key);
    }

    int64_t add(std::string_view key, int64_t delta) override {
        const std::lock_guard lock(mutex_);
        const std::optional<int64_t> sum = table_.add(key, delta);
        if (!sum) throw CommError(fmt::format("store refused `add {}`: the present value is no number it can be added to", key));
        changed_.notify_all();
        return *sum;
    }

    std::string compare_set(std::string_view key, const std::optional<std::string>& expected, std::string_view desired) override {
        const std::lock_guard lock(mutex_);
        std::string now_there = table_.compare_set(key, expected, desired);
        changed_.notify_all();
        return now_there;
    }

    bool remove(std::string_view key) override {
        const std::lock_guard lock(mutex_);
        return table_.remove(key);
    }

    int64_t append(std::string_view list, std::string_view value) override {
        const std::lock_guard lock(mutex_);
        const std::string key = table_.append(list, value);
        changed_.notify_all();
        return std::stoll(key.substr(list.size() + 1));
    }

    // Its one client and the store end together: nobody is left to read the list.
    void append_when_gone(std::string_view /*list*/, std::string_view /*value*/) override {}

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    KeyValueTable table_;
};

}  // namespace

std::string list_key(std::string_view list, int64_t number) { return fmt::format("{}/{}", list, number); }

std::unique_ptr<Store> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace lockstep
