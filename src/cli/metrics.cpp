#include "cli/metrics.h"

#include <cerrno>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "spec/plan.h"

namespace sumpter::cli {
namespace {

nlohmann::ordered_json fields_of(const Evaluation& evaluation) {
  return {{"step", evaluation.step},
          {"epoch", evaluation.epoch},
          {"rows", evaluation.rows},
          {"loss", evaluation.loss},
          {"top1", evaluation.top1}};
}

// Of a run that goes on with this step: a step's line counts from 0, an evaluation's and a checkpoint's tell steps
// done.
bool is_before(const std::string& line, std::uint64_t first_step) {
  const nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return false;
  if (value.value("event", "") == "step") return value.value("step", first_step) < first_step;
  const char* key = value.contains("steps") ? "steps" : "step";
  return value.value(key, first_step) <= first_step;
}

}  // namespace

std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

MetricsFile::MetricsFile(const std::filesystem::path& file) : file_(file), out_(file, std::ios::app) {
  if (!out_) raise<RequestError>("--metrics {}: cannot be written: {}", file.string(), errno_text());
}

void MetricsFile::began(std::uint64_t first_step) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file_, ignored)) return;
  std::string kept;
  if (first_step > 0) {
    std::istringstream lines(read_file(file_));
    for (std::string line; std::getline(lines, line) && !lines.eof();)
      if (is_before(line, first_step)) kept += line + '\n';
  }
  std::filesystem::resize_file(file_, 0, ignored);
  out_ << kept << std::flush;
}

void MetricsFile::stepped(const StepReport& report) {
  write({{"event", "step"},
         {"step", report.step},
         {"epoch", report.epoch},
         {"rows", report.rows},
         {"loss", report.loss},
         {"learning_rate", report.learning_rate},
         {"gradient_norm", report.gradient_norm},
         {"seconds", report.seconds},
         {"seconds_exchange", report.seconds_exchange},
         {"seconds_input", report.seconds_input}});
}

void MetricsFile::evaluated(const Evaluation& evaluation) {
  nlohmann::ordered_json line = {{"event", "evaluation"}};
  line.update(fields_of(evaluation));
  write(line);
}

void MetricsFile::saved(const std::filesystem::path& directory, std::uint64_t steps) {
  write({{"event", "checkpoint"}, {"steps", steps}, {"directory", directory.string()}});
}

void MetricsFile::ended(const nlohmann::ordered_json& summary) {
  nlohmann::ordered_json line = {{"event", "end"}};
  line.update(summary);
  write(line);
}

void MetricsFile::write(const nlohmann::ordered_json& line) {
  if (closed_) return;
  errno = 0;
  out_ << json_line(line) << '\n' << std::flush;
  if (out_) return;
  closed_ = true;
  if (errno == EPIPE) return;
  failed_ = true;
  log::warning("--metrics {}: cannot be written: {}; training goes on without", file_.string(), errno_text());
}

nlohmann::ordered_json summary_of(const ModelSpec& model, const RunOptions& options, const RunResult& result) {
  const Footprint& memory = result.memory;
  nlohmann::ordered_json summary = {{"model", model.name},
                                    {"parameters", result.parameters},
                                    {"steps", result.steps},
                                    {"first_step", result.first_step},
                                    {"rows", result.rows},
                                    {"batch_size", options.batch_size},
                                    {"seed", options.seed},
                                    {"loss", result.loss},
                                    {"stopped", result.stopped},
                                    {"seconds", result.seconds},
                                    {"share_exchange", result.share_exchange},
                                    {"share_input", result.share_input},
                                    {"chunks_per_step", result.chunks_per_step},
                                    {"chunks", result.chunks},
                                    {"pieces", result.pieces},
                                    {"bytes", result.bytes},
                                    {"pieces_of_replicas", result.pieces_of_replicas},
                                    {"pieces_of_reducers", result.pieces_of_reducers},
                                    {"most_batches_ready", result.most_batches_ready},
                                    {"overflows", result.overflows},
                                    {"checkpoints", result.checkpoints},
                                    {"checkpoints_failed", result.checkpoints_failed},
                                    {"memory",
                                     {{"parameters", memory.parameters},
                                      {"gradients", memory.gradients},
                                      {"optimizer", memory.optimizer},
                                      {"feedback", memory.feedback},
                                      {"activations", memory.activations.value_or(0)},
                                      {"shared", memory.shared},
                                      {"input", memory.input},
                                      {"arena", memory.arena},
                                      {"replica", memory.of_replica()},
                                      {"all", memory.all()},
                                      {"first_step", result.step_memory}}},
                                    {"update", name_of(options.plan.update)},
                                    {"plan", nlohmann::ordered_json::parse(to_json(options.plan))}};
  if (result.evaluation) summary["evaluation"] = fields_of(*result.evaluation);
  if (result.best) summary["best"] = fields_of(*result.best);
  if (!result.digest.empty()) summary["digest"] = result.digest;
  if (!options.weights.empty()) summary["weights"] = options.weights.string();
  if (!options.checkpoint.directory.empty()) summary["checkpoint"] = options.checkpoint.directory.string();
  return summary;
}

}  // namespace sumpter::cli
