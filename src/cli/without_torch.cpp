#include <CLI/App.hpp>

#include "base/error.h"
#include "cli/command.h"

namespace sumpter::cli {
namespace {

// Takes any options, so that the answer is the reason and not one of them.
void add_refusal(CLI::App& parent, const char* name, const char* description) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->allow_extras();
  app->callback([name] {
    raise<RequestError>("{}: this build has no libtorch; build it with -DSUMPTER_TORCH=ON (see README.md)", name);
  });
}

}  // namespace

void add_train(CLI::App& parent, int&) { add_refusal(parent, "train", "Train a model (not in this build)"); }
void add_models(CLI::App& parent) { add_refusal(parent, "models", "List the models (not in this build)"); }

}  // namespace sumpter::cli
