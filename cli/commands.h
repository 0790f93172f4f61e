// The program's sub-commands, one file each. A command registers its options and sets `chosen` from its parse-complete callback;
// main runs what was chosen, catches once and turns an Error into one line and its exit code.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace lockstep::cli {

using Action = std::function<int()>;  // returns the exit code

void add_train(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_eval(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_tune(CLI::App& app, Action& chosen);
void add_time(CLI::App& app, Action& chosen);
void add_bench_allreduce(CLI::App& bench, Action& chosen);  // a sub-command of `bench`
void add_bench_loader(CLI::App& bench, Action& chosen);     // likewise
void add_bench_update(CLI::App& bench, Action& chosen);     // likewise
void add_bench_kernels(CLI::App& bench, Action& chosen);    // likewise
void add_chaos(CLI::App& app, Action& chosen);
void add_checkpoint(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_config(CLI::App& app, Action& chosen);
void add_data(CLI::App& app, Action& chosen);
void add_data_audit(CLI::App& data, Action& chosen);  // a sub-command of `data`
void add_data_order(CLI::App& data, Action& chosen);  // likewise
void add_data_pack(CLI::App& data, Action& chosen);   // likewise
void add_data_look(CLI::App& data, Action& chosen);   // likewise
void add_data_show(CLI::App& data, Action& chosen);   // likewise
void add_doctor_cluster(CLI::App& doctor, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_submit(CLI::App& app, Action& chosen);

}  // namespace lockstep::cli
