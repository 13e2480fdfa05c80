// base/graph_cuda.cpp — a Graph of an NVIDIA GPU: what a stream captures while a function
// launches on it, made into an executable graph.
//
// While a stream captures, this thread may make no call that allocates or waits: CUDA
// then refuses the capture, and the error names the call's status. Times of single
// kernels are not taken in a graph, and idle work between launches has nothing to do.
//
// A kernel that may start early gets an edge of another kind from the one before it: the
// stream's capture is told so before the launch.
#include <cuda_runtime.h>

#include <utility>

#include "base/cuda_status.hpp"
#include "base/early_start.hpp"
#include "base/error.hpp"
#include "base/graph.hpp"

namespace trireme {

namespace {

// Launches are not timed one by one as long as it lives.
class WithoutTimers {
 public:
  explicit WithoutTimers(const Exec& exec) : exec_(exec), timers_(exec.timers()) {
    exec_.set_timers(nullptr);
  }
  ~WithoutTimers() { exec_.set_timers(timers_); }
  WithoutTimers(const WithoutTimers&) = delete;
  WithoutTimers& operator=(const WithoutTimers&) = delete;

 private:
  const Exec& exec_;
  Timers* timers_;
};

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

// Ends the capture of a stream, also where the function has thrown: a stream that is left
// capturing can do nothing else.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture");
  }
  ~Capture() {
    if (!is_open_) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    (void)cudaGetLastError();  // the first error is on its way to the caller
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  CapturedGraph end() {
    is_open_ = false;
    cudaGraph_t graph = nullptr;
    require_cuda(cudaStreamEndCapture(stream_, &graph),
                 "cudaStreamEndCapture (between launches that are captured the host may "
                 "neither wait nor allocate)");
    return CapturedGraph(graph);
  }

 private:
  cudaStream_t stream_;
  bool is_open_ = true;
};

// Of a stream that captures: what its next node will depend on.
struct Dependencies {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
};

#if defined(KOKKOS_ARCH_HOPPER) && CUDART_VERSION >= 12030
constexpr bool kHasEarlyStarts = true;

Dependencies dependencies_of(cudaStream_t stream) {
  Dependencies found;
  const cudaGraphEdgeData* edges = nullptr;
#if CUDART_VERSION >= 13000
  constexpr auto kGetInfo = cudaStreamGetCaptureInfo;
#else
  constexpr auto kGetInfo = cudaStreamGetCaptureInfo_v3;
#endif
  require_cuda(kGetInfo(stream, &found.status, nullptr, nullptr, &found.nodes, &edges,
                        &found.count),
               "cudaStreamGetCaptureInfo");
  return found;
}

// The stream's next node may start when all blocks of this kernel have said so.
void depend_on_starts(cudaStream_t stream, cudaGraphNode_t kernel) {
  cudaGraphEdgeData edge = {};
  edge.from_port = cudaGraphKernelNodePortProgrammatic;
  edge.type = cudaGraphDependencyTypeProgrammatic;
#if CUDART_VERSION >= 13000
  constexpr auto kUpdate = cudaStreamUpdateCaptureDependencies;
#else
  constexpr auto kUpdate = cudaStreamUpdateCaptureDependencies_v2;
#endif
  require_cuda(kUpdate(stream, &kernel, &edge, 1, cudaStreamSetCaptureDependencies),
               "cudaStreamUpdateCaptureDependencies");
}
#else  // before Hopper kernels do not wait, and CUDA before 12.3 has no such edges
constexpr bool kHasEarlyStarts = false;
Dependencies dependencies_of(cudaStream_t) {
  return {};
}
void depend_on_starts(cudaStream_t, cudaGraphNode_t) {}
#endif

}  // namespace

// Behind anything but a single kernel it starts when all of that has ended, and so it
// does behind one whose blocks have to run together, which needs the whole device.
void detail::let_launch_start_early(const Exec& exec) {
  if (!kHasEarlyStarts) return;
  cudaStream_t const stream = exec.space().cuda_stream();
  const Dependencies before = dependencies_of(stream);
  if (before.status != cudaStreamCaptureStatusActive || before.count != 1) return;
  cudaGraphNodeType type;
  require_cuda(cudaGraphNodeGetType(before.nodes[0], &type), "cudaGraphNodeGetType");
  if (type != cudaGraphNodeTypeKernel) return;
  cudaKernelNodeAttrValue together = {};
  require_cuda(cudaGraphKernelNodeGetAttribute(before.nodes[0],
                                               cudaLaunchAttributeCooperative, &together),
               "cudaGraphKernelNodeGetAttribute");
  if (together.cooperative == 0) depend_on_starts(stream, before.nodes[0]);
}

struct Graph::Recorded {
  Recorded() = default;
  ~Recorded() {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  cudaGraphExec_t graph = nullptr;
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::record(const Exec& exec, Launches launches) {
  recorded_.reset();
  const WithoutTimers untimed(exec);
  Capture capture(exec.space().cuda_stream());
  launches(exec);
  const CapturedGraph captured = capture.end();
  auto recorded = std::make_unique<Recorded>();
  require_cuda(cudaGraphInstantiate(&recorded->graph, captured.get(), 0),
               "cudaGraphInstantiate");
  recorded_ = std::move(recorded);
}

bool Graph::is_recorded() const {
  return recorded_ != nullptr;
}

void Graph::replay(const Exec& exec) const {
  TRIREME_REQUIRE(is_recorded(), "a replay of what was not recorded");
  require_cuda(cudaGraphLaunch(recorded_->graph, exec.space().cuda_stream()),
               "cudaGraphLaunch");
}

}  // namespace trireme
