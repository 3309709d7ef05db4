// `sumpter bench kernels`: conversions, round trips, sums and the optimizers' updates on one thread, against the plain
// reference, against what memory allows, and against torch's casts where a Python that has torch is named.
#include "kernels/kernels.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/harness.h"
#include "bench/limit.h"
#include "bench/peer.h"

namespace sumpter::bench {
namespace {

constexpr std::size_t kMostInputs = 8;

struct Options {
  BenchOptions common;
  std::vector<std::string> sizes{"256KiB", "64MiB"};
  std::string python;
};

// Arrays of float32 with numbers that no format finds special; every page is touched.
class Arrays {
 public:
  Arrays(std::size_t arrays, std::size_t count) : values_(arrays, std::vector<float>(count)) {
    for (std::vector<float>& array : values_) {
      for (std::size_t i = 0; i < count; ++i) array[i] = static_cast<float>(i % 251) / 64.0F - 2.0F;
    }
  }
  float* operator[](std::size_t index) { return values_[index].data(); }

 private:
  std::vector<std::vector<float>> values_;
};

// encode and decode of each smaller format. `bytes` are those of the float32 side.
std::vector<Figure> compare_conversions(std::size_t count, Peer* torch, const CompareOptions& options) {
  Arrays arrays(3, count);
  const std::size_t bytes = count * sizeof(float);
  float* const in = arrays[0];
  float* const out = arrays[1];
  void* const encoded = arrays[2];
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name, bool torch_has_it, auto run, auto reference) {
    const std::size_t own = contenders.size();
    contenders.push_back({.name = name, .bytes = bytes, .run = std::move(run)});
    contenders.push_back({.name = name + "-reference", .bytes = bytes, .run = std::move(reference)});
    // torch into memory that is there already, and as casts are written most often: into memory of their own.
    for (const char* way : {"copy", "to"}) {
      if (torch == nullptr || !torch_has_it) continue;
      const std::string request = fmt::format("{}-{}-{}", name, way, count);
      contenders.push_back(
          {.name = fmt::format("{}-torch-{}", name, way), .bytes = bytes, .round = torch->job(request)});
    }
    for (std::size_t i = own + 1; i < contenders.size(); ++i) contenders[own].against.push_back(contenders[i].name);
  };
  for (const WireFormat format : {WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    const std::string name(name_of(format));
    const bool torch_has_it = format != WireFormat::i8;
    add(
        "encode-" + name, torch_has_it, [=] { kernels::encode(format, in, encoded, count); },
        [=] { kernels::reference::encode(format, in, encoded, count); });
    // Whichever format the array was last encoded in, as another it holds numbers too.
    add(
        "decode-" + name, torch_has_it, [=] { kernels::decode(format, encoded, out, count); },
        [=] { kernels::reference::decode(format, encoded, out, count); });
  }
  return compare(contenders, options);
}

// Sums of 2, 4 and 8 inputs, to an array of their own (`bytes` counts n reads and 1 write) and back into all inputs
// (n reads and n writes).
std::vector<Figure> compare_sums(std::size_t count, const CompareOptions& options) {
  Arrays arrays(kMostInputs + 1, count);
  std::array<float*, kMostInputs + 1> pointers;
  for (std::size_t k = 0; k < pointers.size(); ++k) pointers[k] = arrays[k];
  std::vector<Contender> contenders;
  const auto add = [&](std::size_t n, bool in_place) {
    const std::size_t outputs = in_place ? n : 1;
    const std::size_t first_output = in_place ? 0 : kMostInputs;
    const std::string suffix = fmt::format("-{}{}", n, in_place ? "-in-place" : "");
    const std::size_t bytes = (n + outputs) * count * sizeof(float);
    const auto run = [=, data = pointers] {
      std::array<kernels::SumInput, kMostInputs> inputs;
      std::array<void*, kMostInputs> results;
      // In place the mean is taken, so that values stay what they are however often it is done.
      const float divisor = in_place ? static_cast<float>(n) : 1.0F;
      for (std::size_t k = 0; k < n; ++k) inputs[k].data = data[k];
      for (std::size_t k = 0; k < outputs; ++k) results[k] = data[first_output + k];
      kernels::sum(
          {.inputs = {inputs.data(), n}, .outputs = {results.data(), outputs}, .divisor = divisor, .count = count});
    };
    contenders.push_back({.name = "sum" + suffix, .bytes = bytes, .against = {"limit" + suffix}, .run = run});
    contenders.push_back({.name = "limit" + suffix, .bytes = bytes, .run = [=, data = pointers] {
                            sum_limit({data.data(), n}, {data.data() + first_output, outputs}, 0, count);
                          }});
  };
  for (const bool in_place : {false, true}) {
    add(2, in_place);
    add(4, in_place);
    add(8, in_place);
  }
  return compare(contenders, options);
}

// Kernels that read and write whole arrays in place, each against a copy that moves as many bytes, and against its
// reference.
class AgainstCopies {
 public:
  AgainstCopies(std::size_t count, std::size_t most_arrays) : count_(count), copies_(2, count * most_arrays / 2) {}

  // `arrays` are all that are read and all that are written, of `count` float32 each.
  void add(const std::string& name, std::size_t arrays, std::function<void()> run, std::function<void()> reference) {
    const std::size_t bytes = arrays * count_ * sizeof(float);
    contenders_.push_back(
        {.name = name, .bytes = bytes, .against = {name + "-copy", name + "-reference"}, .run = std::move(run)});
    contenders_.push_back({.name = name + "-copy", .bytes = bytes, .run = [this, bytes] {
                             std::memcpy(copies_[0], copies_[1], bytes / 2);
                           }});
    contenders_.push_back({.name = name + "-reference", .bytes = bytes, .run = std::move(reference)});
  }
  std::vector<Figure> compare(const CompareOptions& options) const { return bench::compare(contenders_, options); }

 private:
  std::size_t count_;
  Arrays copies_;
  std::vector<Contender> contenders_;
};

// With error feedback: two arrays are read and written.
std::vector<Figure> compare_round_trips(std::size_t count, const CompareOptions& options) {
  constexpr std::size_t kArrays = 4;
  Arrays arrays(2, count);
  float* const values = arrays[0];
  float* const residual = arrays[1];
  AgainstCopies comparison(count, kArrays);
  for (const WireFormat format : {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    comparison.add(
        fmt::format("round-trip-{}", name_of(format)), kArrays,
        [=] { kernels::round_trip(format, values, residual, count); },
        [=] { kernels::reference::round_trip(format, values, residual, count); });
  }
  return comparison.compare(options);
}

// SGD with momentum reads three arrays and writes two, Adam reads four and writes three.
std::vector<Figure> compare_updates(std::size_t count, const CompareOptions& options) {
  Arrays arrays(4, count);
  std::fill_n(arrays[3], count, 1.0F);  // a mean of squares is not negative
  const kernels::OptimizerArrays<float> all = {arrays[0], arrays[1], arrays[2], arrays[3], count};
  AgainstCopies comparison(count, 7);
  const auto add = [&](const std::string& name, std::size_t moved, const kernels::OptimizerStep& step) {
    comparison.add(
        name, moved, [=] { kernels::optimize(step, all); }, [=] { kernels::reference::optimize(step, all); });
  };
  add("sgd", 5, {.learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 1e-4});
  add("adam", 7, {.kind = OptimizerKind::adam, .learning_rate = 1e-3, .step = 10});
  return comparison.compare(options);
}

void run_kernels(const Options& options) {
  const std::vector<std::size_t> counts = parse_counts(options.sizes);
  std::optional<Peer> torch;
  if (!options.python.empty()) torch.emplace("torch", python_peer("torch_casts.py", "", options.python));
  log::info("vector kernels: {}", kernels::target_name());
  Report report(std::cout, options.common.json,
                {{"GB/s", [](const Figure& figure) {
                    return fmt::format("{:.1f}", static_cast<double>(figure.bytes) / figure.seconds * 1e-9);
                  }}});
  CompareOptions compare_options = options.common.compare_options();
  for (const std::size_t count : counts) {
    report.add(compare_conversions(count, torch ? &*torch : nullptr, compare_options));
    report.add(compare_sums(count, compare_options));
    report.add(compare_round_trips(count, compare_options));
    report.add(compare_updates(count, compare_options));
  }
}

}  // namespace

void add_bench_kernels(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("kernels", "Conversions, round trips, sums and updates on one thread");
  auto options = std::make_shared<Options>();
  add_bench_options(*app, options->common);
  app->add_option("--sizes", options->sizes, "Bytes of one float32 array")->delimiter(',')->capture_default_str();
  app->add_option("--python", options->python, "A Python with torch, whose casts take turns with these");
  app->callback([options] { run_kernels(*options); });
}

}  // namespace sumpter::bench
