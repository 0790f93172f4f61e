#include "nn/executor.h"

#include <cmath>

#include "core/hash.h"
#include "core/random.h"

namespace lockstep {

namespace {

// Standard deviation, bound or constant.
float scale_of(const ParameterSpec& spec) {
    switch (spec.init.kind) {
        case Initializer::Kind::fan_in_normal:
        case Initializer::Kind::fan_in_uniform: {
            const auto fan_in = static_cast<double>(element_count(spec.shape) / spec.shape.front());
            return static_cast<float>(spec.init.value / std::sqrt(fan_in));
        }
        default:
            return spec.init.value;
    }
}

void fill(std::span<float> values, const ParameterSpec& spec, RandomStream stream) {
    const float scale = scale_of(spec);
    for (float& value : values) {
        switch (spec.init.kind) {
            case Initializer::Kind::constant:
                value = scale;
                break;
            case Initializer::Kind::normal:
            case Initializer::Kind::fan_in_normal:
                value = scale * stream.normal();
                break;
            case Initializer::Kind::uniform:
            case Initializer::Kind::fan_in_uniform:
                value = scale * (2.0F * stream.uniform() - 1.0F);
                break;
        }
    }
}

}  // namespace

void initialize_parameters(const Backend& backend, ParameterArena& arena, uint64_t seed) {
    std::vector<float> plain;
    for (size_t index = 0; index < arena.entries().size(); ++index) {
        const ParameterEntry& entry = arena.entries()[index];
        if (entry.spec.kind == ParameterKind::control) continue;
        plain.resize(static_cast<size_t>(element_count(entry.spec.shape)));
        fill(plain, entry.spec, RandomStream(seed, "init", hash_text(entry.spec.name)));
        backend.from_plain(entry, plain, arena.value(index));
    }
}

}  // namespace lockstep
