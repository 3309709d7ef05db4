// The file of `--metrics`: one JSON object a line for each step and evaluation, and one for the end of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "sumpter/train.h"
#include "train/catalogue.h"

namespace sumpter::cli {

// One line of JSON. Bytes that are not UTF-8 (in a path) become U+FFFD.
std::string json_line(const nlohmann::ordered_json& value);

class MetricsFile {
 public:
  // Lines that are there stay until began(). Throws RequestError when the file cannot be made.
  explicit MetricsFile(const std::filesystem::path& file);

  // The run has begun with this step: lines of a run before it stay where it goes on from a checkpoint, but for those
  // of later steps and what is no whole line.
  void began(std::uint64_t first_step);

  void stepped(const StepReport& report);
  void evaluated(const Evaluation& evaluation);
  void saved(const std::filesystem::path& directory, std::uint64_t steps);
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
nlohmann::ordered_json summary_of(const ModelSpec& model, const RunOptions& options, const RunResult& result);

}  // namespace sumpter::cli
