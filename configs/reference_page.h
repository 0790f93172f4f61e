// What the schema table says, for editors and readers.
#pragma once

#include <string>

namespace lockstep {

std::string json_schema();     // JSON Schema (draft 2020-12) for `# yaml-language-server: $schema=…`
std::string reference_page();  // docs/config.md

}  // namespace lockstep
