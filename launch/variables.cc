#include "launch/variables.h"

#include <charconv>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

std::optional<std::string> Variables::text(const std::string& name) const {
    auto value = lookup_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
}

std::optional<std::string> Variables::first_of(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
        if (auto value = text(name)) return value;
    }
    return std::nullopt;
}

std::optional<int> Variables::number(const std::string& name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || number < 0) {
        throw ConfigError(fmt::format("{}={}: not a whole number of at least 0; correct or unset the variable", name, *value));
    }
    return number;
}

int Variables::required(const std::string& name, const std::string& because) const {
    const auto value = number(name);
    if (!value) throw ConfigError(fmt::format("{} is not set, but {}; set it, or unset the other", name, because));
    return *value;
}

bool Variables::read_master(World& world) const {
    const auto address = text("MASTER_ADDR");
    if (address) world.store_host = *address;
    if (const auto port = number("MASTER_PORT")) {
        if (*port < 1 || *port > 65535) throw ConfigError(fmt::format("MASTER_PORT={}: allowed: 1 to 65535", *port));
        world.store_port = *port;
    }
    return address.has_value();
}

int port_of_job(const std::string& job_id) { return 20'000 + static_cast<int>(hash_text(job_id) % 10'000); }

}  // namespace lockstep
