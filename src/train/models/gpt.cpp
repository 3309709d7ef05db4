// A small GPT over bytes, its layers named as GPT-2's: learned positions, norms before attention and feed-forward,
// GELU. Its scores have weights of their own (not those of wte), so that every parameter belongs to one layer.
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "train/models/families.h"
#include "train/models/layers.h"

namespace sumpter {
namespace {

namespace nn = torch::nn;

constexpr double kDeviation = 0.02;  // GPT-2's, of all weights at first

nn::Linear add_linear(nn::Module& owner, const char* name, nn::LinearOptions options, double deviation = kDeviation) {
  auto layer = owner.register_module(name, nn::Linear(options));
  nn::init::normal_(layer->weight, 0, deviation);
  if (options.bias()) nn::init::zeros_(layer->bias);
  return layer;
}

nn::Embedding add_embedding(nn::Module& owner, const char* name, std::int64_t rows, std::int64_t width) {
  auto layer = owner.register_module(name, nn::Embedding(rows, width));
  nn::init::normal_(layer->weight, 0, kDeviation);
  return layer;
}

nn::LayerNorm add_norm(nn::Module& owner, const char* name, std::int64_t width) {
  return owner.register_module(name, nn::LayerNorm(nn::LayerNormOptions({width})));
}

class Block : public nn::Module {
 public:
  // residual_deviation: of the two layers whose outputs are added to what passes.
  Block(std::int64_t width, std::int64_t heads, double residual_deviation) : heads_(heads) {
    norm1_ = add_norm(*this, "ln_1", width);
    const auto attention = add_group(*this, "attn");
    queries_keys_values_ = add_linear(*attention, "c_attn", {width, 3 * width});
    attention_out_ = add_linear(*attention, "c_proj", {width, width}, residual_deviation);
    norm2_ = add_norm(*this, "ln_2", width);
    const auto feed_forward = add_group(*this, "mlp");
    hidden_ = add_linear(*feed_forward, "c_fc", {width, 4 * width});
    hidden_out_ = add_linear(*feed_forward, "c_proj", {4 * width, width}, residual_deviation);
  }

  torch::Tensor forward(Model& model, const torch::Tensor& values) {
    auto x = values + model.apply(attention_out_, attend(model, model.apply(norm1_, values)));
    const auto hidden = at::gelu(model.apply(hidden_, model.apply(norm2_, x)), "tanh");
    return x + model.apply(hidden_out_, hidden);
  }

 private:
  // [rows, positions, width] to the same.
  torch::Tensor attend(Model& model, const torch::Tensor& values) {
    const auto rows = values.size(0), positions = values.size(1), width = values.size(2);
    const auto all = model.apply(queries_keys_values_, values).view({rows, positions, 3, heads_, width / heads_});
    const auto by_head = all.permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], /*attn_mask=*/{},
                                                        /*dropout_p=*/0, /*is_causal=*/true);
    return mixed.transpose(1, 2).reshape({rows, positions, width});
  }

  std::int64_t heads_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Linear queries_keys_values_{nullptr}, attention_out_{nullptr}, hidden_{nullptr}, hidden_out_{nullptr};
};

class Gpt : public Model {
 public:
  explicit Gpt(const ModelSpec& spec) {
    const std::int64_t layers = spec.sizes[0], width = spec.sizes[1], heads = spec.sizes[2], context = spec.sizes[3];
    tokens_ = add_embedding(*this, "wte", spec.outputs, width);
    positions_ = add_embedding(*this, "wpe", context, width);
    const auto group = add_group(*this, "h");
    const double residual_deviation = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
    for (std::int64_t i = 0; i < layers; ++i)
      blocks_.push_back(
          group->register_module(std::to_string(i), std::make_shared<Block>(width, heads, residual_deviation)));
    norm_ = add_norm(*this, "ln_f", width);
    scores_ = add_linear(*this, "lm_head", nn::LinearOptions(width, spec.outputs).bias(false));
  }

  torch::Tensor forward(const torch::Tensor& values) override {
    const auto tokens = apply(tokens_, values);
    auto x = tokens + apply(positions_, at::arange(values.size(1), at::kLong));
    for (const auto& block : blocks_) x = block->forward(*this, x);
    return apply(scores_, apply(norm_, x));
  }

 private:
  nn::Embedding tokens_{nullptr}, positions_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear scores_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_gpt(const ModelSpec& spec) { return std::make_shared<Gpt>(spec); }

}  // namespace sumpter
