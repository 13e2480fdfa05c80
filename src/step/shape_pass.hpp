// step/shape_pass.hpp — the passes of one micro-batch on shapes alone: arenas that only
// count, inputs without memory. What they need, and what they would send, is then known.
#ifndef TRIREME_STEP_SHAPE_PASS_HPP_
#define TRIREME_STEP_SHAPE_PASS_HPP_

#include "step/memory_plan.hpp"

namespace trireme::step {

// Of a state that is not allocated; `use` is told of the parameters in use, if given.
template <class T>
class ShapePass {
 public:
  ShapePass(ModelState<T>& shapes, const StepShape& shape, ParamUse* use = nullptr)
      : shapes_(shapes),
        context_{.exec = exec_,
                 .groups = shapes.groups,
                 .step = {},
                 .saved = saved,
                 .scratch = scratch,
                 .held = held,
                 .sequence = shape.sequence,
                 .batch = shape.micro,
                 .sequence_parallel = shapes.sequence_parallel(),
                 .params = use,
                 .recompute = shape.recompute} {
    const auto rows = static_cast<std::size_t>(shape.rows());
    const View1<const std::int32_t> ids(static_cast<const std::int32_t*>(nullptr), rows);
    const View1<const float> mask(static_cast<const float*>(nullptr), rows);
    batch_ = {ids, ids, ids, mask};
  }
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  void forward(int chunk = 0) {
    saved.reset();
    model::GptChunk<T>& of = shapes_.chunk(chunk);
    of.forward(context_, 0, batch_, border(of, of.range().is_first),
               border(of, of.range().is_last), totals());
  }
  void backward(int chunk = 0, model::WeightPass weight_pass = model::WeightPass::now) {
    model::GptChunk<T>& of = shapes_.chunk(chunk);
    of.backward(context_, 0, batch_, border(of, of.range().is_last),
                border(of, of.range().is_first), weight_pass);
  }
  void backward_weight(int chunk = 0) {
    shapes_.chunk(chunk).backward_weight(context_, 0, batch_);
  }
  // Elements of what goes from chunk to chunk.
  index_t border_elements() const {
    const auto shape = shapes_.chunk(0).boundary(context_).tensors[0].value;
    return static_cast<index_t>(shape.extent(0) * shape.extent(1));
  }

  static View1<double> totals() { return {static_cast<double*>(nullptr), 2}; }

  Arena saved, scratch, held;

 private:
  model::Boundary<T> border(const model::GptChunk<T>& chunk, bool is_end) const {
    return is_end ? model::Boundary<T>() : chunk.boundary(context_);
  }

  ModelState<T>& shapes_;
  Exec exec_ = Exec::shape_only();
  nn::Context context_;  // refers to the members above
  model::Batch batch_;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_SHAPE_PASS_HPP_
