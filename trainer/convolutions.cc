#include "trainer/convolutions.h"

#include <string>

#include "trainer/leader_task.h"

namespace lockstep {

void settle_convolutions(Communicator& communicator, const Experiment& experiment, Phase phase, Replica& replica) {
    if (experiment.compute.autotune != "measure" || experiment.compute.exact_convolution) return;
    std::string text;
    run_on_leader(communicator, experiment.comm.timeout_ms, "choice of convolutions", 0,
                  [&] { text = replica.measure_convolutions(phase, experiment.compute.cache).to_text(); });
    replica.use_convolutions(ConvolutionTable::from_text(gather_texts(communicator, text, "choice of convolutions").front()));
}

AgreementFact convolutions_fact(const Replica& replica) {
    return {"the code of convolutions", replica.backend().convolutions().to_text()};
}

}  // namespace lockstep
