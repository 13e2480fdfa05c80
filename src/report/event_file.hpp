// report/event_file.hpp — TensorBoard's event files: the curves of a run, one file for
// each of its starts.
//
// A file is a sequence of records, each of the length (8 bytes), its CRC, the data, and
// its CRC, little-endian. A CRC is that of Castagnoli, rotated and moved by a constant,
// so that data which holds CRCs has useful ones of its own. The data of a record is one
// message of Protocol Buffers, tensorflow.Event; the first says which version of them the
// file has. A message that says START has readers drop all that earlier files say of its
// step and those that follow: what a run has taken back as it went on from a checkpoint.
//
// Both are written by hand here: of their fields we need six, and Debian has no library
// for C++ that writes such files, but for TensorFlow's own.
// Formats: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto of TensorFlow, which TensorBoard's Python
// package has as tensorboard/compat; https://protobuf.dev/programming-guides/encoding.
#ifndef TRIREME_REPORT_EVENT_FILE_HPP_
#define TRIREME_REPORT_EVENT_FILE_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/files.hpp"
#include "report/record_file.hpp"

namespace trireme::report {

// CRC-32C (Castagnoli), as RFC 3720 defines it.
std::uint32_t crc32c(std::string_view data);
// The data with length and CRCs, as it stands in the file.
std::string framed_record(std::string_view data);

// A point of a curve. TensorBoard puts curves together whose tags are alike up to the
// first slash.
struct Scalar {
  std::string tag;
  double value = 0.0;  // the file has it as a float, NaN and infinity, too
};

// Messages. Times are seconds since 1970.
std::string version_event(double time);
// What follows goes on at this step.
std::string start_event(double time, std::int64_t step);
// Bytes of a tag that are not UTF-8, which readers would refuse, become U+FFFD.
std::string scalars_event(double time, std::int64_t step,
                          const std::vector<Scalar>& scalars);

// Which start a file is of: events.out.tfevents.SECONDS.HOST.START.
struct EventFileName {
  double time = 0.0;  // when it began
  std::string host;
  std::int64_t start = 0;  // its number
};

// Rank 0 only. A failed write throws Error that names the file; what of the record was
// written is taken back.
class EventFile {
 public:
  // A new file in the directory, which is made where it is not there. TensorBoard reads
  // files in the order of their names, and each only as long as there is no next one:
  // where the clock has been set back, or has not moved, the seconds are those of the
  // newest file and one more. `first_step` is where this start goes on.
  EventFile(const io::Path& directory, const EventFileName& name,
            std::int64_t first_step);

  void write(double time, std::int64_t step, const std::vector<Scalar>& scalars);
  void sync() { file_.sync(); }
  void close() { file_.close(); }
  const io::Path& path() const { return file_.path(); }

 private:
  RecordFile file_;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_EVENT_FILE_HPP_
