// The one table of everything a configuration can say. Reading, validation, the JSON Schema, the resolved file and the reference
// page all come from it. Defaults are the values of a default-made Experiment, so they cannot disagree with the code.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "configs/document.h"
#include "configs/experiment.h"

namespace lockstep {

// The type of a row is the type of the field it fills.
using Field = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, Duration*, std::optional<Duration>*,
                           std::vector<Duration>*, std::array<double, 3>*, std::vector<TransformConfig>*>;

// How an int64_t field is written.
enum class ValueUnit : uint8_t { none, bytes, milliseconds, nanoseconds };

struct Range {
    double min = 0.0, max = std::numeric_limits<double>::infinity();
    bool above_min = false, below_max = false;  // the border itself is not allowed
    bool contains(double value) const;
};

// A word that stands for one value of a number: "auto" for 0.
struct Keyword {
    std::string word;
    double value = 0.0;
};

struct SchemaRow {
    std::string name;  // dotted: "lr.base"
    std::function<Field(Experiment&)> field;
    std::string doc;
    ValueUnit unit = ValueUnit::none;
    Range range;                       // of numbers, and of the amounts of durations
    std::vector<std::string> choices;  // of texts; empty: any
    std::optional<Keyword> keyword;
};

const std::vector<SchemaRow>& schema();  // in the order of the resolved file; built once
const SchemaRow* find_row(std::string_view name);
bool is_section(std::string_view name);  // "lr": some row's name begins with "lr."

// One line each about the sections, for the reference page.
struct SectionText {
    std::string name, doc;
};
const std::vector<SectionText>& section_texts();

// "number, at least 0": what a row accepts, for messages and the reference page.
std::string allowed_text(const SchemaRow& row);
// The row's present value as YAML that reads back the same.
std::string format_value(const SchemaRow& row, Experiment& experiment);
// Sets the row's field. Throws ConfigError "place: name: found …; allowed: …".
void read_value(const SchemaRow& row, const Node& node, Experiment& experiment);

// Builds the error for a key that is no row: nearest names and where they are valid.
std::string unknown_key_text(const std::string& section, const std::string& key);

// A text as a YAML scalar, quoted only when it has to be.
std::string quote_if_needed(std::string_view text);

}  // namespace lockstep
