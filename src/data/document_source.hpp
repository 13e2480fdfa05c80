// data/document_source.hpp — text files and JSON lines as a stream of documents that any
// number of ranks can share out.
//
// The inputs, in the order given, are one long range of bytes. Rank r of R reads what
// lies between two *cuts*: the first places at or after r/R and (r+1)/R of the range
// where text may be cut without changing its token ids. That is between documents; and,
// where the tokenizer allows it (Tokenizer::can_cut_before_space), inside a document
// before a space or line feed that follows a character other than white space: GPT-2's
// pattern has no white space but at the front of a piece and none before a lookahead but
// in runs of white space, so such a place is always between two pieces, whatever is on
// either side. Where sentences are looked for, such a place must be before a blank line,
// too.
//
// A compressed input is unpacked as it is read and cannot be cut: it is all of the rank's
// in whose part its first byte lies. Its bytes in the range are those of the file.
#ifndef TRIREME_DATA_DOCUMENT_SOURCE_HPP_
#define TRIREME_DATA_DOCUMENT_SOURCE_HPP_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/compressed_file.hpp"
#include "io/mapped_file.hpp"

namespace trireme::data {

// What is one document of a text file: all of it, every byte; what lies between blank
// lines; or each line. Line ends around documents are not part of them.
enum class Documents { file, blank_line, line };

struct SourceOptions {
  Documents documents = Documents::file;
  std::string json_key = "text";  // of the string to take, in .jsonl
  bool cut_inside_documents = false;
  // Inside documents only before blank lines, which end a sentence whatever is on either
  // side (sentences.hpp).
  bool cut_before_blank_lines_only = false;
  // Compressed inputs are unpacked by so many bytes at a time.
  std::size_t window = std::size_t{4} << 20;
};

// Receives documents: begin, text (once or more, in order), end. A rank may get a
// document without its begin or without its end; another rank has those.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  virtual void begin_document() = 0;
  virtual void text(std::string_view bytes) = 0;
  virtual void end_document() = 0;
};

class DocumentSource {
 public:
  // InputError: no inputs, a missing file, a directory, a file of a format that is not
  // read or not the one of its name, nothing but empty files.
  DocumentSource(const std::vector<std::filesystem::path>& inputs, SourceOptions options);

  std::uint64_t bytes() const { return bytes_; }
  std::size_t inputs() const { return inputs_.size(); }
  std::size_t json_inputs() const;
  std::size_t compressed_inputs() const;
  // Plain texts that are one document each, which is not cut.
  std::size_t whole_documents() const;
  // Of so many ranks those that have nothing to read.
  int idle_ranks(int size) const;

  struct ReadStats {
    std::uint64_t bytes = 0;               // of input, compressed where it is
    std::uint64_t unpacked_bytes = 0;      // of input
    std::uint64_t empty_documents = 0;     // left out
    std::uint64_t replaced_sequences = 0;  // invalid UTF-8 in JSON lines
  };
  // Reads part `rank` of `size`. progress(bytes done, bytes of this part) may be empty.
  ReadStats read(int rank, int size, DocumentSink& sink,
                 const std::function<void(std::uint64_t, std::uint64_t)>& progress) const;

 private:
  struct Input {
    std::filesystem::path path;
    bool json_lines = false;
    io::Compression compression = io::Compression::none;
    std::uint64_t begin = 0;  // in the range of all inputs
    std::uint64_t size = 0;   // there
    io::MappedFile file;      // kept open: mapped pages cost nothing until they are read
    std::string_view text;  // all of it; of a compressed input what is unpacked just now
    bool is_continued = false;       // is there text before `text`?
    std::uint64_t lines_before = 0;  // in it
  };
  struct Place {
    std::size_t input;
    std::size_t offset;
  };
  Place cut_at(std::uint64_t position) const;
  std::size_t next_cut(const Input& input, std::size_t from) const;
  std::size_t late_cut(const Input& input) const;
  std::uint64_t share(int rank, int size) const;
  std::pair<Place, Place> part(int rank, int size) const;
  std::uint64_t position_of(const Place& place) const;

  class Reading;  // one call of read()

  SourceOptions options_;
  std::vector<Input> inputs_;
  std::uint64_t bytes_ = 0;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_DOCUMENT_SOURCE_HPP_
