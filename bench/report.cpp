// Figures as a table, as JSON lines, and the options by which they are asked for.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "bench/harness.h"

namespace sumpter::bench {
namespace {

constexpr int kNameWidth = 24;
constexpr int kCellWidth = 12;

std::string json_line(const Figure& figure) {
  nlohmann::ordered_json line;
  line["name"] = figure.name;
  line["bytes"] = figure.bytes != 0 ? nlohmann::ordered_json(figure.bytes) : nullptr;
  line["seconds"] = figure.seconds;
  line["spread"] = figure.spread;
  line["against"] = figure.against.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(figure.against);
  line["ratio"] = figure.ratio ? nlohmann::ordered_json(*figure.ratio) : nullptr;
  line["ping"] = figure.ping ? nlohmann::ordered_json(*figure.ping) : nullptr;
  return line.dump();
}

}  // namespace

Report::Report(std::ostream& out, bool json, std::vector<Column> columns)
    : out_(out), json_(json), columns_(std::move(columns)) {}

void Report::add(const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    if (json_) {
      out_ << json_line(figure) << '\n';
      continue;
    }
    if (!begun_) {
      std::vector<std::string> titles{"name", "bytes", "seconds", "spread", "against", "ratio", "ping", "rounds"};
      for (const Column& column : columns_) titles.push_back(column.title);
      print_row(titles);
      begun_ = true;
    }
    std::vector<std::string> cells{figure.name,
                                   figure.bytes != 0 ? describe_bytes(static_cast<double>(figure.bytes)) : "",
                                   describe_seconds(figure.seconds),
                                   fmt::format("{:.1f} %", 100 * figure.spread),
                                   figure.against,
                                   figure.ratio ? fmt::format("{:.3f}", *figure.ratio) : "",
                                   figure.ping ? describe_seconds(*figure.ping) : "",
                                   std::to_string(figure.rounds)};
    for (const Column& column : columns_) cells.push_back(column.text(figure));
    print_row(cells);
  }
  out_.flush();
}

void Report::print_row(const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:<{}}", cells.front(), kNameWidth);
  for (std::size_t i = 1; i < cells.size(); ++i) line += fmt::format(" {:>{}}", cells[i], kCellWidth);
  out_ << line << '\n';
}

void add_bench_options(CLI::App& app, BenchOptions& options) {
  app.add_flag("--json", options.json, "Print one JSON object a line instead of a table");
  app.add_option("--seconds", options.seconds, "Seconds that one comparison may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

std::vector<std::size_t> parse_counts(const std::vector<std::string>& sizes) {
  std::vector<std::size_t> counts;
  for (const std::string& size : sizes) {
    const std::size_t bytes = parse_bytes(size, "--sizes");
    if (bytes < sizeof(float) || bytes % sizeof(float) != 0) {
      raise<RequestError>("--sizes has {}; a size is a positive multiple of the {} bytes of a float32", size,
                          sizeof(float));
    }
    counts.push_back(bytes / sizeof(float));
  }
  if (counts.empty()) raise<RequestError>("--sizes is empty; give at least one, such as 16MiB");
  return counts;
}

}  // namespace sumpter::bench
