#include "configs/reference_page.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "configs/schema.h"
#include "configs/transforms.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReference = R"(^\$\{.*\}$)";  // a value may also be a ${…}
constexpr const char* kDurationPattern = R"(^[0-9.eE+-]+(ep|it)$)";

Json text_matching(const char* pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

struct TypeOf {
    const SchemaRow& row;

    Json with_range(const char* type) const {
        Json json{{"type", type}};
        if (std::isfinite(row.range.min)) json[row.range.above_min ? "exclusiveMinimum" : "minimum"] = row.range.min;
        if (std::isfinite(row.range.max)) json[row.range.below_max ? "exclusiveMaximum" : "maximum"] = row.range.max;
        return json;
    }
    Json operator()(const bool*) const { return {{"type", "boolean"}}; }
    Json operator()(const int64_t*) const {
        if (row.unit == ValueUnit::bytes) return text_matching("^[0-9.]+(B|KiB|MiB|GiB|kB|MB|GB)$");
        if (row.unit != ValueUnit::none) return text_matching("^[0-9.]+(ns|us|ms|s|min|h)$");
        return with_range("integer");
    }
    Json operator()(const uint64_t*) const { return {{"type", "integer"}, {"minimum", 0}}; }
    Json operator()(const double*) const { return with_range("number"); }
    Json operator()(const std::string*) const {
        return row.choices.empty() ? Json{{"type", Json::array({"string", "number", "boolean"})}} : Json{{"enum", row.choices}};
    }
    Json operator()(const Duration*) const { return text_matching(kDurationPattern); }
    Json operator()(const std::optional<Duration>*) const { return text_matching(R"(^([0-9.eE+-]+(ep|it)|never)$)"); }
    Json operator()(const std::vector<Duration>*) const { return {{"type", "array"}, {"items", text_matching(kDurationPattern)}}; }
    Json operator()(const std::array<double, 3>*) const {
        return {{"oneOf", Json::array({with_range("number"), {{"type", "array"}, {"items", with_range("number")}}})}};
    }
    Json operator()(const std::vector<TransformConfig>*) const {
        Json names = Json::array(), entries = Json::object();
        for (const TransformRow& transform : transform_rows()) {
            names.push_back(transform.name);
            entries[std::string(transform.name)] = {{"description", transform.doc}};
        }
        const Json pair{{"type", "object"}, {"properties", entries}, {"additionalProperties", false}, {"maxProperties", 1}};
        return {{"type", "array"}, {"items", {{"oneOf", Json::array({{{"enum", names}}, pair})}}}};
    }
};

Json row_schema(const SchemaRow& row, Experiment& defaults) {
    Json alternatives = Json::array({std::visit(TypeOf{row}, row.field(defaults))});
    if (row.keyword) alternatives.push_back({{"const", row.keyword->word}});
    alternatives.push_back(text_matching(kReference));
    return {{"description", fmt::format("{} Allowed: {}. Default: {}.", row.doc, allowed_text(row), format_value(row, defaults))},
            {"anyOf", alternatives}};
}

// The object that holds `name`'s last part, made when missing.
Json& parent_properties(Json& root, const std::string& name) {
    Json* object = &root;
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; begin = dot + 1, dot = name.find('.', begin)) {
        Json& child = (*object)["properties"][name.substr(begin, dot - begin)];
        if (child.is_null()) child = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
        object = &child;
    }
    return (*object)["properties"];
}

std::string section_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

constexpr std::string_view kIntroduction = R"(# Configuration

This page is made from the schema table by `lockstep config schema --markdown`.

`lockstep train CONFIG [key=value ...]` reads one YAML file. `lockstep config check CONFIG` validates it without running;
`lockstep config show CONFIG --origin` prints every value and where it comes from; `lockstep config schema` prints a JSON Schema
for editors. A finished configuration is kept as `config.yaml` in the run folder.

- **Unknown keys are errors**, with file, line, column and the nearest known names. So is a key that stands twice.
- **Values carry units**: durations `90ep`, `0.5ep`, `100it`; sizes `64KiB`, `8MiB`; times `500ms`, `10s`. Numbers follow YAML 1.2:
  `1e-4`, `1.e-4` and `.0001` are the same number. Only `true` and `false` are booleans.
- **Quotes never change a meaning**, because every key has one type: `"0.1"` is the number 0.1, and `name: 12` is a text.
- **Overrides** follow the file: `lr.base=0.2 lr.at=[30ep,60ep] run.dir=/data/run1`. They win over the file.
- **`include: [base.yaml]`** lays this file over others; paths are relative to this file, later files win, lists replace.
- **Anchors and `<<` merge keys** work; top-level keys that begin with `x-` are dropped and can hold anchors.
- **`${env:NAME:-default}`** is an environment variable, `${run.name}` the value of another key, `$$` a dollar sign.
- **Data paths** are relative to the working directory.
- **Warmup** must be shorter than the run (error). A start of the warmup above the peak rate is capped at the peak (warning).
- **Every rank needs a virtual worker**: batch.global / batch.per_replica is at least the number of ranks. Uneven numbers of virtual
  workers per rank are fine: gradients are summed and divided once by the images of the global batch, so the average is exact.

Every error of a configuration ends the program with exit code 2, before any data is read.
)";

std::string markdown_cell(std::string text) {
    for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.replace(at, 1, "\\|");
    return text;
}

}  // namespace

std::string json_schema() {
    Experiment defaults;
    Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "Lockstep experiment"},
              {"type", "object"},
              {"additionalProperties", false},
              {"patternProperties", {{"^x-", Json::object()}}},
              {"properties", Json::object()}};
    root["properties"]["include"] = {
        {"description", "Files under this one; later wins."}, {"type", "array"}, {"items", {{"type", "string"}}}};
    for (const SchemaRow& row : schema()) {
        parent_properties(root, row.name)[row.name.substr(row.name.rfind('.') + 1)] = row_schema(row, defaults);
    }
    return root.dump(2) + "\n";
}

std::string reference_page() {
    Experiment defaults;
    std::string page(kIntroduction), section;
    for (const SchemaRow& row : schema()) {
        if (section_of(row.name) != section) {
            section = section_of(row.name);
            page += fmt::format("\n## {}\n\n", section);
            for (const SectionText& text : section_texts()) {
                if (text.name == section) page += text.doc + "\n\n";
            }
            page += "| key | default | allowed | meaning |\n|---|---|---|---|\n";
        }
        page += fmt::format("| `{}` | `{}` | {} | {} |\n", row.name, format_value(row, defaults), markdown_cell(allowed_text(row)),
                            markdown_cell(row.doc));
    }
    page += "\n## Transforms of a pipeline\n\nWritten as `name`, `name: value` (the first option) or `name: {option: value}`.\n\n";
    page += "| name | does | options |\n|---|---|---|\n";
    for (const TransformRow& transform : transform_rows()) {
        std::string options;
        for (const TransformOption& option : transform.options) {
            options += fmt::format("{}`{}`: {}", options.empty() ? "" : "; ", option.name, option.doc);
        }
        page += fmt::format("| `{}` | {} | {} |\n", transform.name, transform.doc, options);
    }
    return page;
}

}  // namespace lockstep
