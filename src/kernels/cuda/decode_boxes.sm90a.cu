// kernels/cuda/decode_boxes.sm90a.cu — launches decode_layers.hpp with weights that come
// by boxes, and has the driver make the maps of their matrices.
#include <cuda.h>

#include <cstring>

#include "kernels/cuda/decode_launch.cuh"

namespace trireme::cuda {
namespace {

static_assert(sizeof(BoxMap) == sizeof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, which no library is linked for. Null: this driver has none.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  constexpr unsigned kFirstWithIt = 12000;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, kFirstWithIt, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found,
                                                     cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(found);
}

}  // namespace

const char* make_box_maps(const DecodeLayersTask& task, const DecodeLayer* layers,
                          BoxMap* maps) {
  const Encode encode = find_encode();
  if (encode == nullptr)
    return "the driver makes no maps of matrices for copies of boxes";
  for (int layer = 0; layer < task.layer_count; ++layer) {
    for (int m = 0; m < kMatricesOfLayer; ++m) {
      const MatrixSize size = size_of(task, m);
      const cuuint64_t sizes[] = {static_cast<cuuint64_t>(size.columns),
                                  static_cast<cuuint64_t>(size.rows)};
      const cuuint64_t bytes_of_row[] = {2 * sizes[0]};
      const cuuint32_t box[] = {kBoxColumns, kBoxRows};
      const cuuint32_t one_by_one[] = {1, 1};
      CUtensorMap map;
      // Elements are words of 16 bits to it: they are copied, and zeros are zeros.
      const CUresult status = encode(
          &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2,
          const_cast<std::uint16_t*>(layers[layer].weights[m]), sizes, bytes_of_row, box,
          one_by_one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
      if (status != CUDA_SUCCESS) return "the driver makes no map of a weight matrix";
      std::memcpy(&maps[layer * kMatricesOfLayer + m], &map, sizeof(map));
    }
  }
  return nullptr;
}

int decode_blocks_by_boxes(Element element, const DecodeLayersTask& task) {
  return find_encode() != nullptr ? blocks_by<WeightCopies::boxes>(element, task) : 0;
}

const char* decode_layers_by_boxes(void* stream, Element element,
                                   const DecodeLayersTask& task) {
  return launch_by<WeightCopies::boxes>(stream, element, task);
}

}  // namespace trireme::cuda
