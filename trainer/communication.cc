#include "trainer/communication.h"

namespace lockstep {

namespace {

DataType wire_type(const std::string& name) {
    if (name == "bf16") return DataType::bf16;
    return name == "fp16" ? DataType::f16 : DataType::f32;
}

SumOrder sum_order(const Experiment& experiment) {
    if (experiment.run.any_world()) return SumOrder::of_any_world;
    return experiment.run.reproducible == "off" ? SumOrder::any : SumOrder::of_one_world;
}

}  // namespace

CommunicatorOptions communicator_options(const Experiment& experiment, size_t segment_bytes, size_t common_bytes) {
    const Experiment::Comm& comm = experiment.comm;
    return {.backend = comm.backend,
            .mpi = comm.mpi,
            .timeout_ms = comm.timeout_ms,
            .connect_timeout_ms = comm.start_timeout_ms,
            .segment_bytes = segment_bytes,
            .common_bytes = common_bytes,
            .interface = comm.interface,
            .congestion_control = comm.congestion_control,
            .plan = {.algorithm = comm.algorithm,
                     .radix = comm.algorithm_radix,
                     .chunks = comm.chunks,
                     .hierarchical_from_bytes = comm.hierarchical_from_bytes,
                     .order = sum_order(experiment),
                     .probing = comm.probe == "never" ? Probing::never : Probing::unknown,
                     .cache_folder = comm.tuning},
            .wire = wire_type(comm.wire),
            .shared_memory = comm.shared_memory,
            .flight_record_path = experiment.run.dir + "/flight_record.txt",
            .test_delay_ns_per_kib = comm.test_delay_ns_per_kib};
}

}  // namespace lockstep
