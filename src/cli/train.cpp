#include "train/train.h"

#include <CLI/App.hpp>
#include <iostream>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/metrics.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/train_options.h"

namespace sumpter::cli {
namespace {

// "a replica 3.29 MiB (parameters ..., activations ...), 2 replicas; ...; in all ..."
std::string describe_memory(const Footprint& memory) {
  const auto bytes = [](std::size_t number) { return describe_bytes(static_cast<double>(number)); };
  std::string text =
      fmt::format("{} replica{} of {} (parameters {}, gradients {}", memory.replicas, memory.replicas == 1 ? "" : "s",
                  bytes(memory.of_replica()), bytes(memory.parameters), bytes(memory.gradients));
  const auto add = [&](const char* what, std::size_t number) {
    if (number != 0) text += fmt::format(", {} {}", what, bytes(number));
  };
  add("optimizer", memory.optimizer);
  add("error feedback", memory.feedback);
  text += memory.activations ? fmt::format(", activations about {})", bytes(*memory.activations))
                             : ", activations unknown)";
  add("shared parameters and optimizer", memory.shared);
  add("input", memory.input);
  add("arena", memory.arena);
  return text + ", in all " + bytes(memory.all());
}

// Passes what happens on to those who were asked for.
class Listener : public TrainListener {
 public:
  Listener(std::optional<Progress>& progress, std::optional<MetricsFile>& metrics)
      : progress_(progress), metrics_(metrics) {}
  void began(const RunStart& start) override {
    if (metrics_) metrics_->began(start.first_step);
    if (!progress_) return;
    log::info("memory: {}", describe_memory(start.memory));
    progress_->began(start);
  }
  void stepped(const StepReport& report) override {
    if (progress_) progress_->stepped(report);
    if (metrics_) metrics_->stepped(report);
  }
  void evaluated(const Evaluation& evaluation) override {
    if (progress_) progress_->evaluated(evaluation);
    if (metrics_) metrics_->evaluated(evaluation);
  }
  void saved(const std::filesystem::path& directory, std::uint64_t steps) override {
    if (progress_) progress_->clear();
    log::debug("checkpoint after {} steps: {}", steps, directory.string());
    if (metrics_) metrics_->saved(directory, steps);
  }

 private:
  std::optional<Progress>& progress_;
  std::optional<MetricsFile>& metrics_;
};

void print_row(std::string_view title, const std::string& text) {
  std::cout << fmt::format("{:<10} {}\n", title, text);
}

void print_summary(const ModelSpec& model, const RunOptions& options, const RunResult& result) {
  const double rate = result.seconds > 0 ? static_cast<double>(result.rows) / result.seconds : 0;
  print_row("model", fmt::format("{}, {} parameters", model.name, result.parameters));
  if (result.first_step != 0) print_row("resumed", fmt::format("after {} steps", result.first_step));
  print_row("trained", fmt::format("{} steps, {} rows{}, on cpu:{}, update={}, last loss {:.4f}", result.steps,
                                   result.rows, result.first_step == 0 ? " in all" : " since", options.plan.replicas,
                                   name_of(options.plan.update), result.loss));
  print_row("time", fmt::format("{}, {:.0f} rows/s", describe_seconds(result.seconds), rate));
  print_row("exchange", fmt::format("{:.1f}% of the step; waiting for input {:.1f}%", 100 * result.share_exchange,
                                    100 * result.share_input));
  if (result.evaluation)
    print_row("test", fmt::format("top-1 {:.2f}%, loss {:.4f}, on {} rows", 100 * result.evaluation->top1,
                                  result.evaluation->loss, result.evaluation->rows));
  if (result.overflows != 0)
    print_row("overflows",
              fmt::format("{} gradients were too large for {}", result.overflows, name_of(options.plan.gradient_wire)));
  if (!options.checkpoint.directory.empty())
    print_row("checkpoint", fmt::format("{}, {} written", options.checkpoint.directory.string(), result.checkpoints));
  if (!options.trace.file.empty()) print_row("trace", options.trace.file.string());
  if (!options.weights.empty()) print_row("weights", options.weights.string());
  if (!result.digest.empty()) print_row("digest", result.digest);
}

void run(const TrainArguments& arguments, int& status) {
  if (arguments.quiet) log::set_level(log::Level::warning);
  const StopSignals signals;
  const auto [model, options] = request_of(arguments);
  std::optional<MetricsFile> metrics;
  if (!arguments.metrics.empty()) metrics.emplace(arguments.metrics);
  std::optional<Progress> progress;
  if (!arguments.quiet && !arguments.no_progress) progress.emplace(terminal_width());

  Listener listener(progress, metrics);
  const RunResult result = train(model, options, listener, signals.stop());
  progress.reset();
  const nlohmann::ordered_json summary = summary_of(model, options, result);
  if (arguments.json) {
    std::cout << json_line(summary) << '\n';
  } else {
    print_summary(model, options, result);
  }
  if (metrics) metrics->ended(summary);
  if (result.stopped) log::warning("stopped after {} steps, before the run's end", result.steps);
  if (result.stopped || result.checkpoints_failed != 0 || (metrics && metrics->failed())) status = 1;
}

}  // namespace

void add_train(CLI::App& parent, int& status) {
  CLI::App* app = parent.add_subcommand("train", "Train a model on several replicas");
  app->footer(
      "Ctrl-C or SIGTERM ends the run after the step under way: a checkpoint and weights are written where they were\n"
      "asked for, nothing is evaluated, and the exit status is 1. Once more ends it at once.");
  const auto arguments = std::make_shared<TrainArguments>();
  declare_options(*app, *arguments);
  app->callback([arguments, &status] { run(*arguments, status); });
}

}  // namespace sumpter::cli
