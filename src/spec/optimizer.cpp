#include "spec/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "spec/names.h"

namespace sumpter {
namespace {

constexpr std::array kOptimizers = {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw};
constexpr std::array kSchedules = {ScheduleKind::constant, ScheduleKind::step, ScheduleKind::cosine};

// NaN fails every comparison, so that it is refused too.
void require_not_negative(std::string_view key, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    raise<RequestError>("{}: {} is not a finite number of 0 or more", key, value);
}

void require_beta(std::string_view key, double value) {
  if (!(value >= 0 && value < 1)) raise<RequestError>("{}: {} is out of range, which is 0 to below 1", key, value);
}

}  // namespace

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::adam:
      return "adam";
    case OptimizerKind::adamw:
      return "adamw";
  }
  return "?";
}

std::string_view name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::step:
      return "step";
    case ScheduleKind::cosine:
      return "cosine";
  }
  return "?";
}

OptimizerKind parse_optimizer(std::string_view text, std::string_view what) {
  return parse_name<OptimizerKind>(text, what, kOptimizers);
}

ScheduleKind parse_schedule(std::string_view text, std::string_view what) {
  return parse_name<ScheduleKind>(text, what, kSchedules);
}

void validate(const OptimizerOptions& options) {
  require_not_negative("learning_rate", options.learning_rate);
  require_not_negative("momentum", options.momentum);
  if (options.nesterov && options.kind != OptimizerKind::sgd)
    raise<RequestError>("nesterov: {} has none; only sgd has", name_of(options.kind));
  if (options.nesterov && options.momentum == 0)
    raise<RequestError>("nesterov: it needs a momentum above 0, which is 0 here");
  require_not_negative("weight_decay", options.weight_decay);
  require_beta("beta1", options.beta1);
  require_beta("beta2", options.beta2);
  require_not_negative("epsilon", options.epsilon);
  require_not_negative("clip_norm", options.clip_norm);
}

void validate(const Schedule& schedule) {
  if (schedule.kind == ScheduleKind::step && schedule.every == 0)
    raise<RequestError>("every: a step schedule needs the number of steps after which the rate falls, at least 1");
  if (schedule.kind == ScheduleKind::cosine && schedule.steps == 0)
    raise<RequestError>("steps: a cosine schedule needs the number of steps of the run, at least 1");
  if (!(schedule.gamma > 0) || !std::isfinite(schedule.gamma))
    raise<RequestError>("gamma: {} is not a finite number above 0", schedule.gamma);
  if (!(schedule.least >= 0 && schedule.least <= 1))
    raise<RequestError>("least: {} is out of range, which is 0 to 1", schedule.least);
}

double Schedule::factor(std::uint64_t step) const {
  double value = 1;
  if (kind == ScheduleKind::step) {
    const std::uint64_t drops = step / every;
    value = std::pow(gamma, static_cast<double>(drops));
  }
  if (kind == ScheduleKind::cosine) {
    const double done = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    value = least + (1 - least) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
  if (step < warmup) value *= static_cast<double>(step + 1) / (static_cast<double>(warmup) + 1);
  return value;
}

}  // namespace sumpter
