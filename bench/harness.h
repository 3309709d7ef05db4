// The benchmark harness. What is compared takes turns, many rounds in one run, so that a machine that slows down slows
// all of them; figures are medians over the rounds, and ratios are paired: each round's times are divided by each other
// and the median of these quotients is given, which noise that lasts longer than a round does not touch.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sumpter::bench {

// Seconds since some fixed moment.
using TimeSource = std::function<double()>;
double steady_seconds();

// One of the things that are compared. Give either `run`, which the harness times in the calling thread, or `round`,
// which times itself (several members, another process).
struct Contender {
  std::string name = {};
  std::size_t bytes = 0;                  // what is done is done to this many bytes; 0 where that has no meaning
  std::vector<std::string> against = {};  // contenders of the same comparison; each gives one ratio

  // Before each run and not timed: rewrites buffers, as a backward pass does. May be empty.
  std::function<void()> prepare = {};
  std::function<void()> run = {};
  // Does both `repeats` times (1 to kMaximumRepeats); returns the seconds of all runs together, preparations left out.
  std::function<double(int repeats)> round = {};
};

inline constexpr int kMaximumRepeats = 1000;

struct CompareOptions {
  double seconds = 3.0;  // for a whole comparison, preparations included; at least minimum_rounds are done
  int warm_up = 2;       // rounds that are dropped
  int minimum_rounds = 5;
  int maximum_rounds = 201;
  double turn_seconds = 2e-3;  // what is shorter is repeated within its turn until it takes about as long
  TimeSource now = steady_seconds;
  // Called before every turn: seconds of a cache line's one-way trip (bench/ping.h). May be empty.
  std::function<double()> ping = {};
};

// A contender's result against one other, or on its own (`against` empty).
struct Figure {
  std::string name = {};
  std::size_t bytes = 0;
  double seconds = 0;  // median over the rounds of the seconds of one run
  double spread = 0;   // half the interquartile range of those, over their median
  std::string against = {};
  std::optional<double> ratio = {};  // median over the rounds of this contender's seconds over the other's
  std::optional<double> ping = {};   // median of the pings measured before this contender's turns
  int rounds = 0;
};

// Runs all contenders in turns; every other round goes backwards, and after two rounds another one is first, so that
// nobody always follows the same one. One figure for each contender and each entry of its `against`, in order. Blocks
// for about options.seconds. Throws RequestError for no contenders, a name that is taken, or an `against` that is
// unknown, and whatever a contender throws.
std::vector<Figure> compare(const std::vector<Contender>& contenders, const CompareOptions& options);

// The value below which the fraction lies, interpolated between neighbours: quantile({1, 2, 4}, 0.5) is 2. Values need
// no order; there is at least one.
double quantile(std::vector<double> values, double fraction);
double median(std::vector<double> values);
// Half the interquartile range over the median; 0 for a median of 0.
double relative_spread(const std::vector<double>& values);

// Prints figures as they come: a table for people, or with `json` one object a line with the keys name, bytes, seconds,
// spread, against, ratio, ping; null stands where there is none.
class Report {
 public:
  struct Column {  // one more for people
    std::string title;
    std::function<std::string(const Figure&)> text;
  };
  Report(std::ostream& out, bool json, std::vector<Column> columns = {});
  void add(const std::vector<Figure>& figures);

 private:
  void print_row(const std::vector<std::string>& cells);

  std::ostream& out_;
  bool json_;
  std::vector<Column> columns_;
  bool begun_ = false;
};

// What every bench has: --json and --seconds.
struct BenchOptions {
  bool json = false;
  double seconds = 3.0;
  // Comparison options with these values and a ping, which keeps a (sleeping) thread as long as a copy is alive.
  CompareOptions compare_options() const;
};
void add_bench_options(CLI::App& app, BenchOptions& options);
// Float32 elements of each size that --sizes gives ("64KiB"). Throws RequestError where one is not a positive multiple
// of four bytes, or there is none.
std::vector<std::size_t> parse_counts(const std::vector<std::string>& sizes);

}  // namespace sumpter::bench
