// MixUp (arXiv:1710.09412) and CutMix (arXiv:1905.04899) on the images of a virtual worker, as torchvision's reference training
// does them: every image is mixed with the one before it (the first with the last), all with one drawn share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "data_loader/image.h"

namespace lockstep {

struct MixOptions {
    // Both parameters of the beta distribution from which the share is drawn; 0: off. With both on, each has half of the batches.
    double mixup = 0.0, cutmix = 0.0;
    bool on() const { return mixup > 0.0 || cutmix > 0.0; }
};

struct Mixture {
    float second_share = 0.0F;  // of the other image, and of its label
    CropBox cut{};              // CutMix: the part taken from the other image; of no size: MixUp
    bool cuts = false;
};

// A number of the beta distribution with both parameters `alpha`.
double draw_beta(double alpha, RandomStream& random);

Mixture draw_mixture(const MixOptions& options, ImageSize image, RandomStream& random);

// Mixes in place. `images`: (labels.size(), channels, height, width). `second_labels[i]` becomes the label mixed into image i.
// `scratch` is reused.
void mix(const Mixture& mixture, ImageSize image, std::span<float> images, std::span<const int32_t> labels,
         std::span<int32_t> second_labels, std::vector<float>& scratch);

}  // namespace lockstep
