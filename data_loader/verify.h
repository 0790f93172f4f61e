// A look at every image of a source before a long run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data_loader/image.h"
#include "data_loader/source.h"

namespace lockstep {

struct VerifyResult {
    int64_t images = 0;
    int64_t warnings = 0;
    std::vector<std::string> bad;     // reasons with their paths, in source order
    ImageSize smallest{}, largest{};  // by area, of the good ones
};

// Decodes everything with several threads.
VerifyResult verify_images(const Source& source, int threads);

// Label -> images.
std::map<int32_t, int64_t> count_labels(const Source& source);

}  // namespace lockstep
