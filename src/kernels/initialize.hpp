// kernels/initialize.hpp — filling and converting flat arrays; normal numbers drawn by
// global element index.
#ifndef TRIREME_KERNELS_INITIALIZE_HPP_
#define TRIREME_KERNELS_INITIALIZE_HPP_

#include "base/exec.hpp"
#include "base/random.hpp"

namespace trireme::kernels {

// values[...] = value.
template <class T>
void fill(const Exec& exec, View1<T> values, T value);

// Runs of elements, few enough for a kernel to take them as an argument.
struct Runs {
  static constexpr int kMost = 16;
  struct Run {
    index_t begin = 0, count = 0;
  };

  Run runs[kMost];
  int size = 0;

  bool is_full() const { return size == kMost; }
  void add(const Run& run) { runs[size++] = run; }
};
// values[i] = 0 for the i of each run.
template <class T>
void zero_runs(const Exec& exec, const Runs& runs, View1<T> values);

// to = from, element by element (rounding to nearest even where To is narrower).
template <class From, class To>
void convert(const Exec& exec, View1<const From> from, View1<To> to);

// A rectangle of a global matrix and where it lies in the local one (both row-major).
struct MatrixWindow {
  index_t global_row, global_column, global_columns;
  index_t local_row, local_column, local_columns;
  index_t rows, columns;
  // The elements of the flat local matrix that there is memory for; no range: all of
  // them. A rank's share may begin and end inside a row.
  index_t begin = 0, end = 0;
};

// Element (i, j) of the global matrix ~ N(0, std^2): a pure function of (generator, i,
// j), bitwise the same on every device (Box-Muller with own polynomials; one Philox call
// gives four elements of a row). `local` is the memory of the window's local matrix.
template <class T>
void fill_normal(const Exec& exec, const random::Generator& generator, double std,
                 const MatrixWindow& window, View1<T> local);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_INITIALIZE_HPP_
