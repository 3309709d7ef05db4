// The words by which a run is described: types of elements, reductions and wire formats; the plan; the optimizer and
// its learning rate over the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sumpter {

enum class ElementType : std::uint8_t { f32, f64, bf16, f16, i8, u8, i16, i32, i64, boolean };

// How the members' values become one. `average` divides the sum by the number of members, once; `weighted_mean` adds
// each member's values times float32(its rows / all rows) (double for f64) and leaves out members without rows.
enum class Reduction : std::uint8_t {
  sum,
  average,
  weighted_mean,
  minimum,
  maximum,
  product,
  bitwise_and,
  bitwise_or,
  bitwise_xor
};

// How float32 numbers look on a link. i8: blocks of 256 integers with one float32 scale each.
enum class WireFormat : std::uint8_t { f32, bf16, f16, i8 };

// Bytes of one element; 1 for boolean.
std::size_t size_of(ElementType type);
// Bytes of one element; of i8 without its scales, which kernels::wire_bytes counts too.
std::size_t size_of(WireFormat format);

// The names used in messages, options and files: "f32", "weighted_mean", ...
std::string_view name_of(ElementType type);
std::string_view name_of(Reduction reduction);
std::string_view name_of(WireFormat format);

// True where the reduction is defined for the type: bitwise ones for integers and boolean only, average and
// weighted_mean not for boolean, weighted_mean for floating types only.
bool supports(ElementType type, Reduction reduction);

enum class Route : std::uint8_t { host };
enum class Update : std::uint8_t { device, host };

// Where chunks end, counted over layers in the order in which backward finishes them: at the first layer that reaches
// `value` bytes, after every `value` layers, or only at the end.
struct ChunkRule {
  enum class Kind : std::uint8_t { bytes, layers, all };
  Kind kind = Kind::bytes;
  std::size_t value = std::size_t{1} << 20;
  bool operator==(const ChunkRule&) const = default;
};

// All the decisions for one run. The runtime executes it, the simulator times it, the cost model estimates it; no
// reader has an option of its own that the others cannot see.
struct Plan {
  int replicas = 1;
  Route route = Route::host;
  ChunkRule chunk = {};
  std::size_t piece = std::size_t{128} << 10;  // bytes of float32
  WireFormat gradient_wire = WireFormat::f32;
  WireFormat parameter_wire = WireFormat::f32;  // parameters travel with update=host only
  bool error_feedback = false;  // what rounding to gradient_wire lost is added to the next step's gradient
  Update update = Update::device;
  int preload = 2;
  int reducers = 0;
  int accumulate = 1;  // backward passes for one exchange: each replica's rows are cut into so many parts
  bool clip = false;   // the update waits for the norm of all gradients: a second pass over the sums
  bool operator==(const Plan&) const = default;
};

inline constexpr int kMaxReplicas = 64;
inline constexpr int kMaxReducers = 64;
inline constexpr int kMaxPreload = 1024;  // batches
inline constexpr int kMaxAccumulate = 1024;

std::string_view name_of(Route route);
std::string_view name_of(Update update);

// torch.optim's SGD (dampening 0), Adam, AdamW.
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.005;
  double momentum = 0.9;  // sgd
  bool nesterov = false;  // sgd; needs momentum
  double weight_decay = 0;
  bool decay_all = true;  // false: none for parameters of at most one dimension (biases, norms)
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  double clip_norm = 0;                               // torch.nn.utils.clip_grad_norm_'s max_norm; 0: none
  bool operator==(const OptimizerOptions&) const = default;
};

enum class ScheduleKind : std::uint8_t { constant, step, cosine };

// The learning rate over the steps, as a factor: constant; or times `gamma` after every `every` steps (torch's StepLR);
// or half a cosine from 1 to `least` over `steps` steps (CosineAnnealingLR), `least` from then on. Over the first
// `warmup` steps this is multiplied by what rises linearly from 1/(warmup+1) towards 1.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  std::uint64_t warmup = 0;  // steps
  std::uint64_t every = 0;   // step: steps
  double gamma = 0.1;        // step
  std::uint64_t steps = 0;   // cosine: steps of the whole run
  double least = 0;          // cosine: the factor at the end
  // Of step number `step`, counted from 0. The schedule is a valid one.
  double factor(std::uint64_t step) const;
  bool operator==(const Schedule&) const = default;
};

std::string_view name_of(OptimizerKind kind);  // "sgd", "adam", "adamw"
std::string_view name_of(ScheduleKind kind);   // "constant", "step", "cosine"

}  // namespace sumpter
