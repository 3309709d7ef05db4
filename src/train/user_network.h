// A module of the user's own as the trainer drives it.
#pragma once

#include <memory>

#include "sumpter/trainer.h"
#include "train/network.h"

namespace sumpter {

struct UserNetworkOptions {
  LossFunction loss;  // empty: cross_entropy
  double label_smoothing = 0;
  Precision precision = Precision::float32;
};

// Throws RequestError where the model has no module or no forward, or a parameter is not float32, and as lay_out.
std::unique_ptr<Network> make_user_network(TrainerModel model, const UserNetworkOptions& options);

// The module behind such a network; null for others.
std::shared_ptr<torch::nn::Module> module_of(const Network& network);

}  // namespace sumpter
