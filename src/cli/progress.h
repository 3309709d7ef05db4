// Progress for people, on standard error: one line that is rewritten on a terminal, a plain line now and then
// elsewhere. Time is what the reports say of it.
#pragma once

#include <cstdint>
#include <string>

#include "sumpter/train.h"

namespace sumpter::cli {

class Progress {
 public:
  // `width`: columns of the terminal; 0: no terminal.
  explicit Progress(int width) : width_(width) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void began(const RunStart& start);
  void stepped(const StepReport& report);
  void evaluated(const Evaluation& evaluation);
  // Removes the line of a terminal.
  void clear();

 private:
  struct Window {  // the steps since the last line
    std::uint64_t steps = 0;
    std::size_t rows = 0;
    double loss = 0, seconds = 0, seconds_exchange = 0, seconds_input = 0;
  };
  std::string line(const StepReport& last) const;
  void show(const std::string& text);

  int width_;
  std::uint64_t steps_ = 0, steps_per_epoch_ = 1, first_step_ = 0;
  double seconds_ = 0;  // of all steps so far
  bool shown_ = false;  // a line stands on the terminal
  Window window_;
};

// Columns of the terminal that standard error is, 0 when it is none.
int terminal_width();

}  // namespace sumpter::cli
