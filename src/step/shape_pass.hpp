// step/shape_pass.hpp — the passes of one micro-batch on shapes alone: arenas that only
// count, inputs without memory. What they need, and what they would send, is then known.
#ifndef TRIREME_STEP_SHAPE_PASS_HPP_
#define TRIREME_STEP_SHAPE_PASS_HPP_

#include <vector>

#include "base/types.hpp"
#include "model/chunk.hpp"
#include "nn/context.hpp"
#include "step/memory_plan.hpp"
#include "tensor/param_use.hpp"

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
                 .saved = &saved,
                 .scratch = scratch,
                 .held = held,
                 .batch = shape.micro_batch(shapes.blueprint.batch),
                 .sequence_parallel = shapes.sequence_parallel(),
                 .params = use,
                 .recompute = shape.recompute} {}
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  void forward(int chunk = 0) {
    saved.reset();
    model::Chunk<T>& of = shapes_.chunk(chunk);
    of.forward(context_, 0, tensors(of.border_in()), tensors(of.border_out()));
  }
  void backward(int chunk = 0, model::WeightPass weight_pass = model::WeightPass::now) {
    model::Chunk<T>& of = shapes_.chunk(chunk);
    of.backward(context_, 0, tensors(of.border_out()), tensors(of.border_in()),
                weight_pass);
  }
  void backward_weight(int chunk = 0) {
    shapes_.chunk(chunk).backward_weight(context_, 0);
  }
  // Of what goes from chunk to chunk.
  std::vector<BorderElements> border_elements() const {
    std::vector<BorderElements> all;
    for (const auto& chunk : shapes_.chunks) {
      all.push_back({model::elements_of(context_, chunk->border_in()),
                     model::elements_of(context_, chunk->border_out())});
    }
    return all;
  }

  static View1<double> totals() { return {static_cast<double*>(nullptr), 2}; }

  Arena saved, scratch, held;

 private:
  model::Tensors<T> tensors(const model::Border& border) const {
    return model::tensors_of<T>(context_, border, nullptr);
  }

  ModelState<T>& shapes_;
  Exec exec_ = Exec::shape_only();
  nn::Context context_;  // refers to the members above
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_SHAPE_PASS_HPP_
