// The subcommands of `sumpter bench`. Each declares itself below `parent`, options included, and runs when it is
// chosen: results on standard output, everything else on standard error. What goes wrong leaves CLI's parse as an
// exception derived from sumpter::Error.
#pragma once

namespace CLI {
class App;
}

namespace sumpter::bench {

void add_bench_kernels(CLI::App& parent);
void add_bench_exchange(CLI::App& parent);
void add_bench_input(CLI::App& parent);
void add_bench_ping(CLI::App& parent);
void add_bench_train(CLI::App& parent);  // with torch only

}  // namespace sumpter::bench
