#include "report/record_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "report/facts_json.h"

namespace lockstep {

namespace {

constexpr std::string_view kHeadMagic = "LSRECORD";
constexpr std::string_view kBlockMagic = "LBLK";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadFrameBytes = 24;
constexpr size_t kBlockFrameBytes = 16;
constexpr size_t kVarintMaxBytes = 10;
constexpr int64_t kMaxTimeNs = int64_t{1} << 61;  // differences of times never overflow

constexpr uint64_t kMaxBuckets = 1 << 16;  // the analysis keeps arrays by bucket index

enum RecordKind : uint8_t { kStep = 1, kPause = 2, kSession = 3 };

template <typename Number>
void store(char* at, Number number) {
    std::memcpy(at, &number, sizeof number);
}

template <typename Number>
Number fetch(std::span<const std::byte> bytes, size_t at) {
    Number number{};
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
}

uint64_t zigzag(int64_t value) { return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63); }
int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1); }

bool is_time(int64_t time_ns) { return time_ns >= 0 && time_ns < kMaxTimeNs; }

// Reads numbers of a payload. After the first impossible one `ok` is false and every answer is 0.
struct PayloadReader {
    std::span<const std::byte> bytes;
    size_t at = 0;
    bool ok = true;

    bool done() const { return at >= bytes.size(); }

    uint64_t number() {
        uint64_t value = 0;
        for (int shift = 0; ok && shift < 64 && at < bytes.size(); shift += 7) {
            const auto byte = static_cast<uint64_t>(bytes[at++]);
            value |= (byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        ok = false;
        return 0;
    }
    int64_t signed_number() { return unzigzag(number()); }
    int64_t time() {
        const int64_t time_ns = signed_number();
        ok = ok && is_time(time_ns);
        return ok ? time_ns : 0;
    }
    int64_t time_after(int64_t begin_ns) {
        const uint64_t length_ns = number();
        ok = ok && length_ns < static_cast<uint64_t>(kMaxTimeNs - begin_ns);
        return ok ? begin_ns + static_cast<int64_t>(length_ns) : begin_ns;
    }
    int64_t relative_time(int64_t begin_ns) {
        const uint64_t code = number();
        if (code == 0) return 0;
        const int64_t offset_ns = unzigzag(code - 1);
        ok = ok && offset_ns > -kMaxTimeNs && offset_ns < kMaxTimeNs && is_time(begin_ns + offset_ns);
        return ok ? begin_ns + offset_ns : 0;
    }
    size_t count(size_t min_bytes_each) {  // of items that must still fit into the payload
        const uint64_t items = number();
        ok = ok && items <= (bytes.size() - at) / min_bytes_each;
        return ok ? static_cast<size_t>(items) : 0;
    }
    Span::Kind span_kind() {
        const uint64_t kind = number();
        ok = ok && kind <= static_cast<uint64_t>(Span::Kind::update_wait);
        return ok ? static_cast<Span::Kind>(kind) : Span::Kind::forward;
    }
};

StoredStep read_step(PayloadReader& reader) {
    StoredStep step;
    step.step = reader.signed_number();
    step.begin_ns = reader.time();
    step.end_ns = reader.time_after(step.begin_ns);
    step.images = reader.signed_number();
    step.spans.resize(reader.count(3));
    for (Span& span : step.spans) {
        span.kind = reader.span_kind();
        span.begin_ns = reader.relative_time(step.begin_ns);
        span.end_ns = reader.relative_time(step.begin_ns);
    }
    step.buckets.resize(reader.count(5));
    for (BucketRecord& bucket : step.buckets) {
        const uint64_t index = reader.number();
        reader.ok = reader.ok && index < kMaxBuckets;
        bucket.bucket = static_cast<int32_t>(index % kMaxBuckets);
        bucket.ready_ns = reader.relative_time(step.begin_ns);
        bucket.start_ns = reader.relative_time(step.begin_ns);
        bucket.arrived_ns = reader.relative_time(step.begin_ns);
        bucket.end_ns = reader.relative_time(step.begin_ns);
    }
    reader.ok = reader.ok && step.step >= 0 && step.step < kMaxTimeNs && step.images >= 0 && step.images < kMaxTimeNs;
    return step;
}

StoredPause read_pause(PayloadReader& reader) {
    StoredPause pause;
    pause.next_step = reader.signed_number();
    pause.span.kind = reader.span_kind();
    pause.span.begin_ns = reader.time();
    pause.span.end_ns = reader.time_after(pause.span.begin_ns);
    return pause;
}

// Adds a payload's records; false at the first one that makes no sense.
bool read_payload(std::span<const std::byte> payload, RankRecords& records) {
    PayloadReader reader{payload};
    while (!reader.done()) {
        switch (reader.number()) {
            case kStep: {
                StoredStep step = read_step(reader);
                const bool ascending = records.steps.empty() || step.step > records.steps.back().step;
                if (!reader.ok || !ascending) return false;
                records.steps.push_back(std::move(step));
                break;
            }
            case kPause: {
                const StoredPause pause = read_pause(reader);
                if (!reader.ok) return false;
                records.pauses.push_back(pause);
                break;
            }
            case kSession: {
                const int64_t start = reader.signed_number();
                const bool ascending = records.session_starts.empty() || start >= records.session_starts.back();
                if (!reader.ok || start < 0 || !ascending) return false;
                records.session_starts.push_back(start);
                break;
            }
            default:
                return false;
        }
    }
    return true;
}

struct BlockView {
    std::span<const std::byte> payload;
    size_t next = 0;
};

std::optional<BlockView> block_at(std::span<const std::byte> bytes, size_t at) {
    if (bytes.size() - at < kBlockFrameBytes || std::memcmp(bytes.data() + at, kBlockMagic.data(), kBlockMagic.size()) != 0) {
        return std::nullopt;
    }
    const auto payload_bytes = fetch<uint32_t>(bytes, at + 4);
    if (payload_bytes > bytes.size() - at - kBlockFrameBytes) return std::nullopt;
    const auto payload = bytes.subspan(at + kBlockFrameBytes, payload_bytes);
    if (fetch<uint64_t>(bytes, at + 8) != hash_bytes(payload.data(), payload.size())) return std::nullopt;
    return BlockView{payload, at + kBlockFrameBytes + payload_bytes};
}

// Drops the oldest steps once there are twice as many as wanted, so that the cost stays linear.
void keep_last(std::vector<StoredStep>& steps, int64_t max_steps, int64_t slack) {
    const auto count = static_cast<int64_t>(steps.size());
    if (count > max_steps + slack) steps.erase(steps.begin(), steps.begin() + (count - max_steps));
}

}  // namespace

BlockWriter::BlockWriter(size_t capacity_bytes) : bytes_(kFrameBytes + capacity_bytes) {
    check(capacity_bytes <= UINT32_MAX, "a block of records fits a 32-bit length");
}

void BlockWriter::put(uint64_t value) {
    while (value >= 0x80) {
        bytes_[used_++] = static_cast<char>(0x80 | (value & 0x7F));
        value >>= 7;
    }
    bytes_[used_++] = static_cast<char>(value);
}

void BlockWriter::put_signed(int64_t value) { put(zigzag(value)); }

void BlockWriter::put_time(int64_t time_ns, int64_t begin_ns) { put(time_ns == 0 ? 0 : 1 + zigzag(time_ns - begin_ns)); }

bool BlockWriter::add_step(const StepRecord& record) {
    if (!fits(kVarintMaxBytes * (7 + 3 * record.spans.size() + 5 * record.buckets.size()))) return false;
    put(kStep);
    put_signed(record.step);
    put_signed(record.begin_ns);
    put(static_cast<uint64_t>(record.end_ns - record.begin_ns));
    put_signed(record.images);
    put(record.spans.size());
    for (const Span& span : record.spans) {
        put(static_cast<uint64_t>(span.kind));
        put_time(span.begin_ns, record.begin_ns);
        put_time(span.end_ns, record.begin_ns);
    }
    put(record.buckets.size());
    for (const BucketRecord& bucket : record.buckets) {
        put(static_cast<uint64_t>(bucket.bucket));
        for (const int64_t time_ns : {bucket.ready_ns, bucket.start_ns, bucket.arrived_ns, bucket.end_ns}) {
            put_time(time_ns, record.begin_ns);
        }
    }
    return true;
}

bool BlockWriter::add_pause(int64_t next_step, const Span& span) {
    if (!fits(kVarintMaxBytes * 5)) return false;
    put(kPause);
    put_signed(next_step);
    put(static_cast<uint64_t>(span.kind));
    put_signed(span.begin_ns);
    put(static_cast<uint64_t>(span.end_ns - span.begin_ns));
    return true;
}

bool BlockWriter::add_session(int64_t step) {
    if (!fits(kVarintMaxBytes * 2)) return false;
    put(kSession);
    put_signed(step);
    return true;
}

std::span<const char> BlockWriter::finish() {
    const size_t payload_bytes = used_ - kFrameBytes;
    std::memcpy(bytes_.data(), kBlockMagic.data(), kBlockMagic.size());
    store(bytes_.data() + 4, static_cast<uint32_t>(payload_bytes));
    store(bytes_.data() + 8, hash_bytes(bytes_.data() + kFrameBytes, payload_bytes));
    return {bytes_.data(), used_};
}

std::string encode_head(const RunFacts& facts) {
    const std::string json = facts_to_json(facts);
    std::string head(kHeadFrameBytes, '\0');
    std::memcpy(head.data(), kHeadMagic.data(), kHeadMagic.size());
    store(head.data() + 8, kVersion);
    store(head.data() + 12, static_cast<uint32_t>(json.size()));
    store(head.data() + 16, hash_text(json));
    return head + json;
}

RankRecords parse_rank_records(std::span<const std::byte> bytes, const std::string& name, int64_t max_steps) {
    const auto refuse = [&](std::string_view reason) {
        throw DataError(fmt::format("{}: {}; remove the file or make the run again", name, reason));
    };
    if (bytes.size() < kHeadFrameBytes || std::memcmp(bytes.data(), kHeadMagic.data(), kHeadMagic.size()) != 0) {
        refuse("not a records file");
    }
    if (fetch<uint32_t>(bytes, 8) != kVersion) refuse("records of another format version");
    const auto json_bytes = fetch<uint32_t>(bytes, 12);
    if (json_bytes > bytes.size() - kHeadFrameBytes) refuse("the head is cut");
    const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + kHeadFrameBytes, json_bytes);
    std::optional<RunFacts> facts;
    if (hash_text(json) == fetch<uint64_t>(bytes, 16)) facts = facts_from_json(json);
    if (!facts) refuse("the head is damaged");

    RankRecords records{.facts = std::move(*facts)};
    size_t at = kHeadFrameBytes + json_bytes;
    while (at < bytes.size()) {
        const std::optional<BlockView> block = block_at(bytes, at);
        if (!block || !read_payload(block->payload, records)) {
            records.warning =
                fmt::format("{}: damaged or cut at byte {}; the last {} bytes are dropped", name, at, bytes.size() - at);
            break;
        }
        at = block->next;
        keep_last(records.steps, max_steps, max_steps);
    }
    keep_last(records.steps, max_steps, 0);
    return records;
}

std::string encode_rank_records(const RunFacts& facts, const RankRecords& records) {
    std::string file = encode_head(facts);
    BlockWriter writer(size_t{1} << 20);
    const auto add = [&](auto&& add_record) {
        if (add_record()) return;
        file.append(writer.finish().data(), writer.finish().size());
        writer.clear();
        add_record();  // one that no block can take was never recorded either
    };
    for (const int64_t start : records.session_starts) add([&] { return writer.add_session(start); });
    for (const StoredPause& pause : records.pauses) add([&] { return writer.add_pause(pause.next_step, pause.span); });
    for (const StoredStep& step : records.steps) {
        add([&] { return writer.add_step({step.step, step.begin_ns, step.end_ns, step.images, step.spans, step.buckets}); });
    }
    if (!writer.empty()) file.append(writer.finish().data(), writer.finish().size());
    return file;
}

std::filesystem::path record_path(const std::filesystem::path& run_dir, int rank) {
    return run_dir / "records" / fmt::format("rank{}.bin", rank);
}

RunRecords load_run_records(const std::filesystem::path& run_dir, int64_t max_steps) {
    RunRecords run;
    const fs::path folder = run_dir / "records";
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
        if (entry.path().extension() != ".bin") continue;
        try {
            const MappedFile file(entry.path());
            RankRecords records = parse_rank_records(file.bytes(), entry.path().filename().string(), max_steps);
            const std::string expected = record_path(run_dir, records.facts.rank).filename().string();
            if (entry.path().filename() != expected) {
                run.warnings.push_back(fmt::format("{} says it is {}; left out", entry.path().filename().string(), expected));
                continue;
            }
            if (!records.warning.empty()) run.warnings.push_back(records.warning);
            run.ranks.push_back(std::move(records));
        } catch (const DataError& error) {
            run.warnings.emplace_back(error.what());
        }
    }
    if (run.ranks.empty()) {
        throw DataError(fmt::format("{}: no readable records (records/rank*.bin){}{}; give the folder of a run", run_dir.string(),
                                    run.warnings.empty() ? "" : ": ", run.warnings.empty() ? "" : run.warnings.front()));
    }
    std::ranges::sort(run.ranks, {}, [](const RankRecords& records) { return records.facts.rank; });
    run.world_size = run.ranks.front().facts.world_size;
    std::erase_if(run.ranks, [&](const RankRecords& records) {
        const bool foreign = records.facts.world_size != run.world_size;
        if (foreign)
            run.warnings.push_back(
                fmt::format("rank {} belongs to a run of {} ranks; left out", records.facts.rank, records.facts.world_size));
        return foreign;
    });
    std::vector<bool> present(static_cast<size_t>(run.world_size), false);
    for (const RankRecords& records : run.ranks) present[static_cast<size_t>(records.facts.rank)] = true;
    for (int rank = 0; rank < run.world_size; ++rank) {
        if (!present[static_cast<size_t>(rank)]) run.missing_ranks.push_back(rank);
    }
    for (RankRecords& records : run.ranks) std::ranges::stable_sort(records.pauses, {}, &StoredPause::next_step);
    return run;
}

}  // namespace lockstep
