// Reading JSON objects strictly: every error names the file and the key, unknown keys are errors, numbers have ranges.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace sumpter {

// One JSON object being read. Ask for each key once, then call finish(), which refuses keys that nobody asked for.
class JsonReader {
 public:
  // Throws RequestError naming `origin` when the text is not JSON, or not an object.
  static JsonReader parse(std::string_view text, std::string_view origin);

  bool has(const std::string& key) const { return object_.contains(key); }
  // Throws RequestError naming the key when it is missing, of another type or outside [low, high].
  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high);
  std::string text(const std::string& key);
  bool boolean(const std::string& key);
  void finish() const;

  // "plan.json: key 'piece'", for messages.
  std::string where(std::string_view key) const;

 private:
  JsonReader(nlohmann::json object, std::string_view origin) : object_(std::move(object)), origin_(origin) {}
  const nlohmann::json& value(const std::string& key);

  nlohmann::json object_;
  std::string origin_;
  std::set<std::string> asked_;
};

}  // namespace sumpter
