// inference/evaluation_progress.hpp — the file from which an evaluation goes on that was
// killed: sums of what is done, and what they are of. JSON, replaced as a whole.
#ifndef TRIREME_INFERENCE_EVALUATION_PROGRESS_HPP_
#define TRIREME_INFERENCE_EVALUATION_PROGRESS_HPP_

#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "inference/evaluation.hpp"
#include "io/files.hpp"

namespace trireme::inference {

class ProgressFile {
 public:
  // Collective. Reads the file where there is one; an empty path keeps none. `identity`:
  // JSON that is the same where the same would be computed. InputError where the file is
  // none of these, or of another evaluation. `objectives`: of the model, so many.
  ProgressFile(comm::Communicator& world, const io::Path& path,
               const std::string& identity, std::size_t sets, std::size_t objectives);

  const EvaluationSums& sums(std::size_t set) const { return sums_.at(set); }
  // Rank 0. What cannot be written is a warning, once: the evaluation goes on.
  void save(std::size_t set, const EvaluationSums& sums, Log& log);

 private:
  void read(const std::string& text, const std::string& identity);

  io::Path path_;
  std::string identity_;
  std::size_t objectives_;
  std::vector<EvaluationSums> sums_;
  bool has_warned_ = false;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_EVALUATION_PROGRESS_HPP_
