// Whatever the bytes, the reader gives an experiment or a ConfigError, soon.
#include "core/files.h"
#include "core/random.h"
#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

constexpr std::string_view kHotBytes = "{}[]:,&*!|>'\"%@`#-?\n\t <$=.\\e0";

std::string mutate(std::string text, RandomStream& random) {
    const uint64_t changes = 1 + random.below(4);
    for (uint64_t change = 0; change < changes && !text.empty(); ++change) {
        const size_t at = random.below(text.size());
        const char byte = random.below(4) == 0 ? static_cast<char>(random.below(256)) : kHotBytes[random.below(kHotBytes.size())];
        switch (random.below(5)) {
            case 0:
                text[at] = byte;
                break;
            case 1:
                text.insert(at, 1 + random.below(3), byte);
                break;
            case 2:
                text.erase(at, 1 + random.below(8));
                break;
            case 3:
                text.insert(at, text.substr(random.below(text.size()), random.below(40)));
                break;
            default:
                text.resize(at);
        }
    }
    return text;
}

TEST_F(ConfigTest, MutatedFilesGiveOnlyConfigErrors) {
    const std::string seeds[]{
        lockstep::read_file(case_file("base")),
        "x-a: &a {base: 0.1, at: [1ep, 2ep]}\nlr: {<<: *a}\nrun: {dir: \"${env:X:-y}/${run.name}\"}\n"
        "data:\n  train:\n    path: |\n      text\n    pipeline: [{random_crop: {size: [32, 32], pad: 4}}, hflip]\n"};
    int valid = 0, refused = 0;
    for (uint64_t round = 0; round < 1000; ++round) {
        RandomStream random(7, "fuzz", round);
        const std::string text = mutate(seeds[round % 2], random);
        try {
            read(text);
            ++valid;
        } catch (const ConfigError& error) {
            EXPECT_FALSE(std::string(error.what()).empty());
            ++refused;
        }
    }
    EXPECT_GE(valid, 10) << "the mutations must not be hopeless";
    EXPECT_GT(refused, 200);
}

TEST_F(ConfigTest, MutatedOverridesGiveOnlyConfigErrors) {
    for (uint64_t round = 0; round < 300; ++round) {
        RandomStream random(8, "fuzz", round);
        try {
            read(kMinimal, {mutate(round % 2 == 0 ? "lr.at=[30ep,60ep]" : "data.train={path: \"${run.name}\"}", random)});
        } catch (const ConfigError&) {
        }
    }
}

}  // namespace
}  // namespace lockstep
