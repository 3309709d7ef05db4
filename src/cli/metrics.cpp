#include "cli/metrics.h"

#include <cerrno>

#include "base/error.h"
#include "base/log.h"

namespace sumpter::cli {
namespace {

nlohmann::ordered_json fields_of(const Evaluation& evaluation) {
  return {{"step", evaluation.step},
          {"epoch", evaluation.epoch},
          {"rows", evaluation.rows},
          {"loss", evaluation.loss},
          {"top1", evaluation.top1}};
}

}  // namespace

std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

MetricsFile::MetricsFile(const std::filesystem::path& file) : file_(file), out_(file) {
  if (!out_) raise<RequestError>("--metrics {}: cannot be written: {}", file.string(), errno_text());
}

void MetricsFile::stepped(const StepReport& report) {
  write({{"event", "step"},
         {"step", report.step},
         {"epoch", report.epoch},
         {"rows", report.rows},
         {"loss", report.loss},
         {"seconds", report.seconds},
         {"seconds_exchange", report.seconds_exchange},
         {"seconds_input", report.seconds_input}});
}

void MetricsFile::evaluated(const Evaluation& evaluation) {
  nlohmann::ordered_json line = {{"event", "evaluation"}};
  line.update(fields_of(evaluation));
  write(line);
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

nlohmann::ordered_json summary_of(const TrainOptions& options, const RunResult& result) {
  nlohmann::ordered_json summary = {{"model", options.model.name},
                                    {"parameters", result.parameters},
                                    {"steps", result.steps},
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
                                    {"update", name_of(options.plan.update)},
                                    {"plan", nlohmann::ordered_json::parse(to_json(options.plan))}};
  if (result.evaluation) summary["evaluation"] = fields_of(*result.evaluation);
  if (!result.digest.empty()) summary["digest"] = result.digest;
  if (!options.weights.empty()) summary["weights"] = options.weights.string();
  return summary;
}

}  // namespace sumpter::cli
