// A module of one's own on several replicas: trainer [DATA] [REPLICAS] [STEPS], by default Fashion-MNIST, 2 and 200.
#include <sumpter/trainer.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <string>

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return fc->forward(torch::max_pool2d(torch::relu(conv->forward(images)), 2).flatten(1));
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 5)));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(8 * 12 * 12, 10));
};

int main(int argc, char** argv) {
  const std::string data = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  try {
    sumpter::RunOptions options{.data = sumpter::open_dataset(data)};
    options.plan = {.replicas = argc > 2 ? std::stoi(argv[2]) : 2, .update = sumpter::Update::host};
    options.steps = argc > 3 ? std::stoul(argv[3]) : 200;
    options.optimizer = {.learning_rate = 0.05, .momentum = 0.9};

    sumpter::Trainer trainer(sumpter::factory_of<Net>(), /*loss: cross entropy*/ {}, options);
    trainer.on_step([](const sumpter::StepReport& step) {
      if (step.step % 50 == 0) std::printf("step %4zu: loss %.4f\n", static_cast<std::size_t>(step.step), step.loss);
    });
    trainer.on_evaluation([](const sumpter::Evaluation& test) {
      std::printf("test: top-1 %.2f%% of %zu rows\n", 100 * test.top1, test.rows);
    });
    const sumpter::RunResult run = trainer.run();
    std::printf("%.0f rows/s\n", static_cast<double>(run.rows) / run.seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 1;
  }
}
