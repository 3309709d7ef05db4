// Plan: all the decisions for one run. The runtime executes it, the simulator times it, the cost model estimates it; no
// reader has an option of its own that the others cannot see. As a file it is JSON with a `format` number.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "sumpter/spec.h"

namespace sumpter {

enum class Route { host };
enum class Update { device, host };

// Where chunks end, counted over layers in the order in which backward finishes them: at the first layer that reaches
// `value` bytes, after every `value` layers, or only at the end.
struct ChunkRule {
  enum class Kind { bytes, layers, all };
  Kind kind = Kind::bytes;
  std::size_t value = std::size_t{1} << 20;
  bool operator==(const ChunkRule&) const = default;
};

struct Plan {
  int replicas = 1;
  Route route = Route::host;
  ChunkRule chunk = {};
  std::size_t piece = std::size_t{128} << 10;  // bytes of float32
  WireFormat gradient_wire = WireFormat::f32;
  WireFormat parameter_wire = WireFormat::f32;
  Update update = Update::device;
  int preload = 2;
  int reducers = 0;
  bool operator==(const Plan&) const = default;
};

inline constexpr int kMaxReplicas = 64;
inline constexpr int kMaxReducers = 64;
inline constexpr int kMaxPreload = 1024;  // batches

std::string_view name_of(Route route);
std::string_view name_of(Update update);

// From and to "64KiB", "2layers", "all". Throws RequestError, naming `what`.
ChunkRule parse_chunk_rule(std::string_view text, std::string_view what);
std::string to_string(const ChunkRule& rule);

// Each throws RequestError that names `what` and the values there are.
Route parse_route(std::string_view text, std::string_view what);
Update parse_update(std::string_view text, std::string_view what);
WireFormat parse_wire_format(std::string_view text, std::string_view what);

// Throws RequestError naming the first key whose value is out of range.
void validate(const Plan& plan);

// Throws RequestError naming the file and the key that is missing, unknown, of a wrong type or out of range.
Plan plan_from_json(std::string_view text, std::string_view origin);
std::string to_json(const Plan& plan);
Plan read_plan(const std::filesystem::path& file);
// Written to a temporary file beside it and renamed. Throws SystemError.
void write_plan(const Plan& plan, const std::filesystem::path& file);

}  // namespace sumpter
