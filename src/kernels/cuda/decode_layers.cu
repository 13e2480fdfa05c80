// kernels/cuda/decode_layers.cu — launches decode_layers.hpp: here with weights that come
// by quads, which every GPU has, and in decode_boxes.sm90a.cu by boxes.
#include "kernels/cuda/decode_launch.cuh"

namespace trireme::cuda {

int decode_blocks(Element element, const DecodeLayersTask& task, WeightCopies copies) {
  return copies == WeightCopies::quads ? blocks_by<WeightCopies::quads>(element, task)
                                       : decode_blocks_by_boxes(element, task);
}

const char* decode_layers(void* stream, Element element, const DecodeLayersTask& task) {
  return task.maps == nullptr ? launch_by<WeightCopies::quads>(stream, element, task)
                              : decode_layers_by_boxes(stream, element, task);
}

}  // namespace trireme::cuda
