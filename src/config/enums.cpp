// config/enums.cpp — see enums.hpp.
#include "config/enums.hpp"

#include "base/error.hpp"

namespace trireme::config {

template <class E>
std::string_view name_of(E value) {
  for (const auto& [choice, word] : choices<E>()) {
    if (choice == value) return word;
  }
  throw Error("name_of: a value that is not of its enum");
}

#define TRIREME_CHOICES(Enum, ...)                                                   \
  template <>                                                                        \
  const std::vector<std::pair<Enum, std::string_view>>& choices<Enum>() {            \
    using E [[maybe_unused]] = Enum;                                                 \
    static const std::vector<std::pair<Enum, std::string_view>> all = {__VA_ARGS__}; \
    return all;                                                                      \
  }                                                                                  \
  template std::string_view name_of(Enum);

TRIREME_CHOICES(Axis, {E::tensor, "tensor"}, {E::context, "context"}, {E::data, "data"},
                {E::pipeline, "pipeline"})
TRIREME_CHOICES(ModelKind, {E::gpt, "gpt"}, {E::bert, "bert"}, {E::t5, "t5"})
TRIREME_CHOICES(Norm, {E::layernorm, "layernorm"}, {E::rmsnorm, "rmsnorm"})
TRIREME_CHOICES(NormPlacement, {E::pre, "pre"}, {E::post, "post"})
TRIREME_CHOICES(Activation, {E::gelu_tanh, "gelu_tanh"}, {E::gelu, "gelu"},
                {E::relu, "relu"}, {E::swiglu, "swiglu"}, {E::geglu, "geglu"},
                {E::geglu_tanh, "geglu_tanh"})
TRIREME_CHOICES(Position, {E::learned, "learned"}, {E::rope, "rope"},
                {E::relative, "relative"})
TRIREME_CHOICES(Pairs, {E::none, "none"}, {E::order, "order"}, {E::next, "next"})
TRIREME_CHOICES(Precision, {E::fp32, "fp32"}, {E::bf16, "bf16"}, {E::fp16, "fp16"})
TRIREME_CHOICES(Gradients, {E::fp32, "fp32"}, {E::bf16, "bf16"})
TRIREME_CHOICES(Products, {E::automatic, "auto"}, {E::native, "native"},
                {E::widened, "widened"})
TRIREME_CHOICES(AttentionKernels, {E::automatic, "auto"}, {E::own, "own"},
                {E::cudnn, "cudnn"})
TRIREME_CHOICES(Recompute, {E::none, "none"}, {E::selective, "selective"},
                {E::full, "full"})
TRIREME_CHOICES(PipelineSchedule, {E::one_f_one_b, "1f1b"},
                {E::zero_bubble, "zero_bubble"}, {E::gpipe, "gpipe"})
TRIREME_CHOICES(Balance, {E::modelled, "modelled"}, {E::measured, "measured"})
TRIREME_CHOICES(OptimizerKind, {E::adamw, "adamw"})
TRIREME_CHOICES(Schedule, {E::cosine, "cosine"}, {E::linear, "linear"},
                {E::constant, "constant"}, {E::inverse_sqrt, "inverse_sqrt"},
                {E::wsd, "wsd"})
TRIREME_CHOICES(SignalName, {E::usr1, "USR1"}, {E::usr2, "USR2"}, {E::term, "TERM"},
                {E::intr, "INT"}, {E::hup, "HUP"})
TRIREME_CHOICES(LengthUnit, {E::steps, "steps"}, {E::samples, "samples"},
                {E::tokens, "tokens"})
#undef TRIREME_CHOICES

}  // namespace trireme::config
