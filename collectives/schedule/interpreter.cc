#include "collectives/schedule/interpreter.h"

#include <algorithm>
#include <utility>

#include "collectives/schedule/replay.h"
#include "core/error.h"

namespace lockstep::schedule {

namespace {

float tree_sum(std::span<const float> values) {
    if (values.size() == 1) return values[0];
    const auto left = static_cast<size_t>(left_operands(static_cast<int>(values.size())));
    return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

class Interpreter {
public:
    Interpreter(std::span<const Program> programs, std::vector<std::vector<float>>& buffers,
                const std::function<float(float)>& on_wire)
        : programs_(programs),
          buffers_(buffers),
          on_wire_(on_wire),
          matching_(match(programs)),
          messages_(matching_.partner.size()) {
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            slots_.emplace_back(static_cast<size_t>(programs[rank].slot_count), std::vector<float>(buffers[rank].size()));
        }
    }

    void run(uint64_t seed) {
        size_t completed = 0;
        size_t expected = 0;
        for (const Program& program : programs_) expected += program.rounds.size();
        for (const RoundEvent& event : rendezvous_order(programs_, matching_, seed)) {
            const Program& program = programs_[static_cast<size_t>(event.rank)];
            const Round& round = program.rounds[event.round];
            completed += event.completes ? 1 : 0;
            if (event.completes) {
                land(event.rank, program, round);
                sum(event.rank, program, round);
            } else {
                ship(event.rank, program, round);
            }
        }
        check(completed == expected, "the schedule can be carried out to its end");
    }

private:
    void ship(int rank, const Program& program, const Round& round) {
        std::vector<float>& buffer = buffers_[static_cast<size_t>(rank)];
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const Move& move = program.moves[index];
            if (move.kind != MoveKind::send) continue;
            const auto first = buffer.begin() + move.range.first;
            if (on_wire_) std::transform(first, first + move.range.size(), first, on_wire_);
            const uint32_t receive = matching_.partner[matching_.number(rank, index)];
            messages_[receive].assign(first, first + move.range.size());
        }
    }

    void land(int rank, const Program& program, const Round& round) {
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const Move& move = program.moves[index];
            if (move.kind != MoveKind::receive) continue;
            std::vector<float> message = std::move(messages_[matching_.number(rank, index)]);
            std::copy(message.begin(), message.end(), place(rank, move.slot).begin() + move.range.first);
        }
    }

    void sum(int rank, const Program& program, const Round& round) {
        const std::span<const int32_t> operands = program.operands_of(round);
        if (operands.empty()) return;
        std::vector<float> values(operands.size());
        std::vector<float>& buffer = buffers_[static_cast<size_t>(rank)];
        for (int64_t element = round.sum_range.first; element < round.sum_range.last; ++element) {
            const auto at = static_cast<size_t>(element);
            for (size_t operand = 0; operand < operands.size(); ++operand) values[operand] = place(rank, operands[operand])[at];
            buffer[at] = tree_sum(values);
        }
    }

    std::vector<float>& place(int rank, int32_t slot) {
        return slot == kInPlace ? buffers_[static_cast<size_t>(rank)]
                                : slots_[static_cast<size_t>(rank)][static_cast<size_t>(slot)];
    }

    const std::span<const Program> programs_;
    std::vector<std::vector<float>>& buffers_;
    const std::function<float(float)>& on_wire_;
    const Matching matching_;
    std::vector<std::vector<float>> messages_;            // by receive
    std::vector<std::vector<std::vector<float>>> slots_;  // by rank and slot
};

}  // namespace

void interpret(std::span<const Program> programs, std::vector<std::vector<float>>& buffers, uint64_t seed,
               const std::function<float(float)>& on_wire) {
    check(programs.size() == buffers.size(), "every rank has a program and a buffer");
    Interpreter(programs, buffers, on_wire).run(seed);
}

std::vector<float> rank_tree_sum(const std::vector<std::vector<float>>& inputs) {
    std::vector<float> result(inputs.at(0).size());
    std::vector<float> values(inputs.size());
    for (size_t element = 0; element < result.size(); ++element) {
        for (size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = inputs[rank][element];
        result[element] = tree_sum(values);
    }
    return result;
}

}  // namespace lockstep::schedule
