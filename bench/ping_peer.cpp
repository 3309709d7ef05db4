// `sumpter bench ping`: the cache line's trips of bench/ping.h as a peer (bench/peer.h has the protocol), for benches
// that are written in Python. A request is `trip REPEATS`.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "base/error.h"
#include "bench/bench.h"
#include "bench/ping.h"

namespace sumpter::bench {
namespace {

void serve_pings() {
  CacheLinePing ping;
  std::cout << "ready" << std::endl;
  std::string request;
  int trips = 0;
  while (std::cin >> request >> trips) {
    if (request != "trip" || trips < 2) raise<RequestError>("'{} {}' is not 'trip' and 2 or more", request, trips);
    std::cout << fmt::format("{:.12f}", ping.measure(trips / 2) * trips) << std::endl;
  }
}

}  // namespace

void add_bench_ping(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("ping", "A cache line's trips between two cores, for other benches");
  app->group("");  // not for people: it talks as bench/peer.h says
  app->callback(serve_pings);
}

}  // namespace sumpter::bench
