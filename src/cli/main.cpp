#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"

namespace sumpter::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongRequest = 2;

// Parses, and runs the chosen subcommand.
int run(int argc, char** argv) {
  CLI::App app("Trains PyTorch models on several replicas of one machine, whose host sums the gradients.", "sumpter");
  app.set_version_flag("--version", "sumpter " SUMPTER_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("sumpter: error: {} (--help lists what there is)\n", error.what());
  });
  app.footer("Exit status: 0 done, 1 failed or stopped while running, 2 wrong request.");
  int status = 0;
  add_train(app, status);
  add_models(app);
  add_bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongRequest;
  } catch (const RequestError& error) {
    log::error("{}", error.what());
    return kWrongRequest;
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return kFailed;
  }
  return status;
}

// A reader who has seen enough (`| head`) is a quiet end; a full disk is not.
int flush_results(int status) {
  errno = 0;
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::cout.good();
  if (written || errno == EPIPE) return status;
  log::error("standard output cannot be written: {}", errno_text());
  return kFailed;
}

// Where the caller closed a standard stream, its number would go to the next file that is opened, and that file would
// receive what is printed. It is taken here by a descriptor that refuses to be used, as a closed one does.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) std::_Exit(kFailed);
  }
}

}  // namespace
}  // namespace sumpter::cli

int main(int argc, char** argv) {
  sumpter::cli::hold_standard_streams();
  // Both come back as errors of the write itself.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return sumpter::cli::flush_results(sumpter::cli::run(argc, argv));
}
