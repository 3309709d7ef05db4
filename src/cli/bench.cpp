#include "bench/bench.h"

#include <CLI/App.hpp>

#include "cli/command.h"

namespace sumpter::cli {

void add_bench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("bench", "Measure this machine and this build");
  app->require_subcommand(1);
  bench::add_bench_kernels(*app);
  bench::add_bench_exchange(*app);
  bench::add_bench_input(*app);
  bench::add_bench_ping(*app);
#ifdef SUMPTER_HAS_TORCH
  bench::add_bench_train(*app);
#endif
}

}  // namespace sumpter::cli
