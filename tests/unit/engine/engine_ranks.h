// Threads that play ranks, each with an engine over the network in memory; and the requests and numbers that engine tests use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/schedule_engine.h"
#include "tests/support/memory_transport.h"

namespace lockstep::testing_support {

constexpr ElementFormat kFloats{DataType::f32, DataType::f32};

// Little may be sent unasked, and little is kept by a receiver: credit and its bound are at work in every test.
constexpr EngineOptions kTight{.eager_bytes = 2048, .eager_window_bytes = 4096, .sum_budget = 3000};

std::vector<std::vector<int>> everybody(int rank_count);  // one group of all ranks

// What one rank does in a test; its complaints, or the error it met.
using EngineBody = std::function<std::string(ScheduleEngine&, Transport&, int rank)>;

// By rank. `network`: null makes one with the options.
std::vector<std::string> run_ranks(int rank_count, const MemoryNetworkOptions& network_options, const EngineOptions& options,
                                   const EngineBody& body, MemoryNetwork* network = nullptr);

void drive(ScheduleEngine& engine, Transport& transport, const std::function<bool()>& until);

ScheduleRequest request_for(const schedule::Plan& plan, const ElementFormat& format, void* data, int64_t count, uint64_t sequence);
void run_one(ScheduleEngine& engine, Transport& transport, const ScheduleRequest& request);  // to its end

float whole_number(int rank, size_t index);
std::vector<float> whole_numbers(int rank, size_t count);
std::vector<float> sum_of_whole_numbers(int rank_count, size_t count);
std::vector<float> random_floats(int rank, size_t count, uint64_t purpose);

std::vector<schedule::Plan> allreduce_plans();

}  // namespace lockstep::testing_support
