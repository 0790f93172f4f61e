// Between a row's field and its text.
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/scalars.h"
#include "configs/schema.h"
#include "configs/transforms.h"
#include "core/error.h"
#include "core/nearest.h"

namespace lockstep {

namespace {

constexpr std::string_view kNever = "never";

[[noreturn]] void refuse(const SchemaRow& row, const Node& node) {
    std::string hint;
    if (!row.choices.empty() && node.kind == Node::Kind::scalar) {
        const std::string nearest = nearest_name(node.scalar, row.choices);
        if (!nearest.empty()) hint = fmt::format("; did you mean {}?", nearest);
    }
    if (node.kind == Node::Kind::null) hint = "; write a value or delete the key";
    throw ConfigError(
        fmt::format("{}: {}: found {}; allowed: {}{}", node.place.text(), row.name, node.describe(), allowed_text(row), hint));
}

template <typename Value>
Value in_range(const SchemaRow& row, const Node& node, const std::optional<Value>& value) {
    if (!value || !row.range.contains(static_cast<double>(*value))) refuse(row, node);
    return *value;
}

Duration duration_in_range(const SchemaRow& row, const Node& node) {
    const auto duration = node.kind == Node::Kind::scalar ? parse_duration(node.scalar) : std::nullopt;
    if (!duration || !row.range.contains(duration->amount)) refuse(row, node);
    return *duration;
}

std::optional<int64_t> parse_with_unit(ValueUnit unit, const std::string& text) {
    switch (unit) {
        case ValueUnit::bytes:
            return parse_byte_count(text);
        case ValueUnit::nanoseconds:
            return parse_nanoseconds(text);
        case ValueUnit::milliseconds: {
            const auto nanoseconds = parse_nanoseconds(text);
            if (!nanoseconds || *nanoseconds % 1'000'000 != 0) return std::nullopt;
            return *nanoseconds / 1'000'000;
        }
        case ValueUnit::none:
            break;
    }
    return parse_integer(text);
}

std::string format_with_unit(ValueUnit unit, int64_t value) {
    switch (unit) {
        case ValueUnit::bytes:
            return format_byte_count(value);
        case ValueUnit::nanoseconds:
            return format_nanoseconds(value);
        case ValueUnit::milliseconds:
            return format_nanoseconds(value * 1'000'000);
        case ValueUnit::none:
            break;
    }
    return fmt::format("{}", value);
}

struct Reader {
    const SchemaRow& row;
    const Node& node;

    // The scalar's text; anything else is refused.
    const std::string& text() const {
        if (node.kind != Node::Kind::scalar) refuse(row, node);
        return node.scalar;
    }
    bool is_keyword() const { return row.keyword && text() == row.keyword->word; }

    void operator()(bool* field) const {
        const auto value = parse_bool(text());
        if (!value) refuse(row, node);
        *field = *value;
    }
    void operator()(int64_t* field) const {
        *field = is_keyword() ? static_cast<int64_t>(row.keyword->value) : in_range(row, node, parse_with_unit(row.unit, text()));
    }
    void operator()(uint64_t* field) const { *field = in_range(row, node, parse_unsigned(text())); }
    void operator()(double* field) const { *field = is_keyword() ? row.keyword->value : in_range(row, node, parse_number(text())); }
    void operator()(std::string* field) const {
        const std::string& value = text();
        if (!row.choices.empty() && std::find(row.choices.begin(), row.choices.end(), value) == row.choices.end())
            refuse(row, node);
        *field = value;
    }
    void operator()(Duration* field) const { *field = duration_in_range(row, node); }
    void operator()(std::optional<Duration>* field) const {
        if (text() == kNever) {
            field->reset();
        } else {
            *field = duration_in_range(row, node);
        }
    }
    void operator()(std::vector<Duration>* field) const {
        if (node.kind != Node::Kind::sequence) refuse(row, node);
        field->clear();
        for (const Node& item : node.items) field->push_back(duration_in_range(row, item));
    }
    void operator()(std::array<double, 3>* field) const {
        if (node.kind == Node::Kind::scalar) {
            field->fill(in_range(row, node, parse_number(node.scalar)));
            return;
        }
        if (node.kind != Node::Kind::sequence || (node.items.size() != 1 && node.items.size() != 3)) refuse(row, node);
        for (size_t channel = 0; channel < 3; ++channel) {
            const Node& item = node.items[node.items.size() == 1 ? 0 : channel];
            if (item.kind != Node::Kind::scalar) refuse(row, item);
            (*field)[channel] = in_range(row, item, parse_number(item.scalar));
        }
    }
    void operator()(std::vector<TransformConfig>* field) const { *field = read_pipeline(row.name, node); }
};

struct Writer {
    const SchemaRow& row;

    std::string operator()(const bool* field) const { return *field ? "true" : "false"; }
    std::string operator()(const int64_t* field) const {
        if (row.keyword && static_cast<double>(*field) == row.keyword->value) return row.keyword->word;
        return format_with_unit(row.unit, *field);
    }
    std::string operator()(const uint64_t* field) const { return fmt::format("{}", *field); }
    std::string operator()(const double* field) const {
        if (row.keyword && *field == row.keyword->value) return row.keyword->word;
        return format_number(*field);
    }
    std::string operator()(const std::string* field) const { return quote_if_needed(*field); }
    std::string operator()(const Duration* field) const { return format_duration(*field); }
    std::string operator()(const std::optional<Duration>* field) const {
        return field->has_value() ? format_duration(**field) : std::string(kNever);
    }
    std::string operator()(const std::vector<Duration>* field) const {
        std::vector<std::string> texts;
        for (const Duration& duration : *field) texts.push_back(format_duration(duration));
        return fmt::format("[{}]", fmt::join(texts, ", "));
    }
    std::string operator()(const std::array<double, 3>* field) const { return fmt::format("[{}]", fmt::join(*field, ", ")); }
    std::string operator()(const std::vector<TransformConfig>* field) const { return format_pipeline(*field); }
};

std::string with_range(std::string_view kind, const SchemaRow& row, std::string_view unit) {
    const auto border = [&row](double value) {
        return row.unit == ValueUnit::none ? format_number(value) : format_with_unit(row.unit, static_cast<int64_t>(value));
    };
    std::string text(kind);
    const bool has_max = std::isfinite(row.range.max);
    if (!unit.empty()) text += fmt::format(" {}", unit);
    text += row.range.above_min ? fmt::format(", above {}", border(row.range.min))
                                : fmt::format(", at least {}", border(row.range.min));
    if (has_max)
        text += row.range.below_max ? fmt::format(", below {}", border(row.range.max))
                                    : fmt::format(", at most {}", border(row.range.max));
    if (row.keyword) text += fmt::format("; or {}", row.keyword->word);
    return text;
}

struct Describer {
    const SchemaRow& row;

    std::string operator()(const bool*) const { return "true or false"; }
    std::string operator()(const int64_t*) const {
        if (row.unit == ValueUnit::bytes) return with_range("size", row, "with B, KiB, MiB or GiB");
        if (row.unit != ValueUnit::none) return with_range("time", row, "with ns, us, ms, s, min or h");
        return with_range("whole number", row, "");
    }
    std::string operator()(const uint64_t*) const { return "whole number, at least 0"; }
    std::string operator()(const double*) const { return with_range("number", row, ""); }
    std::string operator()(const std::string*) const {
        if (row.choices.empty()) return "text";
        std::vector<std::string> texts;
        for (const std::string& choice : row.choices) texts.push_back(quote_if_needed(choice));
        return fmt::format("{}", fmt::join(texts, ", "));
    }
    std::string operator()(const Duration*) const { return with_range("duration", row, "such as 5ep, 0.5ep or 100it"); }
    std::string operator()(const std::optional<Duration>*) const {
        return with_range("duration", row, "such as 5ep, 0.5ep or 100it") + "; or never";
    }
    std::string operator()(const std::vector<Duration>*) const { return "list of durations such as [30ep, 60ep]"; }
    std::string operator()(const std::array<double, 3>*) const { return with_range("one number or a list of three", row, ""); }
    std::string operator()(const std::vector<TransformConfig>*) const { return "list of transforms"; }
};

bool is_plain(std::string_view text) {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return false;
    const auto plain_letter = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-./+").find(c) != std::string_view::npos;
    };
    const auto first = static_cast<unsigned char>(text.front());
    return (std::isalnum(first) != 0 || text.front() == '/' || text.front() == '.' || text.front() == '_') &&
           std::all_of(text.begin(), text.end(), plain_letter) && text != "..." && text != ".";
}

}  // namespace

bool Range::contains(double value) const {
    const bool above = above_min ? value > min : value >= min;
    const bool below = below_max ? value < max : value <= max;
    return above && below;
}

std::string quote_if_needed(std::string_view text) {
    if (is_plain(text)) return std::string(text);
    std::string quoted = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') quoted += '\\';
        const auto code = static_cast<unsigned char>(letter);
        if (code < 0x20 || code == 0x7F) {
            quoted += fmt::format("\\x{:02x}", code);
        } else if (letter == '$') {
            quoted += "$$";  // the reader's escape: a dollar that begins no ${…}
        } else {
            quoted += letter;
        }
    }
    return quoted + "\"";
}

std::string allowed_text(const SchemaRow& row) {
    Experiment experiment;
    return std::visit(Describer{row}, row.field(experiment));
}

std::string format_value(const SchemaRow& row, Experiment& experiment) { return std::visit(Writer{row}, row.field(experiment)); }

void read_value(const SchemaRow& row, const Node& node, Experiment& experiment) {
    std::visit(Reader{row, node}, row.field(experiment));
}

}  // namespace lockstep
