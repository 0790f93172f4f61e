#include "launch/agent_messages.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "core/clock.h"
#include "net/message.h"

namespace lockstep {

namespace {

constexpr uint32_t kMaxEntries = 100'000;

// One description of each message serves both ways: `Writer` puts the fields, `Reader` gets them.
struct Writer {
    MessageWriter out;
    void field(const std::string& text) { out.put_text(text); }
    void field(int value) { out.put_i64(value); }
    void field(int64_t value) { out.put_i64(value); }
    void field(bool value) { out.put_u8(value ? 1 : 0); }
    void field(double value) { out.put_i64(std::bit_cast<int64_t>(value)); }
    template <typename Item>
    void list(const std::vector<Item>& items) {
        out.put_u32(static_cast<uint32_t>(items.size()));
        for (const Item& item : items) describe(*this, const_cast<Item&>(item));
    }
    std::string bytes() { return out.take_frame().substr(kFrameHeaderBytes); }
};

struct Reader {
    MessageReader in;
    void field(std::string& text) { text = in.get_text(); }
    void field(int& value) { value = static_cast<int>(in.get_i64()); }
    void field(int64_t& value) { value = in.get_i64(); }
    void field(bool& value) { value = in.get_u8() != 0; }
    void field(double& value) { value = std::bit_cast<double>(in.get_i64()); }
    template <typename Item>
    void list(std::vector<Item>& items) {
        const uint32_t count = in.get_u32();
        if (count > kMaxEntries) return;
        for (uint32_t index = 0; index < count && in.ok(); ++index) describe(*this, items.emplace_back());
    }
};

template <typename Way>
void describe(Way& way, std::string& text) {
    way.field(text);
}

constexpr int64_t kOldestNs = int64_t{10} * 365 * 86'400 * 1'000'000'000;  // what a stranger calls older is as old as this

// Times travel as ages, since the clocks of two nodes have nothing in common.
template <typename Way>
void describe(Way& way, RankEnd& end) {
    int64_t age_ns = now_ns() - end.ended_ns;
    way.field(end.rank);
    way.field(end.host);
    way.field(end.pid);
    way.field(end.exit_code);
    way.field(end.signal);
    way.field(end.core_dumped);
    way.field(age_ns);
    way.field(end.stopped_by_agent);
    way.field(end.step);
    way.field(end.log);
    way.field(end.error);
    way.list(end.last_lines);
    end.ended_ns = now_ns() - std::clamp<int64_t>(age_ns, 0, kOldestNs);
}

template <typename Way>
void describe(Way& way, AgentFacts& facts) {
    way.field(facts.identity);
    way.field(facts.host);
    way.field(facts.pid);
    way.field(facts.address);
    way.field(facts.free_port);
    way.field(facts.local_size);
    way.field(facts.node_rank);
    way.field(facts.restarts);
    way.field(facts.clock_s);
}

template <typename Way>
void describe(Way& way, RoundMember& member) {
    way.field(member.identity);
    way.field(member.node);
    way.field(member.first_rank);
    way.field(member.local_size);
    way.field(member.host);
}

template <typename Way>
void describe(Way& way, AgentEvent& event) {
    int kind = static_cast<int>(event.kind);
    way.field(kind);
    event.kind = static_cast<AgentEvent::Kind>(kind);
    way.field(event.agent);
    way.field(event.round);
    way.field(event.signal);
    describe(way, event.facts);
    way.list(event.ends);
}

template <typename Way>
void describe(Way& way, Decision& decision) {
    int kind = static_cast<int>(decision.kind);
    way.field(kind);
    decision.kind = static_cast<Decision::Kind>(kind);
    way.field(decision.round);
    way.field(decision.agent);
    way.list(decision.members);
    way.field(decision.world_size);
    way.field(decision.master_addr);
    way.field(decision.master_port);
    way.field(decision.job_id);
    way.field(decision.run_name);
    way.field(decision.restart_count);
    way.field(decision.signal);
    way.field(decision.code);
    way.field(decision.at_work);
    way.list(decision.lines);
}

template <typename Message>
std::optional<Message> decode(std::string_view bytes, int last_kind) {
    Message message;
    Reader reader{MessageReader(bytes)};
    describe(reader, message);
    const int kind = static_cast<int>(message.kind);
    if (!reader.in.at_end() || kind < 1 || kind > last_kind) return std::nullopt;
    return message;
}

template <typename Message>
std::string encode_message(Message message) {
    Writer writer;
    describe(writer, message);
    return writer.bytes();
}

}  // namespace

std::string beat_key(int64_t agent) { return fmt::format("beat/{}", agent); }

std::string agents_table(std::string_view run_id) { return fmt::format("agents of {}", run_id); }

std::string encode(const AgentEvent& event) { return encode_message(event); }
std::string encode(const Decision& decision) { return encode_message(decision); }

std::optional<AgentEvent> decode_event(std::string_view bytes) {
    return decode<AgentEvent>(bytes, static_cast<int>(AgentEvent::Kind::gone));
}
std::optional<Decision> decode_decision(std::string_view bytes) {
    return decode<Decision>(bytes, static_cast<int>(Decision::Kind::call_back));
}

}  // namespace lockstep
