// kernels/decode_attention_cuda.cpp — decode_attention() on NVIDIA GPUs: by teams,
// as the layers around it.
#include "base/exec.hpp"
#include "kernels/impl/decode_attention.hpp"

namespace trireme::kernels::impl {

bool decodes_by_teams() {
  return true;
}

template <class T>
void decode_attention_here(const Exec& exec, const CachedTexts& texts,
                           const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                           View2<const T> v, View1<Accumulator<T>> scratch, View2<T> o,
                           View2<const Accumulator<T>> bias) {
  decode_attention_by_teams<T>(exec, texts, heads, qkv, k, v, scratch, o, bias);
}

#define TRIREME_INSTANTIATE(T) \
  template decltype(decode_attention_here<T>) decode_attention_here<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels::impl
