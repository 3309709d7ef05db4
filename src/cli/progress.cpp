#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

namespace sumpter::cli {
namespace {

constexpr double kTerminalSeconds = 0.1;
constexpr double kPlainSeconds = 5;
constexpr int kUsualWidth = 80;

// Progress is worth no error: a terminal that is gone shows nothing.
void write_to_terminal(std::string_view text) {
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void Progress::began(const RunStart& start) {
  steps_ = start.steps;
  steps_per_epoch_ = start.steps_per_epoch;
  first_step_ = start.first_step;
}

void Progress::stepped(const StepReport& report) {
  seconds_ += report.seconds;
  ++window_.steps;
  window_.rows += report.rows;
  window_.loss += report.loss;
  window_.seconds += report.seconds;
  window_.seconds_exchange += report.seconds_exchange;
  window_.seconds_input += report.seconds_input;
  if (window_.seconds < (width_ > 0 ? kTerminalSeconds : kPlainSeconds)) return;
  show(line(report));
  window_ = {};
}

std::string Progress::line(const StepReport& last) const {
  const auto done = static_cast<double>(last.step + 1 - first_step_);
  const double left = seconds_ / done * static_cast<double>(steps_ - last.step - 1);
  const auto share = [&](double seconds) { return 100 * seconds / window_.seconds; };
  return fmt::format("step {}/{} epoch {}/{} | loss {:.4f} | {:.0f} rows/s | {} left | exchange {:.0f}% input {:.0f}%",
                     last.step + 1, steps_, last.epoch + 1, (steps_ + steps_per_epoch_ - 1) / steps_per_epoch_,
                     window_.loss / static_cast<double>(window_.steps),
                     static_cast<double>(window_.rows) / window_.seconds, describe_seconds(left),
                     share(window_.seconds_exchange), share(window_.seconds_input));
}

void Progress::show(const std::string& text) {
  if (width_ <= 0) {
    log::info("{}", text);
    return;
  }
  // A line that fills the last column makes some terminals begin a new one.
  write_to_terminal("\r\x1b[K" + text.substr(0, static_cast<std::size_t>(std::max(width_ - 1, 1))));
  shown_ = true;
}

void Progress::evaluated(const Evaluation& evaluation) {
  clear();
  log::info("epoch {} | step {} | test loss {:.4f} | top-1 {:.2f}%", evaluation.epoch + 1, evaluation.step,
            evaluation.loss, 100 * evaluation.top1);
}

void Progress::clear() {
  if (shown_) write_to_terminal("\r\x1b[K");
  shown_ = false;
}

int terminal_width() {
  if (isatty(STDERR_FILENO) == 0) return 0;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return size.ws_col;
}

}  // namespace sumpter::cli
