// tests/contracts/launches.cpp — the kernels of src/kernels/cuda/ and what their launches
// ask for, from the headers themselves: for tests/contracts/machine_code.py, which
// compiles and runs this. A line for each kernel, with tabs between:
//
//   file   kernel<arguments> as compilers write it   its name in the table   threads of a
//   block   dynamic shared memory in bytes
//
// A kernel that is in no line here is an error there.
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>

#include "kernels/cuda/attention_backward.hpp"
#include "kernels/cuda/attention_forward.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/decode_layers.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {
namespace {

void print(const char* file, const std::string& kernel, const std::string& name,
           int threads, int shared_bytes) {
  std::printf("%s\t%s\t%s\t%d\t%d\n", file, kernel.c_str(), name.c_str(), threads,
              shared_bytes);
}

std::string instance(const char* kernel, std::initializer_list<std::string> arguments) {
  std::string text = std::string(kernel) + "<";
  for (const std::string& argument : arguments) {
    if (text.back() != '<') text += ", ";
    text += argument;
  }
  return text + ">";
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(Element element) {
  return std::to_string(static_cast<int>(element));
}
std::string name_of(const char* operation, Element element, int head_dim, bool drops,
                    bool has_bias) {
  return std::string(operation) + (element == Element::bf16 ? " bf16" : " fp16") + " d" +
         std::to_string(head_dim) + (drops ? " dropout" : "") + (has_bias ? " bias" : "");
}

struct Forward {
  template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
  static void list() {
    using Block = AttentionForward<kElement, kHeadDim, kDrops, kHasBias>;
    print("attention_forward.cu",
          instance("forward_kernel", {text_of(kElement), std::to_string(kHeadDim),
                                      text_of(kDrops), text_of(kHasBias)}),
          name_of("attention_forward", kElement, kHeadDim, kDrops, kHasBias),
          Block::kThreads, Block::kSharedBytes);
  }
};
struct Backward {
  template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
  static void list() {
    using Block = AttentionBackward<kElement, kHeadDim, kDrops, kHasBias>;
    print("attention_backward.cu",
          instance("backward_kernel", {text_of(kElement), std::to_string(kHeadDim),
                                       text_of(kDrops), text_of(kHasBias)}),
          name_of("attention_backward", kElement, kHeadDim, kDrops, kHasBias),
          Block::kThreads, Block::kSharedBytes);
  }
};
struct Delta {
  template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias>
  static void list() {
    if (kDrops || kHasBias) return;  // it is the same kernel
    using Block = AttentionDelta<kElement, kHeadDim>;
    print("attention_backward.cu",
          instance("delta_kernel", {text_of(kElement), std::to_string(kHeadDim)}),
          name_of("attention_delta", kElement, kHeadDim, kDrops, kHasBias),
          Block::kThreads, 0);
  }
};

// As dispatch() in launch.cuh.
template <class Kernel, Element kElement, bool kHasBias, int... kHeadDims>
void list_sizes(std::integer_sequence<int, kHeadDims...>) {
  (Kernel::template list<kElement, kHeadDims, false, kHasBias>(), ...);
  (Kernel::template list<kElement, kHeadDims, true, kHasBias>(), ...);
}
template <class Kernel>
void list_all() {
  using HeadDims = std::integer_sequence<int, 64, 80, 96, 128>;
  using WithBias = std::integer_sequence<int, 64, 128>;
  list_sizes<Kernel, Element::bf16, false>(HeadDims());
  list_sizes<Kernel, Element::fp16, false>(HeadDims());
  list_sizes<Kernel, Element::bf16, true>(WithBias());
  list_sizes<Kernel, Element::fp16, true>(WithBias());
}

// As with_block() in decode_layers.hpp, whose shared memory is that of GPT-2 124M.
template <Element kElement, int kRows, int kAhead, int kHeadElements,
          WeightCopies kCopies>
void list_decode_layers() {
  DecodeLayersTask task;
  task.layer_count = 12;
  task.hidden = 768;
  task.heads = task.kv_heads = task.hidden / kHeadElements;
  task.head_dim = kHeadElements;
  task.ffn = 4 * task.hidden;
  using Block = DecodeLayers<kElement, kRows, kAhead, kHeadElements, kCopies>;
  constexpr bool kHasBoxes = kCopies == WeightCopies::boxes;
  const std::string name = name_of(kHasBoxes ? "decode_boxes" : "decode_layers", kElement,
                                   kHeadElements, false, false);
  print(kHasBoxes ? "decode_boxes.sm90a.cu" : "decode_layers.cu",
        instance("decode_kernel",
                 {text_of(kElement), std::to_string(kRows), std::to_string(kAhead),
                  std::to_string(kHeadElements), std::to_string(int{kHasBoxes})}),
        name + " texts " + std::to_string(kRows) + " ahead " + std::to_string(kAhead),
        Block::kThreads, Block::shared_bytes(task));
}
template <WeightCopies kCopies, Element kElement, int kHeadElements>
void list_decode_layers() {
  list_decode_layers<kElement, 1, 4, kHeadElements, kCopies>();
  list_decode_layers<kElement, 1, 3, kHeadElements, kCopies>();
  list_decode_layers<kElement, kDecodeRows, 3, kHeadElements, kCopies>();
  list_decode_layers<kElement, kDecodeRows, 2, kHeadElements, kCopies>();
}
template <WeightCopies kCopies>
void list_decode_layers() {
  list_decode_layers<kCopies, Element::bf16, 64>();
  list_decode_layers<kCopies, Element::bf16, 128>();
  list_decode_layers<kCopies, Element::fp16, 64>();
  list_decode_layers<kCopies, Element::fp16, 128>();
}

}  // namespace
}  // namespace trireme::cuda

int main() {
  trireme::cuda::list_all<trireme::cuda::Forward>();
  trireme::cuda::list_all<trireme::cuda::Delta>();
  trireme::cuda::list_all<trireme::cuda::Backward>();
  using trireme::cuda::WeightCopies;
  trireme::cuda::list_decode_layers<WeightCopies::quads>();
  trireme::cuda::list_decode_layers<WeightCopies::boxes>();
  return 0;
}
