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

// Passes what happens on to those who were asked for.
class Listener : public TrainListener {
 public:
  Listener(std::optional<Progress>& progress, std::optional<MetricsFile>& metrics)
      : progress_(progress), metrics_(metrics) {}
  void began(std::uint64_t steps, std::uint64_t per_epoch) override {
    if (progress_) progress_->began(steps, per_epoch);
  }
  void stepped(const StepReport& report) override {
    if (progress_) progress_->stepped(report);
    if (metrics_) metrics_->stepped(report);
  }
  void evaluated(const Evaluation& evaluation) override {
    if (progress_) progress_->evaluated(evaluation);
    if (metrics_) metrics_->evaluated(evaluation);
  }

 private:
  std::optional<Progress>& progress_;
  std::optional<MetricsFile>& metrics_;
};

void print_row(std::string_view title, const std::string& text) {
  std::cout << fmt::format("{:<10} {}\n", title, text);
}

void print_summary(const TrainOptions& options, const RunResult& result) {
  const double rate = result.seconds > 0 ? static_cast<double>(result.rows) / result.seconds : 0;
  print_row("model", fmt::format("{}, {} parameters", options.model.name, result.parameters));
  print_row("trained", fmt::format("{} steps, {} rows in all, on cpu:{}, update={}, last loss {:.4f}", result.steps,
                                   result.rows, options.plan.replicas, name_of(options.plan.update), result.loss));
  print_row("time", fmt::format("{}, {:.0f} rows/s", describe_seconds(result.seconds), rate));
  print_row("exchange", fmt::format("{:.1f}% of the step; waiting for input {:.1f}%", 100 * result.share_exchange,
                                    100 * result.share_input));
  if (result.evaluation)
    print_row("test", fmt::format("top-1 {:.2f}%, loss {:.4f}, on {} rows", 100 * result.evaluation->top1,
                                  result.evaluation->loss, result.evaluation->rows));
  if (!options.weights.empty()) print_row("weights", options.weights.string());
  if (!result.digest.empty()) print_row("digest", result.digest);
}

void run(const TrainArguments& arguments, int& status) {
  if (arguments.quiet) log::set_level(log::Level::warning);
  const StopSignals signals;
  const TrainOptions options = options_of(arguments);
  std::optional<MetricsFile> metrics;
  if (!arguments.metrics.empty()) metrics.emplace(arguments.metrics);
  std::optional<Progress> progress;
  if (!arguments.quiet && !arguments.no_progress) progress.emplace(terminal_width());

  Listener listener(progress, metrics);
  const RunResult result = train(options, listener, signals.stop());
  progress.reset();
  if (arguments.json) {
    std::cout << json_line(summary_of(options, result)) << '\n';
  } else {
    print_summary(options, result);
  }
  if (metrics) metrics->ended(summary_of(options, result));
  if (result.stopped) log::warning("stopped after {} steps, before the run's end", result.steps);
  if (result.stopped || (metrics && metrics->failed())) status = 1;
}

}  // namespace

void add_train(CLI::App& parent, int& status) {
  CLI::App* app = parent.add_subcommand("train", "Train a model on several replicas");
  app->footer(
      "Ctrl-C or SIGTERM ends the run after the step under way: weights are written, nothing is evaluated, and\n"
      "the exit status is 1. Once more ends it at once.");
  const auto arguments = std::make_shared<TrainArguments>();
  declare_options(*app, *arguments);
  app->callback([arguments, &status] { run(*arguments, status); });
}

}  // namespace sumpter::cli
