// What a file is, judged by its first bytes and never by its name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

enum class ContentKind : unsigned char { jpeg, png, bmp, gif, webp, tiff, gzip, zip, pdf, html, empty, unknown };

ContentKind detect_content(std::span<const std::byte> bytes);
// For messages: "a BMP image", "HTML text", "an empty file", "unknown data (first bytes 00 01 02 03)".
std::string describe_content(std::span<const std::byte> bytes);

}  // namespace lockstep
