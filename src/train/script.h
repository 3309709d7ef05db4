// Models that come as a TorchScript file (torch.jit.save), with the parameters that are in it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "train/network.h"

namespace sumpter {

// A message of torch without where in its sources it comes from, which follows the first line; one of a script without
// the traceback, which comes before the last.
std::string in_one_line(std::string_view text);

// The file, loaded. Its forward takes the values of Inputs and returns scores, [rows, classes] or
// [rows, positions, classes]. The gate is asked once for all parameters. Throws DataError where the file is not
// TorchScript, RequestError where its parameters are not float32, and as lay_out.
std::unique_ptr<Network> load_script(const std::filesystem::path& path, const NetworkOptions& options);

// Whether forward draws random numbers in training mode (dropout, rand, normal, ...), which then come from torch's
// default generator, whose numbers depend on how threads take turns. Throws DataError.
bool draws_random_numbers(const std::filesystem::path& path);

}  // namespace sumpter
