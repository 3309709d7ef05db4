#include "sumpter/trainer.h"

#include "train/job.h"
#include "train/memory.h"
#include "train/user_network.h"

namespace sumpter {

class Trainer::Callbacks : public TrainListener {
 public:
  void began(const RunStart& start) override {
    if (on_start) on_start(start);
  }
  void stepped(const StepReport& report) override {
    if (on_step) on_step(report);
  }
  void evaluated(const Evaluation& evaluation) override {
    if (on_evaluation) on_evaluation(evaluation);
  }
  void saved(const std::filesystem::path& directory, std::uint64_t steps) override {
    if (on_checkpoint) on_checkpoint(directory, steps);
  }

  std::function<void(const RunStart&)> on_start;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const Evaluation&)> on_evaluation;
  std::function<void(const std::filesystem::path&, std::uint64_t)> on_checkpoint;
};

Trainer::Trainer(ModelFactory factory, LossFunction loss, RunOptions options)
    : factory_(std::move(factory)),
      loss_(std::move(loss)),
      options_(std::move(options)),
      callbacks_(std::make_unique<Callbacks>()) {}

Trainer::~Trainer() = default;

void Trainer::on_start(std::function<void(const RunStart&)> callback) { callbacks_->on_start = std::move(callback); }
void Trainer::on_step(std::function<void(const StepReport&)> callback) { callbacks_->on_step = std::move(callback); }
void Trainer::on_evaluation(std::function<void(const Evaluation&)> callback) {
  callbacks_->on_evaluation = std::move(callback);
}
void Trainer::on_checkpoint(std::function<void(const std::filesystem::path&, std::uint64_t)> callback) {
  callbacks_->on_checkpoint = std::move(callback);
}

RunResult Trainer::run() {
  check(options_);
  keep_freed_memory();
  stop_ = false;
  torch::manual_seed(options_.seed);
  Run run(job_of(factory_, loss_, options_), options_, *callbacks_, stop_);
  module_ = module_of(*run.networks.front());
  return run.run();
}

std::shared_ptr<torch::nn::Module> Trainer::module() const { return module_; }

}  // namespace sumpter
