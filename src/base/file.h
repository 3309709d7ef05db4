// Small files: read whole, written so that either the old or the new content is there.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sumpter {

// Throws SystemError naming the file.
std::string read_file(const std::filesystem::path& file);

// Writes to a temporary file in the same directory, syncs it and renames it over `file`; the old file stays whole when
// anything fails. Throws SystemError naming the file.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);
// The same for a content that lies in several parts.
void write_file_atomically(const std::filesystem::path& file, std::span<const std::string_view> parts);

}  // namespace sumpter
