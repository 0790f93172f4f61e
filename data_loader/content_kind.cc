#include "data_loader/content_kind.h"

#include <cctype>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {

namespace {

bool looks_like_html(std::string_view text) {
    const size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos || text[start] != '<' || start + 1 >= text.size()) return false;
    const char next = text[start + 1];
    return next == '!' || next == '?' || next == '/' || std::isalpha(static_cast<unsigned char>(next)) != 0;
}

}  // namespace

ContentKind detect_content(std::span<const std::byte> bytes) {
    using namespace std::string_view_literals;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size() < 256 ? bytes.size() : 256);
    if (text.empty()) return ContentKind::empty;
    if (text.starts_with("\xFF\xD8\xFF"sv)) return ContentKind::jpeg;
    if (text.starts_with("\x89PNG\r\n\x1A\n"sv)) return ContentKind::png;
    if (text.starts_with("BM"sv)) return ContentKind::bmp;
    if (text.starts_with("GIF8"sv)) return ContentKind::gif;
    if (text.starts_with("RIFF"sv) && text.substr(0, 12).ends_with("WEBP"sv)) return ContentKind::webp;
    if (text.starts_with("II*\0"sv) || text.starts_with("MM\0*"sv)) return ContentKind::tiff;
    if (text.starts_with("\x1F\x8B"sv)) return ContentKind::gzip;
    if (text.starts_with("PK\x03\x04"sv)) return ContentKind::zip;
    if (text.starts_with("%PDF"sv)) return ContentKind::pdf;
    if (looks_like_html(text)) return ContentKind::html;
    return ContentKind::unknown;
}

std::string describe_content(std::span<const std::byte> bytes) {
    switch (detect_content(bytes)) {
        case ContentKind::jpeg:
            return "a JPEG image";
        case ContentKind::png:
            return "a PNG image";
        case ContentKind::bmp:
            return "a BMP image";
        case ContentKind::gif:
            return "a GIF image";
        case ContentKind::webp:
            return "a WebP image";
        case ContentKind::tiff:
            return "a TIFF image";
        case ContentKind::gzip:
            return "gzip data";
        case ContentKind::zip:
            return "a ZIP archive";
        case ContentKind::pdf:
            return "a PDF document";
        case ContentKind::html:
            return "HTML text";
        case ContentKind::empty:
            return "an empty file";
        case ContentKind::unknown:
            break;
    }
    std::string text = "unknown data (first bytes";
    for (size_t index = 0; index < bytes.size() && index < 4; ++index) {
        text += fmt::format(" {:02x}", std::to_integer<unsigned>(bytes[index]));
    }
    return text + ")";
}

}  // namespace lockstep
