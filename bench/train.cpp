// `sumpter bench train`: a whole training step of replicas that exchange nothing, of both updates, and of stock
// DistributedDataParallel with Gloo.
#include <CLI/CLI.hpp>
#include <array>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "bench/bench.h"
#include "bench/harness.h"
#include "bench/peer.h"
#include "bench/team.h"
#include "sumpter/input.h"
#include "train/devices.h"
#include "train/step_bench.h"

namespace sumpter::bench {
namespace {

constexpr std::int64_t kClasses = 10;  // outputs of vision models

struct Options {
  BenchOptions common{.seconds = 60};
  std::string model = "mlp60m";
  std::string devices = "cpu:2";
  std::string image;
  std::size_t batch_size = 32;
  std::string chunk = to_string(Plan{}.chunk);
  int reducers = 0;
  std::string python;
};

Plan plan_of(const Options& options) {
  Plan plan{.replicas = parse_devices(options.devices, "--devices"),
            .chunk = parse_chunk_rule(options.chunk, "--chunk"),
            .reducers = options.reducers};
  const auto replicas = static_cast<std::size_t>(plan.replicas);
  if (options.batch_size < replicas || options.batch_size % replicas != 0)
    raise<RequestError>("--batch-size: {} rows are not the same number, 1 or more, for each of {} replicas",
                        options.batch_size, replicas);
  validate(plan);
  return plan;
}

// "1x28x28", read by those who make the rows up.
ImageShape shape_of(const std::string& text) {
  try {
    return open_dataset("synthetic:rows=1,test_rows=0,shape=" + text).train->shape();
  } catch (const RequestError& error) {
    raise<RequestError>("--image: {}", error.what());
  }
}

// The replicas of one contender, each in a thread of its own.
class Replicas {
 public:
  explicit Replicas(const StepBenchOptions& options)
      : bench_(options), team_(Team::Kind::threads, options.plan.replicas, [this](int rank) {
          return std::make_unique<Member>(bench_.join(rank));
        }) {}
  std::function<double(int)> job() { return team_.job(0); }

 private:
  class Member : public TeamMember {
   public:
    explicit Member(std::unique_ptr<BenchReplica> replica) : replica_(std::move(replica)) {}
    void prepare(int) override {}
    void run(int) override { replica_->step(); }

   private:
    std::unique_ptr<BenchReplica> replica_;
  };

  StepBench bench_;
  Team team_;
};

// Nothing where there is no Python with torch, or the model is not an mlp; the reason is said.
std::unique_ptr<Peer> start_ddp(const Options& options, const ModelSpec& model, const Plan& plan) {
  if (model.kind != ModelSpec::Kind::mlp) {
    log::warning("no ddp-gloo: it has no model {}, only those that are mlp", model.name);
    return nullptr;
  }
  const std::string arguments = fmt::format("{} {} {}", plan.replicas, fmt::join(model.sizes, "-"),
                                            options.batch_size / static_cast<std::size_t>(plan.replicas));
  try {
    return std::make_unique<Peer>("ddp-gloo", python_peer("ddp_step.py", arguments, options.python));
  } catch (const RequestError& error) {
    log::warning("no ddp-gloo: {}", error.what());
    return nullptr;
  }
}

void bench_train(const Options& options) {
  const ModelSpec model = parse_model(options.model, "--model").with_classes(kClasses);
  StepBenchOptions step{.model = model, .plan = plan_of(options)};
  if (!options.image.empty()) step.shape = shape_of(options.image);
  step.rows = options.batch_size / static_cast<std::size_t>(step.plan.replicas);
  const std::unique_ptr<Peer> ddp = start_ddp(options, model, step.plan);

  const auto replicas_of = [&](bool exchange, Update update) {
    step.exchange = exchange;
    step.plan.update = update;
    return std::make_unique<Replicas>(step);
  };
  const auto apart = replicas_of(false, Update::device);
  const auto on_device = replicas_of(true, Update::device);
  const auto on_host = replicas_of(true, Update::host);

  const std::size_t bytes = model.parameters() * sizeof(float);
  std::vector<std::string> against = {"no-exchange"};
  if (ddp != nullptr) against.push_back("ddp-gloo");
  std::vector<Contender> contenders = {
      {.name = "no-exchange", .bytes = bytes, .round = apart->job()},
      {.name = "update-device", .bytes = bytes, .against = against, .round = on_device->job()},
      {.name = "update-host", .bytes = bytes, .against = against, .round = on_host->job()}};
  if (ddp != nullptr)
    contenders.push_back({.name = "ddp-gloo", .bytes = bytes, .against = {"no-exchange"}, .round = ddp->job("step")});
  Report(std::cout, options.common.json).add(compare(contenders, options.common.compare_options()));
}

}  // namespace

void add_bench_train(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "train",
      "Whole steps, forward to update, without an exchange and with both updates, against torch's DDP with Gloo");
  add_bench_options(*app, options->common);
  app->add_option("--model", options->model, "A built-in model")->capture_default_str();
  app->add_option("--devices", options->devices, "Where replicas compute")->capture_default_str();
  app->add_option("--image", options->image, "Shape of an image, as 1x28x28 (default: the model's usual one)");
  app->add_option("--batch-size", options->batch_size, "Rows of a step over all replicas")->capture_default_str();
  app->add_option("--chunk", options->chunk, "Gradients that travel together")->capture_default_str();
  app->add_option("--reducers", options->reducers, "Threads that only sum")->capture_default_str();
  app->add_option("--python", options->python, "A Python with torch, for ddp-gloo (default: the one of tools/setup)");
  app->callback([options] { bench_train(*options); });
}

}  // namespace sumpter::bench
