// data/batch_loader.cpp — see batch_loader.hpp.
//
// Batch n lies in buffer n % depth. `made` batches are complete; the consumer has the
// batch `taken` - 1 in use; buffers of earlier ones are free. Of the batches from `taken`
// to `summed` the sums are known: those run ahead of the buffers, by up to a step, and
// for them the thread makes the weights of a batch once more, into one batch of its own.
// For example with depth 4 and steps of 100 batches: sums of 100 batches, memory of 5.
#include "data/batch_loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"

namespace trireme::data {

struct BatchLoader::Ring {
  Ring(const Dataset& dataset, std::function<ColumnRange(index_t)> plan_,
       Options options_)
      : maker(make_sample_maker(dataset)),
        plan(std::move(plan_)),
        options(std::move(options_)),
        weights(options.spec, options.max_columns, options.summed),
        sums(options.summed.size() * most_sums()) {
    TRIREME_REQUIRE(options.depth >= 2, "a ring of {}, expected 2 or more",
                    format_plural(options.depth, "batch", "batches"));
    for (int i = 0; i < options.depth; ++i) {
      buffers.emplace_back(options.spec, options.max_columns, options.fields);
    }
  }

  Batch& buffer(index_t n) {
    return buffers[static_cast<std::size_t>(n % options.depth)];
  }
  // Buffers hold batches taken - 1 (in use, once there is one) to made.
  bool has_room() const {
    const index_t in_use = taken > 0 ? 1 : 0;
    return made - taken + in_use < options.depth;
  }
  std::size_t most_sums() const {
    return extent(std::max<index_t>(options.most_summed, options.depth));
  }
  // The sum of a field of batch n, by the field's place in Options::summed.
  double& sum(index_t n, std::size_t at) {
    return sums[extent(n) % most_sums() * options.summed.size() + at];
  }
  // No batch is made whose sum is not there.
  bool has_sums_to_make() const {
    return !sums.empty() && !sums_end && extent(summed - taken) < most_sums();
  }

  // Until `is_there`, or until it never will be: then Error about batch `last`.
  template <class IsThere>
  void await(std::unique_lock<std::mutex>& lock, index_t last, const IsThere& is_there) {
    changed.wait(lock, [&] { return is_there() || ended; });
    if (!is_there()) fail(last);
  }
  [[noreturn]] void fail(index_t last) const {
    if (failure) std::rethrow_exception(failure);
    throw Error(fmt::format("batch {} was asked for, the plan ends there", last));
  }

  void fill(Batch& batch, const ColumnRange& range) {
    batch.fill(*maker, range.first_sample, range.columns);
  }
  void make_sums() {
    const ColumnRange range = plan(summed);
    if (range.columns > 0) fill(weights, range);
    const std::lock_guard lock(mutex);
    sums_end = range.columns == 0;
    if (!sums_end) {
      for (std::size_t at = 0; at < options.summed.size(); ++at) {
        sum(summed, at) = weights.sum(options.spec.fields[options.summed[at]].name);
      }
      ++summed;
    }
    changed.notify_all();
  }
  // Makes the next batch; false at the end of the plan.
  bool make_batch() {
    const ColumnRange range = plan(made);
    if (range.columns == 0) return false;
    fill(buffer(made), range);
    const std::lock_guard lock(mutex);
    ++made;
    changed.notify_all();
    return true;
  }

  // The thread: a failure ends it, and waits for the consumer.
  void work() {
    try {
      bool goes_on = true;
      while (goes_on) {
        bool makes_sums = false;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stop || has_sums_to_make() || has_room(); });
          if (stop) return;
          makes_sums = has_sums_to_make();
        }
        if (makes_sums) {
          make_sums();
        } else {
          goes_on = make_batch();
        }
      }
    } catch (...) {  // any kind: rethrown by next()
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  std::unique_ptr<SampleMaker> maker;  // the thread's
  std::function<ColumnRange(index_t)> plan;
  Options options;
  std::vector<Batch> buffers;
  Batch weights;  // the fields that are summed, of one batch after the other

  std::mutex mutex;
  std::condition_variable changed;
  index_t made = 0;
  index_t taken = 0;
  index_t summed = 0;
  std::vector<double> sums;  // a ring, of the batches from `taken` to `summed`
  bool sums_end = false;
  bool stop = false;
  bool ended = false;
  std::exception_ptr failure;
  std::thread thread;
};

BatchLoader::BatchLoader(const Dataset& dataset, std::function<ColumnRange(index_t)> plan,
                         Options options)
    : ring_(std::make_unique<Ring>(dataset, std::move(plan), options)) {
  ring_->thread = std::thread([ring = ring_.get()] { ring->work(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(ring_->mutex);
    ring_->stop = true;
  }
  ring_->changed.notify_all();
  ring_->thread.join();
}

const Batch& BatchLoader::next() {
  Ring& ring = *ring_;
  std::unique_lock lock(ring.mutex);
  ring.await(lock, ring.taken, [&] { return ring.made > ring.taken; });
  ++ring.taken;
  ring.changed.notify_all();
  return ring.buffer(ring.taken - 1);
}

double BatchLoader::sum_ahead(index_t batches, std::string_view field) {
  Ring& ring = *ring_;
  const std::vector<std::size_t>& summed = ring.options.summed;
  const auto at = std::ranges::find_if(summed, [&](std::size_t index) {
    return ring.options.spec.fields[index].name == field;
  });
  TRIREME_REQUIRE(at != summed.end() && batches <= ring.options.most_summed,
                  "sums of '{}' over {} ahead are not made (Options::summed)", field,
                  format_plural(batches, "batch", "batches"));
  std::unique_lock lock(ring.mutex);
  const index_t end = ring.taken + batches;
  ring.await(lock, end - 1, [&] { return ring.summed >= end || ring.sums_end; });
  if (ring.summed < end) ring.fail(end - 1);
  double sum = 0.0;
  for (index_t n = 0; n < batches; ++n) {
    sum += ring.sum(ring.taken + n, static_cast<std::size_t>(at - summed.begin()));
  }
  return sum;
}

}  // namespace trireme::data
