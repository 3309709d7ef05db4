#include <fmt/format.h>

#include <CLI/App.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "train/catalogue.h"

namespace sumpter::cli {
namespace {

void print_json(const ModelInfo& model) {
  const nlohmann::ordered_json line = {{"name", model.name},
                                       {"parameters", model.parameters},
                                       {"input", model.input},
                                       {"description", model.description}};
  std::cout << line.dump() << '\n';
}

void print_models(bool json) {
  constexpr auto kRow = "{:<10} {:>11}  {:<18} {}\n";
  if (!json) std::cout << fmt::format(kRow, "model", "parameters", "input", "layers");
  for (const ModelInfo& model : built_in_models()) {
    if (json) {
      print_json(model);
    } else {
      std::cout << fmt::format(kRow, model.name, model.parameters, model.input, model.description);
    }
  }
  if (!json)
    std::cout
        << "Sizes of your own: mlp:784-512-10, gpt:LAYERS-WIDTH-HEADS-CONTEXT. Vision models: parameters with 1000\n"
           "classes; the data's, or --classes, change the last layer. A TorchScript file (.pt) is a model too.\n";
}

}  // namespace

void add_models(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("models", "List the models that are built in");
  const auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "One JSON object a line");
  app->callback([json] { print_models(*json); });
}

}  // namespace sumpter::cli
