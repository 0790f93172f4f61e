#include "nn/executor.h"

#include "core/hash.h"
#include "core/random.h"

namespace lockstep {

namespace {

void fill(std::span<float> values, const Initializer& init, RandomStream stream) {
    for (float& value : values) {
        switch (init.kind) {
            case Initializer::Kind::constant:
                value = init.value;
                break;
            case Initializer::Kind::normal:
                value = init.value * stream.normal();
                break;
            case Initializer::Kind::uniform:
                value = init.value * (2.0F * stream.uniform() - 1.0F);
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
        fill(plain, entry.spec.init, RandomStream(seed, "init", hash_text(entry.spec.name)));
        backend.from_plain(entry, plain, arena.value(index));
    }
}

}  // namespace lockstep
