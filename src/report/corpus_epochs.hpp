// report/corpus_epochs.hpp — how often a run goes through a corpus that it trains on.
#ifndef TRIREME_REPORT_CORPUS_EPOCHS_HPP_
#define TRIREME_REPORT_CORPUS_EPOCHS_HPP_

#include <string>

namespace trireme::report {

struct CorpusEpochs {
  std::string path;
  double epochs = 0.0;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_CORPUS_EPOCHS_HPP_
