// data/batch_loader.cpp — see batch_loader.hpp.
#include "data/batch_loader.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"

namespace trireme::data {

// Batch n lies in buffer n % depth. `made` batches are complete; the consumer has the
// batch `taken` - 1 in use; buffers of earlier ones are free.
struct BatchLoader::Ring {
  Ring(const Dataset& dataset_, std::function<ColumnRange(index_t)> plan_,
       Options options_)
      : dataset(dataset_), plan(std::move(plan_)), options(options_) {
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

  // Until so many batches are made that are not taken yet, or never will be.
  void await(std::unique_lock<std::mutex>& lock, index_t batches) {
    const auto are_there = [&] { return made >= taken + batches; };
    if (!are_there() && !ended) {
      const auto start = std::chrono::steady_clock::now();
      changed.wait(lock, [&] { return are_there() || ended; });
      wait_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (are_there()) return;
    if (failure) std::rethrow_exception(failure);
    throw Error(
        fmt::format("batch {} was asked for, the plan ends there", taken + batches - 1));
  }

  // The thread: a failure ends it, and waits for the consumer.
  void work() {
    try {
      while (true) {
        const ColumnRange range = plan(made);
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stop || has_room(); });
          if (stop) return;
          if (range.columns == 0) break;
        }
        buffer(made).fill(dataset, range.first_sample, range.columns,
                          options.mask_end_of_document);
        const std::lock_guard lock(mutex);
        ++made;
        changed.notify_all();
      }
    } catch (...) {  // any kind: rethrown by next()
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  const Dataset& dataset;
  std::function<ColumnRange(index_t)> plan;
  Options options;
  std::vector<Batch> buffers;

  std::mutex mutex;
  std::condition_variable changed;
  index_t made = 0;
  index_t taken = 0;
  bool stop = false;
  bool ended = false;
  std::exception_ptr failure;
  double wait_seconds = 0.0;
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
  ring.await(lock, 1);
  ++ring.taken;
  ring.changed.notify_all();
  return ring.buffer(ring.taken - 1);
}

double BatchLoader::sum_ahead(index_t batches, std::string_view field) {
  Ring& ring = *ring_;
  TRIREME_REQUIRE(batches < ring.options.depth, "{} ahead in a ring of {}", batches,
                  format_plural(ring.options.depth, "batch", "batches"));
  std::unique_lock lock(ring.mutex);
  ring.await(lock, batches);
  double sum = 0.0;
  for (index_t n = 0; n < batches; ++n) sum += ring.buffer(ring.taken + n).sum(field);
  return sum;
}

double BatchLoader::wait_seconds() const {
  const std::lock_guard lock(ring_->mutex);
  return ring_->wait_seconds;
}

}  // namespace trireme::data
