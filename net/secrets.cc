#include "net/secrets.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kMinSecretBytes = 16;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string first_line_of(const char* path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) {
        throw ConfigError(
            fmt::format("LOCKSTEP_JOB_SECRET_FILE: {} cannot be read or is empty; put the secret on its first line", path));
    }
    return line;
}

}  // namespace

std::string keyed_hash(std::string_view secret, std::string_view text) {
    std::string proof(kProofBytes, '\0');
    unsigned int length = 0;
    const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes_of(text), text.size(),
                                     reinterpret_cast<unsigned char*>(proof.data()), &length);
    check(done != nullptr && length == kProofBytes, "HMAC-SHA256 gives 32 bytes");
    return proof;
}

bool equal_secrets(std::string_view left, std::string_view right) {
    return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string random_bytes(size_t count) {
    std::string bytes(count, '\0');
    if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
        throw DeviceError("the system gives no random numbers for the handshake between ranks; check /dev/urandom");
    }
    return bytes;
}

std::string job_secret_from_environment() {
    const char* value = std::getenv("LOCKSTEP_JOB_SECRET");
    const char* path = std::getenv("LOCKSTEP_JOB_SECRET_FILE");
    if (value != nullptr && path != nullptr) {
        throw ConfigError("LOCKSTEP_JOB_SECRET and LOCKSTEP_JOB_SECRET_FILE are both set; keep one of them");
    }
    if (value == nullptr && path == nullptr) return {};
    std::string secret = value != nullptr ? value : first_line_of(path);
    if (secret.size() < kMinSecretBytes) {
        throw ConfigError(
            fmt::format("the job's secret ({}) has {} characters, fewer than {}; make one with `openssl rand -hex 32`",
                        value != nullptr ? "LOCKSTEP_JOB_SECRET" : path, secret.size(), kMinSecretBytes));
    }
    return secret;
}

}  // namespace lockstep
