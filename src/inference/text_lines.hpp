// inference/text_lines.hpp — the texts of a file, one a line: the line itself, or of JSON
// lines a string in each object. Lines are found once and texts read as they are asked
// for, so that a file may be larger than memory.
#ifndef TRIREME_INFERENCE_TEXT_LINES_HPP_
#define TRIREME_INFERENCE_TEXT_LINES_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "io/mapped_file.hpp"

namespace trireme::inference {

class TextLines {
 public:
  // `json_key`: of the string in each line's object; empty: lines are texts. InputError:
  // no such file, a compressed one, none with a text.
  TextLines(const std::string& path, std::string json_key);

  index_t size() const { return std::ssize(lines_); }
  index_t blank_lines() const { return blank_; }  // which are no texts
  // Where in the file its line begins.
  std::int64_t offset(index_t i) const {
    return static_cast<std::int64_t>(lines_.at(extent(i)).begin);
  }
  // InputError, with the line's number, where it has no such string.
  std::string text(index_t i) const;

 private:
  struct Line {
    std::uint64_t begin = 0, end = 0;  // bytes, without the line's end
  };
  std::string_view bytes_of(const Line& line) const;

  io::MappedFile file_;
  std::string json_key_;
  std::vector<Line> lines_;
  index_t blank_ = 0;
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_TEXT_LINES_HPP_
