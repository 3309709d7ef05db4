// The command's subcommands. Each declares itself and its options below `parent` and runs when it is chosen; what goes
// wrong leaves CLI's parse as an exception. Exit status: 0 done, 1 failed or stopped while running, 2 wrong request.
#pragma once

namespace CLI {
class App;
}

namespace sumpter::cli {

// A run that was stopped by a signal, or whose metrics could not be written, sets `status` to 1.
void add_train(CLI::App& parent, int& status);
void add_models(CLI::App& parent);
void add_bench(CLI::App& parent);

}  // namespace sumpter::cli
