// engine/shape_pass.hpp — the passes of one micro-batch on shapes alone: arenas that only
// count, inputs without memory. What they need, and what they would send, is then known.
#ifndef TRIREME_ENGINE_SHAPE_PASS_HPP_
#define TRIREME_ENGINE_SHAPE_PASS_HPP_

#include "engine/memory_plan.hpp"

namespace trireme::engine {

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
                 .params = use} {
    const auto rows = static_cast<std::size_t>(shape.rows());
    const View1<const std::int32_t> ids(static_cast<const std::int32_t*>(nullptr), rows);
    const View1<const float> mask(static_cast<const float*>(nullptr), rows);
    batch_ = {ids, ids, ids, mask};
  }
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  void forward() {
    saved.reset();
    shapes_.chunk.forward(context_, 0, batch_, none_, none_, totals());
  }
  void backward() {
    shapes_.chunk.backward(context_, 0, batch_, none_, none_, model::WeightPass::now);
  }

  static View1<double> totals() { return {static_cast<double*>(nullptr), 2}; }

  Arena saved, scratch, held;

 private:
  ModelState<T>& shapes_;
  Exec exec_ = Exec::shape_only();
  nn::Context context_;  // refers to the members above
  model::Batch batch_;
  model::Boundary<T> none_;
};

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_SHAPE_PASS_HPP_
