// Reading, checking and writing plans (sumpter/spec.h). As a file a plan is JSON with a `format` number.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "sumpter/spec.h"

namespace sumpter {

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
