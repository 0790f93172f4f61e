// Small networks, each around one op and one of its options: what finite differences and backend comparison run on.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "nn/graph.h"

namespace lockstep::testing_support {

struct NetworkCase {
    std::string name;
    Graph graph;
    int batch = 2;
    bool bends = false;  // not differentiable everywhere: ReLU, max pooling
};
inline void PrintTo(const NetworkCase& network_case, std::ostream* out) { *out << network_case.name; }

std::vector<NetworkCase> network_cases();

// Input -> `middle` -> fully connected -> loss. For tests that need one op right behind the images.
Graph graph_with(const InputOp& input, const std::string& name, const OpAttributes& middle, int64_t classes = 5);

}  // namespace lockstep::testing_support
