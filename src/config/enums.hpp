// config/enums.hpp — the words a deck may use, and their text.
#ifndef TRIREME_CONFIG_ENUMS_HPP_
#define TRIREME_CONFIG_ENUMS_HPP_

#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::config {

// The axes of the process grid.
enum class Axis { tensor, context, data, pipeline };
// Fastest first: neighbouring ranks share a tensor group.
using AxisOrder = std::array<Axis, 4>;
inline constexpr AxisOrder kDefaultAxisOrder = {Axis::tensor, Axis::context, Axis::data,
                                                Axis::pipeline};

enum class ModelKind { gpt, bert, t5 };
enum class Norm { layernorm, rmsnorm };
// Whether a norm stands before its branch or behind the sum with it.
enum class NormPlacement { pre, post };
enum class Activation { gelu_tanh, gelu, relu, swiglu, geglu, geglu_tanh };
enum class Position { learned, rope, relative };
// What the second segment of a sample is: the text behind the first, in every second
// sample swapped with it (order), or of another document in every second sample (next).
enum class Pairs { none, order, next };
enum class Precision { fp32, bf16, fp16 };
// What gradients of weights are added up, kept and sent in.
enum class Gradients { fp32, bf16 };
// How products of 16-bit elements are computed; automatic: as measured on CPUs like it.
enum class Products { automatic, native, widened };
// Whose kernels attention is computed by on a GPU; automatic: cuDNN's where that is
// proven and possible.
enum class AttentionKernels { automatic, own, cudnn };
enum class Recompute { none, selective, full };
// 1F1B (interleaved where stages have several chunks); the same with weight gradients put
// off; all forward, then all backward passes.
enum class PipelineSchedule { one_f_one_b, zero_bubble, gpipe };
// The costs by which layers are dealt to the stages of a pipeline.
enum class Balance { modelled, measured };
enum class OptimizerKind { adamw };
enum class Schedule { cosine, linear, constant, inverse_sqrt, wsd };
enum class SignalName { usr1, usr2, term, intr, hup };
enum class LengthUnit { steps, samples, tokens };

// Every value of an enum with its word in the deck; the first one is GPT-2's.
template <class E>
const std::vector<std::pair<E, std::string_view>>& choices();

// The word that a deck has for a value.
template <class E>
std::string_view name_of(E value);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_ENUMS_HPP_
