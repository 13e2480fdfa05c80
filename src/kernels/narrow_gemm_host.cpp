// kernels/narrow_gemm_host.cpp — products of 16-bit elements on host cores.
//
// Native products are those of impl/amx_gemm.hpp where the CPU has matrix tiles and both
// sides of C have 32 elements or more; else oneDNN's matmul, whose primitives are made
// once per shape. Widened ones are those of impl/vector_gemm.hpp. The way belongs to the
// queue and not to the process, because ranks and restarts have to agree on it: it is
// recorded with the run.
#include "kernels/narrow_gemm.hpp"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/impl/activation.hpp"
#include "kernels/impl/amx_gemm.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/thread_count.hpp"
#include "kernels/impl/vector_gemm.hpp"

namespace trireme::kernels {

namespace impl {

CpuModel this_cpu() {
  CpuModel cpu;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return cpu;
  for (const unsigned part : {b, d, c}) {
    for (int byte = 0; byte < 4; ++byte) {
      cpu.vendor += static_cast<char>(part >> (8 * byte));
    }
  }
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned base_family = a >> 8 & 0xfu;
  const unsigned extended = base_family == 0xf ? a >> 20 & 0xffu : 0u;
  cpu.family = static_cast<int>(base_family + extended);
  cpu.model = static_cast<int>((a >> 4 & 0xfu) | (a >> 12 & 0xf0u));
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    cpu.has_amx_bf16 = (d >> 22 & 1u) != 0;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    cpu.has_avx512_bf16 = (a >> 5 & 1u) != 0;
  }
#endif
  return cpu;
}

NarrowProducts fastest_products(DType type, const CpuModel& cpu) {
  // CPUs on which native products of bf16 were measured to be the faster. GFLOP/s of two
  // cores, products of 1024^3:
  //                                          native bf16    float
  //   Sapphire Rapids with AMX               1300-1940     250-285
  //   guests told of model 167, with AMX     2750-2890     400-440
  //   EPYC Turin (Zen 5), dot products         850-985     475-490
  //   EPYC Genoa (Zen 4), dot products         380-447     205-218
  // and on which not: Intel's without AMX in their guest, whose dot products of bf16 run
  // at 178 against 358 (vdpbf16ps: half the rate); Ice Lake, whose bf16 oneDNN emulates;
  // EPYC with AVX2. No host library here has native products of fp16.
  struct Measured {
    const char* vendor;
    int family, model;
    bool CpuModel::*needs;
  };
  // Some hosts tell their guests of another model than the CPU is. The real model 167 has
  // no AMX.
  constexpr Measured kFastNative[] = {
      {"GenuineIntel", 6, 143, &CpuModel::has_amx_bf16},
      {"GenuineIntel", 6, 167, &CpuModel::has_amx_bf16},
      {"AuthenticAMD", 25, 17, &CpuModel::has_avx512_bf16},
      {"AuthenticAMD", 26, 2, &CpuModel::has_avx512_bf16},
  };
  if (type != DType::bfloat16) return NarrowProducts::widened;
  const bool is_measured = std::ranges::any_of(kFastNative, [&](const Measured& known) {
    return cpu.vendor == known.vendor && cpu.family == known.family &&
           cpu.model == known.model && cpu.*known.needs;
  });
  return is_measured ? NarrowProducts::native : NarrowProducts::widened;
}

namespace {

void require_success(dnnl_status_t status, const char* what) {
  TRIREME_REQUIRE(status == dnnl_success, "oneDNN {}: status {}", what,
                  static_cast<int>(status));
}

// Closes what a C interface opened.
template <class Handle, dnnl_status_t (*destroy)(Handle)>
struct Close {
  using pointer = Handle;
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, dnnl_status_t (*destroy)(Handle)>
using Owned = std::unique_ptr<void, Close<Handle, destroy>>;

using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;

dnnl_memory_desc_t matrix_desc(index_t rows, index_t columns, Transpose transpose,
                               index_t leading, dnnl_data_type_t type) {
  const dnnl_dims_t dims = {rows, columns};
  const bool is_transposed = transpose == Transpose::yes;
  const dnnl_dims_t strides = {is_transposed ? 1 : leading, is_transposed ? leading : 1};
  dnnl_memory_desc_t desc;
  require_success(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides),
                  "matrix");
  return desc;
}

// A native product of one shape: made once, run with any memory.
class NativeProduct {
 public:
  // Null where this CPU has none.
  static std::unique_ptr<NativeProduct> make(dnnl_engine_t engine, const Product& product,
                                             dnnl_data_type_t to) {
    const auto a =
        matrix_desc(product.m, product.k, product.transpose_a, product.lda, dnnl_bf16);
    const auto b =
        matrix_desc(product.k, product.n, product.transpose_b, product.ldb, dnnl_bf16);
    const auto c = matrix_desc(product.m, product.n, Transpose::no, product.ldc, to);
    dnnl_matmul_desc_t desc;
    require_success(dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &c), "matmul");
    dnnl_primitive_attr_t attributes = nullptr;
    require_success(dnnl_primitive_attr_create(&attributes), "attributes");
    if (product.accumulate == Accumulate::yes) {
      dnnl_post_ops_t sum = nullptr;
      require_success(dnnl_post_ops_create(&sum), "sum");
      require_success(dnnl_post_ops_append_sum(sum, 1.0f), "sum");
      require_success(dnnl_primitive_attr_set_post_ops(attributes, sum), "sum");
      dnnl_post_ops_destroy(sum);
    }
    dnnl_primitive_desc_t primitive_desc = nullptr;
    const dnnl_status_t found =
        dnnl_primitive_desc_create(&primitive_desc, &desc, attributes, engine, nullptr);
    dnnl_primitive_attr_destroy(attributes);
    if (found == dnnl_unimplemented) return nullptr;
    require_success(found, "matmul");
    auto made = std::make_unique<NativeProduct>();
    dnnl_primitive_t primitive = nullptr;
    const dnnl_status_t created = dnnl_primitive_create(&primitive, primitive_desc);
    dnnl_primitive_desc_destroy(primitive_desc);
    require_success(created, "matmul");
    made->primitive_.reset(primitive);
    const dnnl_memory_desc_t* const descs[] = {&a, &b, &c};
    for (std::size_t i = 0; i < 3; ++i) {
      dnnl_memory_t memory = nullptr;
      require_success(dnnl_memory_create(&memory, descs[i], engine, DNNL_MEMORY_NONE),
                      "memory");
      made->memory_[i].reset(memory);
    }
    return made;
  }

  void run(dnnl_stream_t stream, const void* a, const void* b, void* c) const {
    const int roles[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    // The interface takes no pointer to const; sources are only read.
    void* const data[] = {const_cast<void*>(a), const_cast<void*>(b), c};
    dnnl_exec_arg_t arguments[3];
    for (std::size_t i = 0; i < 3; ++i) {
      require_success(dnnl_memory_set_data_handle(memory_[i].get(), data[i]), "memory");
      arguments[i] = {roles[i], memory_[i].get()};
    }
    require_success(dnnl_primitive_execute(primitive_.get(), stream, 3, arguments),
                    "matmul");
    require_success(dnnl_stream_wait(stream), "matmul");
  }

 private:
  Primitive primitive_;
  std::array<Memory, 3> memory_;
};

// Whether the library may use the CPU's dot products of bf16.
bool has_dot_products() {
  constexpr int kDots = dnnl_cpu_isa_avx512_core_bf16;
  return (dnnl_get_effective_cpu_isa() & kDots) == kDots;
}

// What a queue keeps for these products.
class State final : public LibraryState {
 public:
  State() {
    has_tiles_ = may_use_amx();
    CpuModel cpu = this_cpu();
    // Not where the system or the user denies them.
    cpu.has_amx_bf16 = has_tiles_;
    cpu.has_avx512_bf16 = cpu.has_avx512_bf16 && has_dot_products();
    bf16_way = fastest_products(DType::bfloat16, cpu);
    fp16_way = fastest_products(DType::float16, cpu);
  }
  NarrowProducts& way(DType type) {
    TRIREME_REQUIRE(has_product_ways(type), "{} is no 16-bit type",
                    trireme::name_of(type));
    return type == DType::bfloat16 ? bf16_way : fp16_way;
  }
  // Null where this CPU has no such product.
  const NativeProduct* native(const Product& product, dnnl_data_type_t to) {
    open_engine();
    const auto key = std::pair(product, to);
    auto found = products_.find(key);
    if (found == products_.end()) {
      found =
          products_.emplace(key, NativeProduct::make(engine_.get(), product, to)).first;
    }
    return found->second.get();
  }
  dnnl_stream_t stream() const { return stream_.get(); }
  // Whether a product of bf16 is computed on matrix tiles.
  bool takes_tiles(const Product& product) const {
    constexpr index_t kLeast = 32;  // below, most of a tile would be empty
    return has_tiles_ && bf16_way == NarrowProducts::native && product.m >= kLeast &&
           product.n >= kLeast;
  }
  // By what native products are computed. Without tiles they are all the library's, which
  // emulates them where the CPU has no dot products of bf16.
  std::string_view native_name() const {
    if (has_tiles_) return "AMX tiles";
    return has_dot_products() ? "AVX-512 BF16" : "emulated";
  }
  // For products on tiles.
  ProductParts& parts() { return parts_; }
  // What products of a type take of it at most, and what all have taken.
  std::size_t workspace_bytes(DType type) {
    if (way(type) == NarrowProducts::widened) return vector_workspace_bytes();
    return has_tiles_ ? workspaces_bytes(kAmxWorkspaceBytes) : 0;
  }
  std::size_t kept_bytes() const { return parts_.kept_bytes(); }

 private:
  void open_engine() {
    if (engine_ != nullptr) return;
    dnnl_engine_t engine = nullptr;
    require_success(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    require_success(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags),
                    "stream");
    stream_.reset(stream);
  }
  NarrowProducts bf16_way, fp16_way;
  bool has_tiles_ = false;
  ProductParts parts_;
  Engine engine_;
  Stream stream_;
  std::map<std::pair<Product, dnnl_data_type_t>, std::unique_ptr<NativeProduct>>
      products_;
};

State& state_of(const Exec& exec) {
  return exec.library<State>([] { return std::make_unique<State>(); });
}

void amx_product(const Exec& exec, State& state, const FusedProduct<bf16>& task) {
  const index_t threads = thread_count();
  const std::vector<PartOfC>& parts = state.parts().of(
      task.product, [=](const Product& product) { return amx_parts(product, threads); });
  std::byte* const workspace = state.parts().workspaces(kAmxWorkspaceBytes);
  const auto count = static_cast<index_t>(parts.size());
  const index_t workers = std::min(threads, count);
  launch(exec, "trireme::kernels::amx_product", workers,
         [=, &task, &parts](index_t worker) {
           for (index_t part = worker; part < count; part += workers) {
             amx_part(task, parts[extent(part)],
                      workspace + extent(worker) * kAmxWorkspaceBytes);
           }
         });
}

// The same function of an element as in activation_forward(), so that what is made again
// has the same bits.
template <Activation kActivation, class T>
void activate_row(const T* z, T* y, index_t count) {
  TRIREME_INDEPENDENT_ITERATIONS
  for (index_t j = 0; j < count; ++j) {
    y[j] = static_cast<T>(activated<kActivation, T>(static_cast<float>(z[j])));
  }
}

template <class T>
auto row_function(Activation activation) {
  using Function = decltype(FusedProduct<T>::activate);
  return with_activation(activation, [](auto which) -> Function {
    constexpr Activation kActivation = decltype(which)::value;
    if constexpr (kActivation == Activation::none) {
      return nullptr;
    } else {
      return activate_row<kActivation, T>;
    }
  });
}

}  // namespace

std::size_t workspaces_bytes(std::size_t of_thread) {
  return extent(thread_count()) * of_thread + kLine;
}

std::byte* ProductParts::workspaces(std::size_t of_thread) {
  if (memory_.extent(0) == 0) {
    memory_ = DeviceArray<std::byte>(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "packed operands"),
        workspaces_bytes(of_thread));
  }
  return first_line(memory_.data());
}

std::vector<PartOfC> parts_of_tiles(const Product& product, index_t tile_rows,
                                    index_t tile_columns, index_t row_parts,
                                    index_t column_parts) {
  const auto begin = [](index_t n, index_t tile, index_t parts, index_t part) {
    return std::min(n, ceil_divide(n, tile) * part / parts * tile);
  };
  const auto row = [&](index_t part) {
    return begin(product.m, tile_rows, row_parts, part);
  };
  const auto column = [&](index_t part) {
    return begin(product.n, tile_columns, column_parts, part);
  };
  std::vector<PartOfC> parts;
  for (index_t c = 0; c < column_parts; ++c) {
    for (index_t r = 0; r < row_parts; ++r) {
      parts.push_back({row(r), row(r + 1), column(c), column(c + 1)});
    }
  }
  return parts;
}

template <class T, class To>
void narrow_product(const Exec& exec, const Product& product, const T* a, const T* b,
                    To* c) {
  State& state = state_of(exec);
  if (state.way(dtype_of<T>) == NarrowProducts::widened) {
    vector_product<T>(exec, {.product = product,
                             .a = a,
                             .b = b,
                             .c = c,
                             .is_c_float = std::is_same_v<To, float>});
    return;
  }
  if constexpr (std::is_same_v<T, bf16>) {
    if (state.takes_tiles(product)) {
      amx_product(exec, state,
                  {.product = product,
                   .a = a,
                   .b = b,
                   .c = c,
                   .is_c_float = std::is_same_v<To, float>});
      return;
    }
  }
  const auto* const native =
      state.native(product, std::is_same_v<To, float> ? dnnl_f32 : dnnl_bf16);
  TRIREME_REQUIRE(native != nullptr, "oneDNN has no product of bf16 for this CPU");
  native->run(state.stream(), a, b, c);
}

template <class T>
bool fuses_forward(const Exec& exec, const Product& product) {
  State& state = state_of(exec);
  return state.way(dtype_of<T>) == NarrowProducts::widened ||
         (std::is_same_v<T, bf16> && state.takes_tiles(product));
}

namespace {

template <class T>
FusedProduct<T> forward_task(const Product& product, const View2<const T>& x,
                             const View2<const T>& weight, const Epilogue<T>& epilogue,
                             const View2<T>& y) {
  const auto data_of = [](const auto& view) {
    return view.extent(0) == 0 ? nullptr : view.data();
  };
  const auto leading = [](const auto& view) {
    return static_cast<index_t>(view.stride(0));
  };
  return {.product = product,
          .a = x.data(),
          .b = weight.data(),
          .c = y.data(),
          .bias = data_of(epilogue.bias),
          .residual = data_of(epilogue.residual),
          .ld_residual = leading(epilogue.residual),
          .pre_activation = data_of(epilogue.pre_activation),
          .ld_pre_activation = leading(epilogue.pre_activation),
          .activate = row_function<T>(epilogue.activation)};
}

}  // namespace

template <class T>
void fused_forward(const Exec& exec, const Product& product, View2<const T> x,
                   View2<const T> weight, const Epilogue<T>& epilogue, View2<T> y) {
  const auto task = forward_task<T>(product, x, weight, epilogue, y);
  if constexpr (std::is_same_v<T, bf16>) {
    State& state = state_of(exec);
    if (state.takes_tiles(product)) {
      amx_product(exec, state, task);
      return;
    }
  }
  vector_product<T>(exec, task);
}

#define TRIREME_INSTANTIATE(T)                                                \
  template bool fuses_forward<T>(const Exec&, const Product&);                \
  template void fused_forward<T>(const Exec&, const Product&, View2<const T>, \
                                 View2<const T>, const Epilogue<T>&, View2<T>);
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(fp16)
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(T)                                                        \
  template void narrow_product<T, T>(const Exec&, const Product&, const T*, const T*, \
                                     T*);                                             \
  template void narrow_product<T, float>(const Exec&, const Product&, const T*,       \
                                         const T*, float*);
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(fp16)
#undef TRIREME_INSTANTIATE

}  // namespace impl

void set_narrow_products(const Exec& exec, DType type, NarrowProducts products) {
  TRIREME_REQUIRE_INPUT(
      has_narrow_products(exec, type, products),
      "this CPU's library has no native products of {}; precision.gemm: widened computes "
      "them in float",
      name_of(type));
  impl::state_of(exec).way(type) = products;
}

bool has_narrow_products(const Exec& exec, DType type, NarrowProducts products) {
  if (products == NarrowProducts::widened) return true;
  const impl::Product one{Transpose::no, Transpose::no, Accumulate::no, 1, 1, 1, 1, 1, 1};
  return type == DType::bfloat16 &&
         impl::state_of(exec).native(one, dnnl_bf16) != nullptr;
}

NarrowProducts narrow_products(const Exec& exec, DType type) {
  return has_product_ways(type) ? impl::state_of(exec).way(type) : NarrowProducts::native;
}

std::string_view product_instructions(const Exec& exec, DType type) {
  if (!has_product_ways(type)) return "native";
  impl::State& state = impl::state_of(exec);
  return state.way(type) == NarrowProducts::widened ? "widened" : state.native_name();
}

std::size_t product_workspace_bytes(const Exec& exec, DType type) {
  return has_product_ways(type) ? impl::state_of(exec).workspace_bytes(type) : 0;
}

std::size_t kept_by_products(const Exec& exec) {
  return impl::state_of(exec).kept_bytes() + impl::vector_kept_bytes(exec);
}

}  // namespace trireme::kernels
