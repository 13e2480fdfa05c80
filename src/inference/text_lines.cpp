// inference/text_lines.cpp — see text_lines.hpp.
#include "inference/text_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/words.hpp"
#include "io/compressed_file.hpp"
#include "io/json.hpp"

namespace trireme::inference {

TextLines::TextLines(const std::string& path, std::string json_key)
    : file_(path, io::MappedFile::Access::sequential, "file of texts"),
      json_key_(std::move(json_key)) {
  const std::string_view all = bytes_of({0, file_.size()});
  const io::Compression compression = io::compression_of(all.substr(0, 4));
  TRIREME_REQUIRE_INPUT(compression == io::Compression::none,
                        "'{}' is compressed ({}): unpack it first", path,
                        io::name_of(compression));
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    const bool has_return = end > begin && all[end - 1] == '\r';
    const Line line{begin, has_return ? end - 1 : end};
    if (trimmed(bytes_of(line)).empty()) {
      ++blank_;
    } else {
      lines_.push_back(line);
    }
    begin = end + 1;
  }
  TRIREME_REQUIRE_INPUT(!lines_.empty(),
                        "'{}' has no text: expected one text a line, or with --jsonl one "
                        "JSON object a line",
                        path);
}

std::string_view TextLines::bytes_of(const Line& line) const {
  return {reinterpret_cast<const char*>(file_.data()) + line.begin,
          line.end - line.begin};
}

std::string TextLines::text(index_t i) const {
  const Line& line = lines_.at(extent(i));
  const std::string_view bytes = bytes_of(line);
  if (json_key_.empty()) return std::string(bytes);
  // Counted for a message alone.
  const auto number = [&] {
    const std::string_view before = bytes_of({0, line.begin});
    return std::ranges::count(before, '\n') + 1;
  };
  nlohmann::json object;
  try {
    object = io::parse_json<nlohmann::json>(bytes);
  } catch (const io::JsonError& error) {
    throw InputError(error.in_file(file_.path().string(), number()));
  }
  const bool has_text =
      object.is_object() && object.contains(json_key_) && object[json_key_].is_string();
  TRIREME_REQUIRE_INPUT(has_text,
                        "{}:{}: expected an object with a string \"{}\" (--key names "
                        "another)",
                        file_.path().string(), number(), json_key_);
  return object[json_key_].get<std::string>();
}

}  // namespace trireme::inference
