// Proof that a process knows the job's secret without telling it, and where the secret comes from.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kProofBytes = 32;

// HMAC-SHA256 (RFC 2104), 32 bytes.
std::string keyed_hash(std::string_view secret, std::string_view text);

// In a time that does not depend on where they differ.
bool equal_secrets(std::string_view left, std::string_view right);

std::string random_bytes(size_t count);  // from the system's generator; DeviceError when it has none

// The job's secret: LOCKSTEP_JOB_SECRET, or the first line of the file that LOCKSTEP_JOB_SECRET_FILE names; empty when neither is
// set. ConfigError for both, for an unreadable file, and for fewer than 16 characters.
std::string job_secret_from_environment();

}  // namespace lockstep
