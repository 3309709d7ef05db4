#include "spec/plan.h"

#include <array>
#include <charconv>

#include "base/file.h"
#include "base/units.h"
#include "spec/json_reader.h"
#include "spec/names.h"

namespace sumpter {
namespace {

constexpr int kFormat = 1;
constexpr std::size_t kMinPiece = 64;
constexpr std::size_t kMaxPiece = std::size_t{16} << 20;

constexpr std::array kRoutes = {Route::host};
constexpr std::array kUpdates = {Update::device, Update::host};
constexpr std::array kWireFormats = {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8};

}  // namespace

std::string_view name_of(Route) { return "host"; }
std::string_view name_of(Update update) { return update == Update::device ? "device" : "host"; }

ChunkRule parse_chunk_rule(std::string_view text, std::string_view what) {
  if (text == "all") return {ChunkRule::Kind::all, 0};
  for (const std::string_view suffix : {"layers", "layer"}) {
    if (!text.ends_with(suffix)) continue;
    const std::string_view digits = text.substr(0, text.size() - suffix.size());
    std::size_t layers = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layers);
    if (error != std::errc() || rest != digits.data() + digits.size() || layers == 0)
      raise<RequestError>("{}: '{}' is not a number of layers; write for example 2layers", what, text);
    return {ChunkRule::Kind::layers, layers};
  }
  const bool size_like = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (!size_like)
    raise<RequestError>("{}: '{}' is neither a size (1MiB), a number of layers (2layers) nor all", what, text);
  const std::size_t bytes = parse_bytes(text, what);
  if (bytes == 0)
    raise<RequestError>("{}: a chunk of 0 bytes holds nothing; the smallest is one layer (1layers)", what);
  return {ChunkRule::Kind::bytes, bytes};
}

std::string to_string(const ChunkRule& rule) {
  switch (rule.kind) {
    case ChunkRule::Kind::bytes:
      return format_bytes(rule.value);
    case ChunkRule::Kind::layers:
      return fmt::format("{}layers", rule.value);
    case ChunkRule::Kind::all:
      return "all";
  }
  return "?";
}

Route parse_route(std::string_view text, std::string_view what) { return parse_name<Route>(text, what, kRoutes); }
Update parse_update(std::string_view text, std::string_view what) { return parse_name<Update>(text, what, kUpdates); }
WireFormat parse_wire_format(std::string_view text, std::string_view what) {
  return parse_name<WireFormat>(text, what, kWireFormats);
}

void validate(const Plan& plan) {
  require_range("replicas", plan.replicas, 1, kMaxReplicas);
  if (plan.chunk.kind != ChunkRule::Kind::all && plan.chunk.value == 0) raise<RequestError>("chunk: 0 holds nothing");
  if (plan.piece < kMinPiece || plan.piece > kMaxPiece || plan.piece % kMinPiece != 0)
    raise<RequestError>("piece: {} is not a multiple of 64 bytes from 64B to 16MiB", format_bytes(plan.piece));
  require_range("preload", plan.preload, 0, kMaxPreload);
  require_range("reducers", plan.reducers, 0, kMaxReducers);
  require_range("accumulate", plan.accumulate, 1, kMaxAccumulate);
  if (plan.parameter_wire != WireFormat::f32 && plan.update != Update::host)
    raise<RequestError>("parameter_wire: {} needs update host: with update device no parameters travel",
                        name_of(plan.parameter_wire));
  if (plan.error_feedback && plan.gradient_wire == WireFormat::f32)
    raise<RequestError>("error_feedback: it needs a gradient_wire that rounds; f32 loses nothing");
}

Plan plan_from_json(std::string_view text, std::string_view origin) {
  JsonReader reader = JsonReader::parse(text, origin);
  reader.integer("format", kFormat, kFormat);
  Plan plan;
  plan.replicas = static_cast<int>(reader.integer("replicas", 1, kMaxReplicas));
  plan.route = parse_route(reader.text("route"), reader.where("route"));
  plan.chunk = parse_chunk_rule(reader.text("chunk"), reader.where("chunk"));
  plan.piece = parse_bytes(reader.text("piece"), reader.where("piece"));
  plan.gradient_wire = parse_wire_format(reader.text("gradient_wire"), reader.where("gradient_wire"));
  plan.parameter_wire = parse_wire_format(reader.text("parameter_wire"), reader.where("parameter_wire"));
  plan.error_feedback = reader.boolean("error_feedback");
  plan.update = parse_update(reader.text("update"), reader.where("update"));
  plan.preload = static_cast<int>(reader.integer("preload", 0, kMaxPreload));
  plan.reducers = static_cast<int>(reader.integer("reducers", 0, kMaxReducers));
  plan.accumulate = static_cast<int>(reader.integer("accumulate", 1, kMaxAccumulate));
  plan.clip = reader.boolean("clip");
  reader.finish();
  try {
    validate(plan);
  } catch (const RequestError& error) {
    raise<RequestError>("{}: key {}", origin, error.what());
  }
  return plan;
}

std::string to_json(const Plan& plan) {
  const nlohmann::ordered_json object = {{"format", kFormat},
                                         {"replicas", plan.replicas},
                                         {"route", name_of(plan.route)},
                                         {"chunk", to_string(plan.chunk)},
                                         {"piece", format_bytes(plan.piece)},
                                         {"gradient_wire", name_of(plan.gradient_wire)},
                                         {"parameter_wire", name_of(plan.parameter_wire)},
                                         {"error_feedback", plan.error_feedback},
                                         {"update", name_of(plan.update)},
                                         {"preload", plan.preload},
                                         {"reducers", plan.reducers},
                                         {"accumulate", plan.accumulate},
                                         {"clip", plan.clip}};
  return object.dump(2) + "\n";
}

Plan read_plan(const std::filesystem::path& file) { return plan_from_json(read_file(file), file.string()); }

void write_plan(const Plan& plan, const std::filesystem::path& file) { write_file_atomically(file, to_json(plan)); }

}  // namespace sumpter
