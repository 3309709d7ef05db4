// The file of `--metrics`: one JSON object a line for each step and evaluation, and one for the end of the run.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "train/train.h"

namespace sumpter::cli {

// One line of JSON. Bytes that are not UTF-8 (in a path) become U+FFFD.
std::string json_line(const nlohmann::ordered_json& value);

class MetricsFile {
 public:
  // Throws RequestError when the file cannot be made.
  explicit MetricsFile(const std::filesystem::path& file);

  void stepped(const StepReport& report);
  void evaluated(const Evaluation& evaluation);
  void ended(const nlohmann::ordered_json& summary);

  // True once a line was lost, other than to a reader who has gone away: said when it happened, nothing is written
  // since.
  bool failed() const { return failed_; }

 private:
  void write(const nlohmann::ordered_json& line);

  std::filesystem::path file_;
  std::ofstream out_;
  bool closed_ = false;
  bool failed_ = false;
};

// The result, the counters that show what each option did, and the plan.
nlohmann::ordered_json summary_of(const TrainOptions& options, const RunResult& result);

}  // namespace sumpter::cli
