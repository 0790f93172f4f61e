// A look at every image of a source before a long run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data_loader/image.h"
#include "data_loader/source.h"

namespace lockstep {

struct VerifyOptions {
    int threads = 1;
    bool find_duplicates = true;  // same bytes twice
};

struct Finding {
    std::string_view kind;  // unreadable | checksum | dimensions | label | duplicate | index
    int64_t sample = -1;    // -1: of the set as a whole
    std::string text;       // with path and what is wrong
};

struct VerifyResult {
    int64_t images = 0;
    int64_t declared = 0;             // images whose checksum and size an index declares; they were compared
    int64_t warnings = 0;             // of the decoders: damaged spots whose pixels are kept
    std::vector<Finding> findings;    // of the set first, then in source order
    ImageSize smallest{}, largest{};  // by area, of the good ones
};

// Reads, hashes and decodes everything with several threads.
VerifyResult verify_images(const Source& source, const VerifyOptions& options);

// Label -> images.
std::map<int32_t, int64_t> count_labels(const Source& source);

}  // namespace lockstep
