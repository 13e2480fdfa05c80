// config/enums.hpp — the words a deck may use, and their text.
#ifndef TRIREME_CONFIG_ENUMS_HPP_
#define TRIREME_CONFIG_ENUMS_HPP_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "config/axis.hpp"

namespace trireme::config {

enum class ModelKind { gpt, bert, t5 };
enum class Norm { layernorm, rmsnorm };
enum class Activation { gelu_tanh, gelu, relu, swiglu, geglu };
enum class Position { learned, rope, relative };
enum class Precision { fp32, bf16, fp16 };
enum class Recompute { none, selective, full };
// 1F1B (interleaved where stages have several chunks); the same with weight gradients put
// off; all forward, then all backward passes.
enum class PipelineSchedule { one_f_one_b, zero_bubble, gpipe };
// By which costs layers are dealt to the stages of a pipeline.
enum class Balance { modelled, measured };
enum class OptimizerKind { adamw };
enum class Schedule { cosine, linear, constant, inverse_sqrt, wsd };
enum class SignalName { usr1, usr2, term, intr, hup };
enum class LengthUnit { steps, samples, tokens };

// Every value of an enum with its word in the deck; the first one is GPT-2's.
template <class E>
const std::vector<std::pair<E, std::string_view>>& choices();

std::string_view name_of(ModelKind value);
std::string_view name_of(Norm value);
std::string_view name_of(Activation value);
std::string_view name_of(Position value);
std::string_view name_of(Precision value);
std::string_view name_of(Recompute value);
std::string_view name_of(PipelineSchedule value);
std::string_view name_of(Balance value);
std::string_view name_of(OptimizerKind value);
std::string_view name_of(Schedule value);
std::string_view name_of(SignalName value);
std::string_view name_of(LengthUnit value);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_ENUMS_HPP_
