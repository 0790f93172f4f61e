// libFuzzer target: what a stranger may say to the job's store before it is known, and what agents write into it. A greeting
// without the secret must never succeed, whatever is said. Built and run by scripts/fuzz.
#include <cstdint>
#include <string>
#include <string_view>

#include "launch/agent_messages.h"
#include "net/message.h"
#include "net/store_greeting.h"
#include "net/store_protocol.h"

namespace {

using namespace lockstep;

// A valid beginning, so that the fuzzer gets past the magic number now and then.
std::string hello_with(std::string_view job_id) {
    MessageWriter hello;
    hello.put_u32(store_protocol::kMagic);
    hello.put_u32(store_protocol::kVersion);
    hello.put_text(job_id);
    hello.put_text(std::string(store_protocol::kNonceBytes, 'n'));
    return hello.take_frame().substr(kFrameHeaderBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string_view first = text.substr(0, size / 2), second = text.substr(size / 2);
    for (const std::string& hello : {std::string(first), hello_with(first.substr(0, 100))}) {
        StoreGreeting greeting("secret", [](std::string_view) { return std::string(); });
        if (greeting.hear(hello).refusal.empty()) greeting.hear(second);
        if (greeting.is_done()) __builtin_trap();
    }
    if (const auto event = decode_event(text)) decode_event(encode(*event));
    if (const auto decision = decode_decision(text)) decode_decision(encode(*decision));
    return 0;
}
