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
  if (ring.made <= ring.taken && !ring.ended) {
    const auto start = std::chrono::steady_clock::now();
    ring.changed.wait(lock, [&] { return ring.made > ring.taken || ring.ended; });
    ring.wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (ring.made <= ring.taken) {
    if (ring.failure) std::rethrow_exception(ring.failure);
    throw Error(fmt::format("batch {} was asked for, the plan ends there", ring.taken));
  }
  ++ring.taken;
  ring.changed.notify_all();
  return ring.buffer(ring.taken - 1);
}

double BatchLoader::wait_seconds() const {
  const std::lock_guard lock(ring_->mutex);
  return ring_->wait_seconds;
}

}  // namespace trireme::data
