#include "bench/harness.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "bench/ping.h"

namespace sumpter::bench {

double steady_seconds() { return Seconds(Clock::now().time_since_epoch()).count(); }

double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double relative_spread(const std::vector<double>& values) {
  const double middle = median(values);
  return middle == 0 ? 0 : 0.5 * (quantile(values, 0.75) - quantile(values, 0.25)) / middle;
}

namespace {

std::size_t index_of(const std::vector<Contender>& contenders, const std::string& name) {
  const auto found =
      std::find_if(contenders.begin(), contenders.end(), [&](const Contender& c) { return c.name == name; });
  return static_cast<std::size_t>(found - contenders.begin());
}

void check(const std::vector<Contender>& contenders) {
  if (contenders.empty()) raise<RequestError>("a comparison was asked for with nothing to compare");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    if (index_of(contenders, contender.name) != i) {
      raise<RequestError>("two contenders are named '{}'; give each a name of its own", contender.name);
    }
    if (!contender.run == !contender.round) {
      raise<RequestError>("contender '{}' needs either run or round, and not both", contender.name);
    }
    for (const std::string& other : contender.against) {
      if (index_of(contenders, other) == contenders.size()) {
        raise<RequestError>("'{}' is to be compared with '{}', which does not take part", contender.name, other);
      }
    }
  }
}

double take_turn(const Contender& contender, int repeats, const TimeSource& now) {
  if (contender.round) return contender.round(repeats);
  if (!contender.prepare) {
    const double start = now();
    for (int i = 0; i < repeats; ++i) contender.run();
    return now() - start;
  }
  double seconds = 0;
  for (int i = 0; i < repeats; ++i) {
    contender.prepare();
    const double start = now();
    contender.run();
    seconds += now() - start;
  }
  return seconds;
}

struct Measured {
  int repeats = 1;
  std::vector<double> seconds;  // of one run, by round
  std::vector<double> pings;
};

// Contenders in the order of a round's turns.
std::vector<std::size_t> turns_of(int round, std::size_t contenders) {
  std::vector<std::size_t> turns(contenders);
  for (std::size_t i = 0; i < contenders; ++i) turns[i] = (i + static_cast<std::size_t>(round / 2)) % contenders;
  if (round % 2 != 0) std::reverse(turns.begin(), turns.end());
  return turns;
}

int repeats_for(double seconds_of_one, double turn_seconds) {
  if (seconds_of_one <= 0) return kMaximumRepeats;
  return static_cast<int>(std::clamp(turn_seconds / seconds_of_one, 1.0, double{kMaximumRepeats}));
}

std::vector<Measured> measure(const std::vector<Contender>& contenders, const CompareOptions& options) {
  std::vector<Measured> measured(contenders.size());
  const double start = options.now();
  for (int round = 0; round < options.warm_up; ++round) {
    for (const std::size_t i : turns_of(round, contenders.size())) {
      const double seconds = take_turn(contenders[i], measured[i].repeats, options.now) / measured[i].repeats;
      measured[i].repeats = repeats_for(seconds, options.turn_seconds);
    }
  }
  for (int round = 0; round < options.maximum_rounds; ++round) {
    if (round >= options.minimum_rounds && options.now() - start >= options.seconds) break;
    for (const std::size_t i : turns_of(round, contenders.size())) {
      if (options.ping) measured[i].pings.push_back(options.ping());
      const double seconds = take_turn(contenders[i], measured[i].repeats, options.now);
      measured[i].seconds.push_back(seconds / measured[i].repeats);
    }
  }
  return measured;
}

double paired_ratio(const std::vector<double>& seconds, const std::vector<double>& others) {
  std::vector<double> ratios(seconds.size());
  std::transform(seconds.begin(), seconds.end(), others.begin(), ratios.begin(), std::divides<>());
  return median(std::move(ratios));
}

}  // namespace

std::vector<Figure> compare(const std::vector<Contender>& contenders, const CompareOptions& options) {
  check(contenders);
  if (options.minimum_rounds < 1 || options.maximum_rounds < options.minimum_rounds) {
    raise<RequestError>("{} to {} rounds were asked for; at least 1, and no more at least than at most",
                        options.minimum_rounds, options.maximum_rounds);
  }
  const std::vector<Measured> measured = measure(contenders, options);

  std::vector<Figure> figures;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Figure figure{.name = contenders[i].name,
                  .bytes = contenders[i].bytes,
                  .seconds = median(measured[i].seconds),
                  .spread = relative_spread(measured[i].seconds),
                  .rounds = static_cast<int>(measured[i].seconds.size())};
    if (!measured[i].pings.empty()) figure.ping = median(measured[i].pings);
    if (contenders[i].against.empty()) figures.push_back(figure);
    for (const std::string& other : contenders[i].against) {
      figure.against = other;
      figure.ratio = paired_ratio(measured[i].seconds, measured[index_of(contenders, other)].seconds);
      figures.push_back(figure);
    }
  }
  return figures;
}

CompareOptions BenchOptions::compare_options() const {
  auto ping = std::make_shared<CacheLinePing>();
  return {.seconds = seconds, .ping = [ping] { return ping->measure(); }};
}

}  // namespace sumpter::bench
