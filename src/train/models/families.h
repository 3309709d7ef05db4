// One maker a family of models; make_model() chooses.
#pragma once

#include <memory>

#include "train/models/model.h"

namespace sumpter {

std::shared_ptr<Model> make_lenet();
std::shared_ptr<Model> make_mlp(const ModelSpec& spec);
std::shared_ptr<Model> make_alexnet(const ModelSpec& spec);
std::shared_ptr<Model> make_vgg(const ModelSpec& spec);
std::shared_ptr<Model> make_resnet(const ModelSpec& spec);
std::shared_ptr<Model> make_googlenet(const ModelSpec& spec);
std::shared_ptr<Model> make_gpt(const ModelSpec& spec);

}  // namespace sumpter
