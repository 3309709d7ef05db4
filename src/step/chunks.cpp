#include "step/chunks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "spec/plan.h"

namespace sumpter {
namespace {

// The modules in the order in which backward finished them: by their last parameter.
std::vector<int> layers_by_finish(std::span<const ParameterInfo> parameters, std::span<const int> finished) {
  std::map<int, std::size_t> last_of_module;
  for (std::size_t i = 0; i < finished.size(); ++i) last_of_module[parameters[finished[i]].module] = i;
  std::vector<int> modules;
  modules.reserve(last_of_module.size());
  for (const auto& [module, unused] : last_of_module) modules.push_back(module);
  std::sort(modules.begin(), modules.end(), [&](int a, int b) { return last_of_module[a] < last_of_module[b]; });
  return modules;
}

void require_permutation(std::span<const ParameterInfo> parameters, std::span<const int> finished) {
  std::vector<bool> seen(parameters.size(), false);
  for (const int parameter : finished) {
    if (parameter < 0 || static_cast<std::size_t>(parameter) >= parameters.size() || seen[parameter])
      raise<RequestError>("the order of gradients names parameter {} wrongly; the model has {}", parameter,
                          parameters.size());
    seen[parameter] = true;
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) raise<RequestError>("parameter '{}' got no gradient; is it used in the loss?", parameters[i].name);
  }
}

bool closes(const Chunk& chunk, const ChunkRule& rule) {
  switch (rule.kind) {
    case ChunkRule::Kind::bytes:
      return chunk.bytes >= rule.value;
    case ChunkRule::Kind::layers:
      return chunk.layers.size() >= rule.value;
    case ChunkRule::Kind::all:
      return false;
  }
  return false;
}

}  // namespace

std::vector<Chunk> make_chunks(std::span<const ParameterInfo> parameters, std::span<const int> finished,
                               const ChunkRule& rule, ElementType type) {
  require_permutation(parameters, finished);
  const std::vector<int> modules = layers_by_finish(parameters, finished);
  std::vector<Chunk> chunks;
  Chunk open;
  for (std::size_t layer = 0; layer < modules.size(); ++layer) {
    for (const int parameter : finished) {
      if (parameters[parameter].module != modules[layer]) continue;
      open.parameters.push_back(parameter);
      open.bytes += parameters[parameter].count * size_of(type);
    }
    open.layers.push_back(static_cast<int>(layer));
    if (closes(open, rule)) chunks.push_back(std::exchange(open, {}));
  }
  if (!open.parameters.empty()) chunks.push_back(std::move(open));
  return chunks;
}

void require_fit(std::span<const ParameterInfo> parameters, const ChunkRule& rule) {
  if (rule.kind != ChunkRule::Kind::layers) return;
  std::set<int> modules;
  for (const ParameterInfo& parameter : parameters) modules.insert(parameter.module);
  if (rule.value > modules.size())
    raise<RequestError>("plan does not fit the model: chunk {}, the model has {}; write all", to_string(rule),
                        modules.size());
}

}  // namespace sumpter
