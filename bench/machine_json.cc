#include "bench/machine_json.h"

namespace lockstep::bench {

nlohmann::ordered_json json_of(const MachineFacts& facts) {
    return {{"cpu", facts.cpu_model},
            {"cores_online", facts.cores_online},
            {"cores_allowed", facts.cores_allowed},
            {"governor", facts.governor},
            {"kernel", facts.kernel},
            {"transparent_huge_pages", facts.transparent_huge_pages},
            {"congestion_control", facts.congestion_control},
            {"queue_discipline", facts.queue_discipline},
            {"load_average", facts.load_average}};
}

}  // namespace lockstep::bench
