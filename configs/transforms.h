// The pixel pipeline as written in a configuration: a list whose entries are `name`, `name: value` or `name: {option: value}`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/document.h"
#include "configs/experiment.h"

namespace lockstep {

struct TransformOption {
    // size, pad, scale, ratio and probability have fields of their own in TransformConfig; all others are numbers or words
    std::string_view name;
    std::string_view doc;
    double low = 0.0, high = 0.0;           // of a scale or ratio: the default; of a number: what is allowed
    double number = 0.0;                    // default of a number
    bool whole = false;                     // a whole number
    std::vector<std::string_view> words{};  // not empty: a word; the first is the default
};
struct TransformRow {
    std::string_view name;
    std::string_view doc;
    std::vector<TransformOption> options;  // the first is the one that `name: value` sets
    bool needs_size = false;
};
const std::vector<TransformRow>& transform_rows();

// `name`: the key of the list, for messages. Throws ConfigError.
std::vector<TransformConfig> read_pipeline(const std::string& name, const Node& node);
std::string format_pipeline(const std::vector<TransformConfig>& pipeline);

}  // namespace lockstep
