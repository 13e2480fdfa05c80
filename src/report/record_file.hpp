// report/record_file.hpp — a file that grows by whole records.
//
// Each record is one write, past no buffer of ours, so that a killed run leaves at most
// its last one torn. Rank 0 only.
#ifndef TRIREME_REPORT_RECORD_FILE_HPP_
#define TRIREME_REPORT_RECORD_FILE_HPP_

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/files.hpp"

namespace trireme::report {

class RecordFile {
 public:
  // existing: records come behind what the file holds.
  RecordFile(const io::Path& path, io::FileWriter::Mode mode);

  // A failed write (a full disk) throws Error that names the file; what of the record was
  // written is taken back.
  void append(std::string_view record);
  // Onto stable storage.
  void sync();
  // Reports write errors that a file system has held back. Nothing is written after it.
  void close();

  const io::Path& path() const { return path_; }

 private:
  io::Path path_;
  std::unique_ptr<io::FileWriter> writer_;
  std::uint64_t size_ = 0;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RECORD_FILE_HPP_
