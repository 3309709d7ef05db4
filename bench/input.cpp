// `sumpter bench input`: the ring of batches, for each preload, against a plain loop that gathers the same rows from
// memory; once with nothing done with the rows, and once with each replica making float32 numbers of its own.
#include "sumpter/input.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bench/bench.h"
#include "bench/harness.h"
#include "input/order.h"
#include "input/ring.h"

namespace sumpter::bench {
namespace {

struct Options {
  BenchOptions common;
  std::string data = "synthetic:rows=20000,test_rows=0";
  std::size_t batch_size = 128;
  int replicas = 1;
  int loaders = 1;
  std::vector<int> preloads{0, 1, 2};
};

// In one run: enough that the batches which a ring loads between its turns do not show.
constexpr int kBatches = 200;

// As many items of a data set as fill whole batches, in memory: what is measured is the gathering and not the data set.
class InMemory : public Dataset {
 public:
  InMemory(const Dataset& source, std::size_t batch_size) : shape_(source.shape()), classes_(source.classes()) {
    const std::size_t rows = source.size() / batch_size * batch_size;
    if (rows == 0) raise<RequestError>("--data has {} rows, fewer than the {} of a batch", source.size(), batch_size);
    images_.resize(rows * shape_.bytes());
    for (std::size_t index = 0; index < rows; ++index) {
      labels_.push_back(
          source.get({.index = index}, std::span(images_).subspan(index * shape_.bytes(), shape_.bytes())));
    }
  }

  std::size_t size() const override { return labels_.size(); }
  ImageShape shape() const override { return shape_; }
  int classes() const override { return classes_; }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    std::memcpy(image.data(), images_.data() + item.index * image.size(), image.size());
    return labels_[item.index];
  }

 private:
  const ImageShape shape_;
  const int classes_;
  std::vector<std::uint8_t> images_;
  std::vector<std::int64_t> labels_;
};

// What a replica does with its rows.
class Work {
 public:
  explicit Work(bool converts) : converts_(converts) {}
  void operator()(std::span<const std::uint8_t> images) {
    if (!converts_) return;
    numbers_.resize(images.size());
    for (std::size_t i = 0; i < images.size(); ++i) numbers_[i] = static_cast<float>(images[i]) * (1.0F / 255);
  }

 private:
  const bool converts_;
  std::vector<float> numbers_;
};

// Calls job(rank) in a thread for each replica, the first of which is the caller's.
template <typename Job>
void for_each_replica(int replicas, const Job& job) {
  std::vector<std::jthread> others;
  for (int rank = 1; rank < replicas; ++rank) others.emplace_back([&job, rank] { job(rank); });
  job(0);
}

class PlainLoop {
 public:
  PlainLoop(std::shared_ptr<const InMemory> set, const Options& options, bool converts)
      : set_(std::move(set)),
        order_({.rows = set_->size(), .batch_size = options.batch_size}),
        replicas_(static_cast<std::size_t>(options.replicas),
                  Replica{.work = Work(converts), .images = {}, .labels = {}}) {}

  void run() {
    for_each_replica(static_cast<int>(replicas_.size()), [this](int rank) {
      for (std::uint64_t step = step_; step < step_ + kBatches; ++step) gather(static_cast<std::size_t>(rank), step);
    });
    step_ += kBatches;
  }

 private:
  struct Replica {
    Work work;
    std::vector<std::uint8_t> images;
    std::vector<std::int64_t> labels;
  };

  void gather(std::size_t rank, std::uint64_t step) {
    Replica& replica = replicas_[rank];
    const std::size_t image_bytes = set_->shape().bytes();
    const Position position = order_.position(step);
    const auto permutation = order_.permutation(position.epoch);
    const RowRange part = split_rows(position.range.rows, replicas_.size(), rank);
    replica.images.resize(part.rows * image_bytes);
    replica.labels.resize(part.rows);
    for (std::size_t row = 0; row < part.rows; ++row) {
      const std::size_t index = (*permutation)[position.range.begin + part.begin + row];
      replica.labels[row] =
          set_->get({.index = index}, std::span(replica.images).subspan(row * image_bytes, image_bytes));
    }
    replica.work(replica.images);
  }

  const std::shared_ptr<const InMemory> set_;
  const BatchOrder order_;
  std::vector<Replica> replicas_;
  std::uint64_t step_ = 0;
};

class RingLoop {
 public:
  RingLoop(std::shared_ptr<const InMemory> set, const Options& options, int preload, bool converts)
      : ring_(std::move(set), {.replicas = options.replicas,
                               .batch_size = options.batch_size,
                               .preload = preload,
                               .loaders = options.loaders}),
        works_(static_cast<std::size_t>(options.replicas), Work(converts)) {}

  void run() {
    for_each_replica(static_cast<int>(works_.size()), [this](int rank) {
      for (int batch = 0; batch < kBatches; ++batch) {
        works_[static_cast<std::size_t>(rank)](ring_.next(rank)->images());
      }
    });
  }

 private:
  BatchRing ring_;
  std::vector<Work> works_;
};

std::vector<Figure> compare_rings(const std::shared_ptr<const InMemory>& set, const Options& options, bool converts) {
  const std::size_t bytes = kBatches * options.batch_size * set->shape().bytes();
  const std::string suffix = converts ? "-to-float" : "";
  PlainLoop plain(set, options, converts);
  std::vector<std::unique_ptr<RingLoop>> rings;
  std::vector<Contender> contenders = {{.name = "loop" + suffix, .bytes = bytes, .run = [&] { plain.run(); }}};
  for (const int preload : options.preloads) {
    rings.push_back(std::make_unique<RingLoop>(set, options, preload, converts));
    contenders.push_back({.name = fmt::format("preload-{}{}", preload, suffix),
                          .bytes = bytes,
                          .against = {"loop" + suffix},
                          .run = [ring = rings.back().get()] { ring->run(); }});
  }
  return compare(contenders, options.common.compare_options());
}

void run_input(const Options& options) {
  const auto set = std::make_shared<const InMemory>(*open_dataset(options.data).train, options.batch_size);
  const auto image_bytes = static_cast<double>(set->shape().bytes());
  Report report(std::cout, options.common.json,
                {{"rows/s", [&](const Figure& figure) {
                    return fmt::format("{:.0f}", static_cast<double>(figure.bytes) / image_bytes / figure.seconds);
                  }}});
  for (const bool converts : {false, true}) report.add(compare_rings(set, options, converts));
}

}  // namespace

void add_bench_input(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("input", "The ring of batches against a plain loop that gathers the same rows");
  auto options = std::make_shared<Options>();
  add_bench_options(*app, options->common);
  app->add_option("--data", options->data, "A data set, held in memory")->capture_default_str();
  app->add_option("--batch-size", options->batch_size, "Rows of a batch over all replicas")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--replicas", options->replicas, "Threads that take a part of each batch")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--loaders", options->loaders, "Threads that load, for each ring")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--preload", options->preloads, "Batches loaded ahead: a ring for each")
      ->delimiter(',')
      ->capture_default_str();
  app->callback([options] { run_input(*options); });
}

}  // namespace sumpter::bench
