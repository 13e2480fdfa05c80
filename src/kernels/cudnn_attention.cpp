// kernels/cudnn_attention.cpp — see impl/cudnn_attention.hpp. The only file that includes
// cuDNN: its front end, whose headers describe a graph of operations to the library.
//
// Tensors are (b, a, s, d) to the library; the strides say that s is outermost, as in all
// activations. Its statistics are the logarithms of the sums of exponentials, (b, a,
// s_q), as attention_forward()'s are, so that one may run forward and the other backward.
#include "kernels/impl/cudnn_attention.hpp"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/attention.hpp"

namespace cudnn_frontend {
// The front end looks the library's functions up here.
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace trireme::kernels::impl {

namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Shape = CudnnAttentionShape;

// How operands are named to the library.
enum Name : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };

void check(fe::error_t status, const char* what) {
  TRIREME_REQUIRE(status.is_good(), "cuDNN: {}: {}. precision.attention: own needs none",
                  what, status.get_message());
}
void check(cudnnStatus_t status, const char* what) {
  TRIREME_REQUIRE(status == CUDNN_STATUS_SUCCESS,
                  "cuDNN: {}: {}. precision.attention: own needs none", what,
                  fe::detail::get_error_string(status));
}

CudnnLibrary load_library() {
  CudnnLibrary library;
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle == nullptr) {
    const char* why = dlerror();
    library.problem = why == nullptr ? "the loader does not say why" : why;
    return library;
  }
  const std::size_t version = fe::detail::get_backend_version();  // 91900 is 9.19.0
  library.version =
      fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return library;
}

void require_library() {
  TRIREME_REQUIRE(!cudnn_library().version.empty(),
                  "precision.attention: cudnn needs NVIDIA's cuDNN 9, which the loader "
                  "does not find ({}): load its module, add its directory to "
                  "LD_LIBRARY_PATH, or set precision.attention: own",
                  cudnn_library().problem);
}

class Builder {
 public:
  Builder(fe::graph::Graph& graph, const Shape& shape) : graph_(graph), shape_(shape) {}

  Tensor in(const char* name, Name uid, index_t heads, index_t length,
            const HeadStrides& strides) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim(dims(heads, length))
                             .set_stride(strides_of(strides)));
  }
  void out(const Tensor& tensor, Name uid, index_t heads, index_t length,
           const HeadStrides& strides) const {
    tensor->set_output(true)
        .set_uid(uid)
        .set_dim(dims(heads, length))
        .set_stride(strides_of(strides));
  }
  // (b, a, s_q, 1), contiguous, of float.
  template <class Statistics>
  Statistics& as_lse(Statistics& statistics) const {
    return statistics.set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({shape_.batch, shape_.heads, shape_.q_length, 1})
        .set_stride({shape_.heads * shape_.q_length, shape_.q_length, 1, 1});
  }
  void add() const {
    const Tensor q = in("q", kQ, shape_.heads, shape_.q_length, shape_.q);
    const Tensor k = in("k", kK, shape_.kv_heads, shape_.kv_length, shape_.k);
    const Tensor v = in("v", kV, shape_.kv_heads, shape_.kv_length, shape_.v);
    if (shape_.pass == Shape::Pass::forward) {
      add_forward(q, k, v);
    } else {
      add_backward(q, k, v);
    }
  }

 private:
  std::vector<std::int64_t> dims(index_t heads, index_t length) const {
    return {shape_.batch, heads, length, shape_.head_dim};
  }
  std::vector<std::int64_t> strides_of(const HeadStrides& strides) const {
    return {strides.batch, shape_.head_dim, strides.sequence, 1};
  }
  // A query sees the keys up to its own position, the last query the last key.
  template <class Attributes>
  void set_mask(Attributes& attributes) const {
    attributes.set_attn_scale(static_cast<float>(shape_.scale));
    if (!shape_.is_causal) return;
    attributes.set_diagonal_alignment(shape_.q_length == shape_.kv_length
                                          ? fe::DiagonalAlignment_t::TOP_LEFT
                                          : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    attributes.set_diagonal_band_right_bound(0);
  }
  void add_forward(const Tensor& q, const Tensor& k, const Tensor& v) const {
    auto attributes =
        fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
    set_mask(attributes);
    const auto [o, lse] = graph_.sdpa(q, k, v, attributes);
    out(o, kO, shape_.heads, shape_.q_length, shape_.o);
    as_lse(lse->set_output(true));
  }
  void add_backward(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Tensor o = in("o", kO, shape_.heads, shape_.q_length, shape_.o);
    const Tensor d_o = in("d_o", kDO, shape_.heads, shape_.q_length, shape_.d_o);
    auto statistics = fe::graph::Tensor_attributes().set_name("lse");
    const Tensor lse = graph_.tensor(as_lse(statistics));
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("backward")
                          .set_deterministic_algorithm(shape_.is_deterministic);
    set_mask(attributes);
    const auto [d_q, d_k, d_v] = graph_.sdpa_backward(q, k, v, o, d_o, lse, attributes);
    out(d_q, kDQ, shape_.heads, shape_.q_length, shape_.d_q);
    out(d_k, kDK, shape_.kv_heads, shape_.kv_length, shape_.d_k);
    out(d_v, kDV, shape_.kv_heads, shape_.kv_length, shape_.d_v);
  }

  fe::graph::Graph& graph_;
  const Shape& shape_;
};

}  // namespace

struct Cudnn::Device {
  cudnnHandle_t handle = nullptr;
  // Instead of a handle, where there is no GPU.
  std::shared_ptr<fe::DeviceProperties> properties;
  int architecture = 0;
};

Cudnn::Cudnn(std::unique_ptr<Device> device) : device_(std::move(device)) {}

Cudnn::Cudnn(void* stream) : device_(std::make_unique<Device>()) {
  require_library();
  check(fe::detail::create_handle(&device_->handle), "cudnnCreate");
  check(fe::detail::set_stream(device_->handle, static_cast<cudaStream_t>(stream)),
        "cudnnSetStream");
}

std::unique_ptr<Cudnn> Cudnn::of_description(const std::string& json, int architecture) {
  require_library();
  auto device = std::make_unique<Device>();
  device->properties = std::make_shared<fe::DeviceProperties>();
  device->architecture = architecture;
  check(device->properties->deserialize({json.begin(), json.end()}),
        "the description of a GPU");
  return std::unique_ptr<Cudnn>(new Cudnn(std::move(device)));
}

Cudnn::~Cudnn() {
  if (device_->handle != nullptr) fe::detail::destroy_handle(device_->handle);
}

struct CudnnAttention::Graph {
  fe::graph::Graph graph;
};

CudnnAttention::CudnnAttention(const Cudnn& cudnn, const CudnnAttentionShape& shape)
    : shape_(shape), graph_(std::make_unique<Graph>()) {
  const Cudnn::Device& device = cudnn.device();
  fe::graph::Graph& graph = graph_->graph;
  graph
      .set_io_data_type(shape.type == DType::bfloat16 ? fe::DataType_t::BFLOAT16
                                                      : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (device.properties) {
    graph.set_device_properties(device.properties).set_sm_version(device.architecture);
  }
  Builder(graph, shape_).add();
  check(graph.validate(), "attention's graph");
  check(device.properties ? graph.build_operation_graph()
                          : graph.build_operation_graph(device.handle),
        "attention's operations");
  check(graph.create_execution_plans({fe::HeurMode_t::A}), "a plan for attention");
  check(graph.check_support(), "attention's plan for this GPU");
  check(graph.build_plans(), "attention's plan");
  std::int64_t bytes = 0;
  check(graph.get_workspace_size(bytes), "the size of attention's workspace");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::run(const Cudnn& cudnn, const CudnnAttentionOperands& operands,
                         void* workspace) const {
  // The library writes its outputs only, whatever the constness of what it is given.
  const auto given = [](const void* data) { return const_cast<void*>(data); };
  std::unordered_map<std::int64_t, void*> memory{{kQ, given(operands.q)},
                                                 {kK, given(operands.k)},
                                                 {kV, given(operands.v)},
                                                 {kO, operands.o},
                                                 {kLse, operands.lse}};
  if (shape_.pass == Shape::Pass::backward) {
    memory.insert({{kDO, given(operands.d_o)},
                   {kDQ, operands.d_q},
                   {kDK, operands.d_k},
                   {kDV, operands.d_v}});
  }
  check(graph_->graph.execute(cudnn.device().handle, memory, workspace), "attention");
}

bool is_for_cudnn(DType type, const AttentionDesc& desc) {
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  const bool has_mask = (desc.mask == MaskKind::none || desc.mask == MaskKind::causal) &&
                        desc.query_lengths == nullptr && !desc.has_bias;
  return is_narrow && has_mask && desc.dropout == 0.0 && has_cudnn_heads(desc.head_dim) &&
         desc.scale > 0.0 && desc.batch > 0 && desc.q_length > 1 &&
         desc.kv_length >= desc.q_length;
}

}  // namespace trireme::kernels::impl

namespace trireme::kernels {

bool has_cudnn_attention() {
  return true;
}
const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary library = impl::load_library();
  return library;
}

}  // namespace trireme::kernels
