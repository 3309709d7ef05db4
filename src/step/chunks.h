// How the parameters of a model are cut into chunks: consecutive layers whose gradients travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sumpter/spec.h"

namespace sumpter {

struct ParameterInfo {
  std::string name;                      // "conv1.weight"
  std::size_t count = 0;                 // elements
  int module = 0;                        // the module that owns it, numbered as the model registers them
  std::vector<std::int64_t> shape = {};  // of count elements; at most one dimension marks biases and norms
};

struct Chunk {
  std::vector<int> parameters;  // indices, in the order in which backward finished them
  std::vector<int> layers;      // layer numbers: 0 is the layer that backward finishes first
  std::size_t bytes = 0;
};

// `finished` is a permutation of the parameters' indices: the order in which their gradients became final. Parameters
// of one module form one layer, which is finished when its last parameter is; layers keep that order. Every parameter
// is in exactly one chunk. `type` is the elements'.
std::vector<Chunk> make_chunks(std::span<const ParameterInfo> parameters, std::span<const int> finished,
                               const ChunkRule& rule, ElementType type = ElementType::f32);

// Throws RequestError where a rule asks for chunks of more layers than there are: a plan for another model.
void require_fit(std::span<const ParameterInfo> parameters, const ChunkRule& rule);

}  // namespace sumpter
