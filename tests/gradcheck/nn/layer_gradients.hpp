// tests/gradcheck/nn/layer_gradients.hpp — the gradient check of one layer, alone or
// split over a tensor group: by its input and by every parameter in its registry, so that
// a new parameter cannot be left out.
//
// On several ranks a point is the whole of a tensor: the parts of all ranks one after the
// other where it is split, the one tensor where it is not. Parts may differ in size: of
// 13 rows of a vocabulary two ranks have 7 and 6, and what pads them is in no point. All
// ranks walk through the same points together.
#ifndef TRIREME_TESTS_GRADCHECK_NN_LAYER_GRADIENTS_HPP_
#define TRIREME_TESTS_GRADCHECK_NN_LAYER_GRADIENTS_HPP_

#include <cstring>
#include <numeric>

#include "support/gradcheck.hpp"
#include "unit/nn/layer_run.hpp"

namespace trireme::test {

class LayerGradients {
 public:
  using Point = std::vector<double>;

  LayerGradients(
      const NamedLayer<double>& which, double dropout,
      std::shared_ptr<comm::Communicator> tensor = comm::make_self_communicator("tensor"))
      : run_(which, dropout, std::move(tensor)) {}

  // `components`: of each tensor, looked at one by one.
  void expect_right(std::size_t components) {
    options_.components = components;
    options_.step = 2e-3;
    compute();
    if (run_.layer.in > 0) {
      const bool is_split = run_.layer.splits_x;
      const Range mine = is_split ? my_range(d_x_.size()) : Range{0, d_x_.size()};
      expect("x", gather(run_.x.values(), is_split), gather(d_x_, is_split),
             [&](const Point& p) { run_.x.set(mine.of(p)); });
    }
    const ParamRegistry& registry = run_.bench.registry;
    ASSERT_GT(registry.size(), 0u);
    for (std::size_t i = 0; i < registry.size(); ++i) {
      const bool is_split = !registry.spec(i).shard.is_replicated();
      const std::size_t size = gradients_[i].size();
      const Range mine = is_split ? my_range(size) : Range{0, size};
      expect(registry.spec(i).name, gather(run_.bench.get(Slab::weight, i), is_split),
             gather(gradients_[i], is_split),
             [&](const Point& p) { run_.bench.set(Slab::weight, i, mine.of(p)); });
    }
  }

 private:
  struct Range {
    Point of(const Point& whole) const {
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(offset);
      return {begin, begin + static_cast<std::ptrdiff_t>(size)};
    }
    std::size_t offset;
    std::size_t size;
  };

  // Gradients at the point where everything is, added to what the slab holds.
  void compute() {
    auto& bench = run_.bench;
    const Point before = uniform(bench.get(Slab::gradient).size(), 77, -0.5, 0.5);
    bench.set(Slab::gradient, before);
    bench.spoil_memory();
    run_.all();
    d_x_ = run_.d_x.values();
    for (std::size_t i = 0; i < bench.registry.size(); ++i) {
      gradients_.push_back(bench.get(Slab::gradient, i));
      const auto offset = static_cast<std::size_t>(bench.params.offset(i));
      for (std::size_t j = 0; j < gradients_[i].size(); ++j) {
        gradients_[i][j] -= before[offset + j];
      }
    }
  }

  template <class Set>
  void expect(const std::string& name, const Point& at, const Point& gradient,
              const Set& set) {
    double norm = 0;
    for (const double component : gradient) norm += component * component;
    EXPECT_GT(std::sqrt(norm), 1e-4) << name << " plays no part: nothing was checked";
    const auto f = [&](const Point& p) {
      set(p);
      return run_.objective();
    };
    EXPECT_TRUE(check_gradient(f, at, gradient, options_)) << name;
    set(at);
  }

  // The parts of all ranks; or the one there is, after a look that all ranks have it.
  Point gather(const Point& mine, bool is_split) {
    std::string bytes(mine.size() * sizeof(double), '\0');
    std::memcpy(bytes.data(), mine.data(), bytes.size());
    Point all;
    for (const std::string& theirs : run_.bench.groups.tensor->control().gather(bytes)) {
      if (!is_split) {
        EXPECT_TRUE(theirs == bytes) << "ranks disagree about a tensor they share";
        continue;
      }
      Point values(theirs.size() / sizeof(double));
      std::memcpy(values.data(), theirs.data(), theirs.size());
      all.insert(all.end(), values.begin(), values.end());
    }
    return is_split ? all : mine;
  }
  // Where this rank's part lies in the whole of a split tensor.
  Range my_range(std::size_t size) {
    const Point sizes = gather({static_cast<double>(size)}, true);
    const auto mine = sizes.begin() + run_.bench.groups.tensor->rank();
    return {static_cast<std::size_t>(std::accumulate(sizes.begin(), mine, 0.0)), size};
  }

  LayerRun<double> run_;
  GradientCheckOptions options_;
  Point d_x_;
  std::vector<Point> gradients_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_GRADCHECK_NN_LAYER_GRADIENTS_HPP_
