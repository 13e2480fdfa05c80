// report/record_file.cpp — see record_file.hpp.
#include "report/record_file.hpp"

#include <utility>

#include "base/error.hpp"

namespace trireme::report {

RecordFile::RecordFile(const io::Path& path, io::FileWriter::Mode mode)
    : path_(path),
      writer_(std::make_unique<io::FileWriter>(path, mode)),
      size_(io::file_size(path)) {}

void RecordFile::append(std::string_view record) {
  TRIREME_REQUIRE(writer_ != nullptr, "'{}' has been closed", path_.string());
  try {
    writer_->write_at(size_, record.data(), record.size());
  } catch (const Error&) {
    writer_->cut(size_);  // else whoever reads the file later copes with a torn record
    throw;
  }
  size_ += record.size();
}

void RecordFile::sync() {
  if (writer_) writer_->sync();
}

void RecordFile::close() {
  if (const auto writer = std::exchange(writer_, nullptr)) writer->close();
}

}  // namespace trireme::report
