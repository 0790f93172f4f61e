// Operations on colours, byte for byte those of Pillow (ImageEnhance, ImageOps) under the names of torchvision. All work in place
// on grey or RGBX pixels; colours of a grey image are left alone.
#pragma once

#include "data_loader/image.h"

namespace lockstep {

// Pillow's grey of a colour: ITU-R 601-2 in 16-bit fixed point.
uint8_t grey_of(const uint8_t* rgb);
// The image's first bytes of each row become its grey pixels.
ImageView to_grey(const ImageView& image);

// Blends with black, with the mean grey, with the pixel's own grey: factor 0 gives these, 1 the image, more exaggerates.
void adjust_brightness(const ImageView& image, double factor);
void adjust_contrast(const ImageView& image, double factor);
void adjust_saturation(const ImageView& image, double factor);
// Turns colours around the 8-bit HSV circle by `turn` of a full turn, -0.5 to 0.5.
void adjust_hue(const ImageView& image, double turn);
// Blends with the image smoothed by a 3x3 kernel. `smooth` is scratch, not the buffer behind `image`.
void adjust_sharpness(const ImageView& image, double factor, Image& smooth);

void posterize(const ImageView& image, int bits);  // keeps the highest bits, 0 to 8
void solarize(const ImageView& image, double threshold);
void autocontrast(const ImageView& image);
void equalize(const ImageView& image);

}  // namespace lockstep
