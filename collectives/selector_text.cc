// The selector as text: one line per row, so that it can be read, compared and sent.
//
//   lockstep-selector 1
//   ranks 8
//   allreduce 65536 exchange 8 1 580.5        up to this many bytes, algorithm, radix, chunks, predicted microseconds
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "collectives/selector.h"
#include "core/error.h"

namespace lockstep {

using schedule::Algorithm;
using schedule::Collective;

namespace {

constexpr std::string_view kFirstLine = "lockstep-selector 1";
constexpr Collective kAllCollectives[] = {Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                          Collective::broadcast, Collective::reduce};
constexpr Algorithm kAllAlgorithms[] = {Algorithm::exchange, Algorithm::halving_doubling, Algorithm::ring, Algorithm::tree,
                                        Algorithm::double_tree};

template <typename Kind, size_t count>
std::optional<Kind> named(std::string_view name, const Kind (&all)[count]) {
    for (const Kind kind : all) {
        if (to_string(kind) == name) return kind;
    }
    return std::nullopt;
}

// "allreduce 65536 exchange 8 1 580.5"; nothing when any of it is wrong.
std::optional<Selector::Row> parse_row(const std::string& line) {
    std::istringstream words(line);
    std::string collective_name;
    std::string algorithm_name;
    Selector::Row row;
    words >> collective_name >> row.up_to_bytes >> algorithm_name >> row.choice.plan.radix >> row.choice.plan.chunks >>
        row.choice.predicted_us;
    const auto collective = named(collective_name, kAllCollectives);
    const auto algorithm = named(algorithm_name, kAllAlgorithms);
    std::string rest;
    if (words.fail() || (words >> rest) || !collective || !algorithm || !exists(*collective, *algorithm)) return std::nullopt;
    if (row.choice.plan.radix < 2 || row.choice.plan.chunks < 1) return std::nullopt;
    row.choice.plan.collective = *collective;
    row.choice.plan.algorithm = *algorithm;
    return row;
}

[[noreturn]] void refuse(size_t line_number, std::string_view why) {
    throw DataError(fmt::format("selector table, line {}: {}; all ranks must run the same version", line_number, why));
}

}  // namespace

std::string Selector::to_text() const {
    std::string text = fmt::format("{}\nranks {}\n", kFirstLine, rank_count_);
    for (const Collective collective : kAllCollectives) {
        for (const Row& row : rows(collective)) {
            const schedule::Plan& plan = row.choice.plan;
            text += fmt::format("{} {} {} {} {} {:.3f}\n", to_string(collective), row.up_to_bytes, to_string(plan.algorithm),
                                plan.radix, plan.chunks, row.choice.predicted_us);
        }
    }
    return text;
}

Selector Selector::from_text(std::string_view text) {
    Selector selector;
    std::istringstream lines{std::string(text)};
    std::string line;
    size_t number = 1;
    if (!std::getline(lines, line) || line != kFirstLine) refuse(number, fmt::format("`{}` is not `{}`", line, kFirstLine));
    ++number;
    std::string word;
    if (!(lines >> word >> selector.rank_count_) || word != "ranks" || selector.rank_count_ < 1)
        refuse(number, "no number of ranks");
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        ++number;
        const std::optional<Row> row = parse_row(line);
        if (!row) refuse(number, fmt::format("`{}` is no row", line));
        std::vector<Row>& table = selector.rows_[static_cast<size_t>(row->choice.plan.collective)];
        if (!table.empty() && table.back().up_to_bytes >= row->up_to_bytes) refuse(number, "sizes do not grow");
        table.push_back(*row);
    }
    for (const Collective collective : kAllCollectives) {
        const std::span<const Row> table = selector.rows(collective);
        if (!table.empty() && table.back().up_to_bytes == std::numeric_limits<int64_t>::max()) continue;
        refuse(number, fmt::format("the rows of {} end too early", to_string(collective)));
    }
    return selector;
}

}  // namespace lockstep
