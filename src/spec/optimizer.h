// Reading and checking the optimizer's options and the learning rate's schedule.
#pragma once

#include <string_view>

#include "sumpter/spec.h"

namespace sumpter {

// Each throws RequestError that names `what` and the values there are.
OptimizerKind parse_optimizer(std::string_view text, std::string_view what);
ScheduleKind parse_schedule(std::string_view text, std::string_view what);

// Throw RequestError naming the first key whose value is out of range. The ranges are torch.optim's.
void validate(const OptimizerOptions& options);
void validate(const Schedule& schedule);

}  // namespace sumpter
