#include "spec/json_reader.h"

#include "base/error.h"

namespace sumpter {

JsonReader JsonReader::parse(std::string_view text, std::string_view origin) {
  using nlohmann::json;
  if (text.empty()) raise<RequestError>("{}: the file is empty; expected a JSON object", origin);
  json value;
  try {
    value = json::parse(text);
  } catch (const json::parse_error& error) {
    raise<RequestError>("{}: not JSON, at byte {}; the file may be truncated", origin, error.byte);
  } catch (const json::exception& error) {  // a number that no double holds
    raise<RequestError>("{}: {}", origin, error.what());
  }
  if (!value.is_object()) raise<RequestError>("{}: expected a JSON object, found {}", origin, value.type_name());
  return JsonReader(std::move(value), origin);
}

std::string JsonReader::where(std::string_view key) const { return fmt::format("{}: key '{}'", origin_, key); }

const nlohmann::json& JsonReader::value(const std::string& key) {
  asked_.insert(key);
  const auto found = object_.find(key);
  if (found == object_.end()) raise<RequestError>("{} is missing", where(key));
  return *found;
}

std::int64_t JsonReader::integer(const std::string& key, std::int64_t low, std::int64_t high) {
  const nlohmann::json& found = value(key);
  if (!found.is_number_integer())
    raise<RequestError>("{}: expected a whole number, found {}", where(key),
                        found.is_number() ? found.dump() : found.type_name());
  const bool too_large =
      found.is_number_unsigned() && found.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (too_large || found.get<std::int64_t>() < low || found.get<std::int64_t>() > high)
    raise<RequestError>("{}: {} is out of range, which is {} to {}", where(key), found.dump(), low, high);
  return found.get<std::int64_t>();
}

std::string JsonReader::text(const std::string& key) {
  const nlohmann::json& found = value(key);
  if (!found.is_string()) raise<RequestError>("{}: expected a text, found {}", where(key), found.type_name());
  return found.get<std::string>();
}

bool JsonReader::boolean(const std::string& key) {
  const nlohmann::json& found = value(key);
  if (!found.is_boolean()) raise<RequestError>("{}: expected true or false, found {}", where(key), found.type_name());
  return found.get<bool>();
}

void JsonReader::finish() const {
  for (const auto& [key, unused] : object_.items()) {
    if (!asked_.contains(key)) raise<RequestError>("{} is unknown; remove it or correct its spelling", where(key));
  }
}

}  // namespace sumpter
