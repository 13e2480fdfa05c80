// data/document_source.cpp — see document_source.hpp.
//
// Cuts are found from the bytes alone, by every rank for itself: rank r looks forward
// from byte r/R of the range for the first place that may be cut, and rank r + 1 finds
// the same place as its beginning. Example: 100 bytes for 4 ranks, with lines of 30 bytes
// that are documents: the cuts are at 0, 30, 60 and 90, and each rank reads one line but
// the last, which reads what is left. A document is handed on in blocks, so that one of
// many gigabytes needs little memory.
//
// A compressed input is unpacked into a window of some MiB. What lies before a cut near
// the window's end is read like a part of a file, and the rest moves to the front of the
// next window, which is larger where there was no cut: a line or document that must not
// be cut is held whole.
#include "data/document_source.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "data/sentence_characters.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

// Long documents are handed on in blocks of about this size.
constexpr std::size_t kBlock = std::size_t{1} << 20;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

// White space (Unicode's White_Space) right before text[at]? Looks at bytes only, so that
// in invalid UTF-8 it may find some where there is none: a cut is then not made there.
bool is_space_before(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t back) {
    return at >= back ? static_cast<unsigned char>(text[at - back]) : 0;
  };
  const unsigned char last = byte(1);
  if (last < 0x80) return last == ' ' || (last >= '\t' && last <= '\r');
  if (byte(2) == 0xC2) return last == 0x85 || last == 0xA0;
  const unsigned lead = byte(3) << 8 | byte(2);
  switch (lead) {
    case 0xE19A:
      return last == 0x80;
    case 0xE280:
      return last <= 0x8A || last == 0xA8 || last == 0xA9 || last == 0xAF;
    case 0xE281:
      return last == 0x9F;
    case 0xE380:
      return last == 0x80;
    default:
      return false;
  }
}

// Does the white space from text[at] on begin with a line end, hold another one, and have
// text behind it?
bool is_blank_line_behind(std::string_view text, std::size_t at) {
  if (text[at] != '\n' && text[at] != '\r') return false;
  const Blanks blanks = blanks_at(text, at);
  return blanks.line_ends >= 2 && blanks.end < text.size();
}

// Start of the line after the one that text[from - 1] is in; `from` where a line starts.
std::size_t line_start(std::string_view text, std::size_t from) {
  if (from == 0 || text[from - 1] == '\n') return from;
  const std::size_t end = text.find('\n', from);
  return end == std::string_view::npos ? text.size() : end + 1;
}

// The line at `begin` without its end; `next` is where the following one starts.
std::string_view line_at(std::string_view text, std::size_t begin, std::size_t& next) {
  const std::size_t end = text.find('\n', begin);
  next = end == std::string_view::npos ? text.size() : end + 1;
  std::string_view line =
      text.substr(begin, (end == std::string_view::npos ? text.size() : end) - begin);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

// How the input's bytes are compressed, which its name must not contradict.
io::Compression find_compression(const std::filesystem::path& path,
                                 std::string_view text) {
  const io::Compression found = io::compression_of(text.substr(0, 4));
  const io::Compression promised = io::promised_compression(path);
  TRIREME_REQUIRE_INPUT(promised == io::Compression::none || promised == found,
                        "input '{}' has the name of a {} file, but what is in it is {}: "
                        "name it by what it is, or get the whole file anew",
                        path.string(), io::name_of(promised),
                        text.empty() ? "nothing" : io::name_of(found));
  return found;
}

bool has_json_lines(const std::filesystem::path& path) {
  const bool is_packed = io::promised_compression(path) != io::Compression::none;
  const auto extension = is_packed ? path.stem().extension() : path.extension();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

struct Format {
  std::string_view name;
  std::string_view fix = "unpack it first";
};

// A format that is not text, told by its beginning. What the name of bzip2 alone begins
// with may be text; behind it and a digit comes the mark of a block, or of the end.
std::optional<Format> format_of(std::string_view text) {
  using namespace std::string_view_literals;
  constexpr std::size_t kTarMark = 257;  // bytes into an archive
  constexpr std::size_t kBzip2Block = 4;
  constexpr std::string_view kTake = "take the text out of it first";
  constexpr std::pair<std::string_view, Format> kFormats[] = {
      {"\x1F\x8B"sv, {"gzip"}},
      {"\x28\xB5\x2F\xFD"sv, {"zstd"}},
      {"\xFD\x37zXZ"sv, {"xz"}},
      {"PK\x03\x04"sv, {"zip"}},
      {"\x89HDF"sv, {"HDF5", kTake}},
      {"\x89PNG"sv, {"PNG", kTake}},
      {"%PDF-"sv, {"PDF", kTake}},
      // The longer mark of two that begin alike comes first.
      {"\xFF\xFE\0\0"sv, {"UTF-32", "make it UTF-8 first: iconv -f UTF-32 -t UTF-8"}},
      {"\0\0\xFE\xFF"sv, {"UTF-32", "make it UTF-8 first: iconv -f UTF-32 -t UTF-8"}},
      {"\xFF\xFE"sv, {"UTF-16", "make it UTF-8 first: iconv -f UTF-16 -t UTF-8"}},
      {"\xFE\xFF"sv, {"UTF-16", "make it UTF-8 first: iconv -f UTF-16 -t UTF-8"}},
  };
  for (const auto& [magic, format] : kFormats) {
    if (text.starts_with(magic)) return format;
  }
  if (text.size() > kBzip2Block && text.starts_with("BZh")) {
    const std::string_view block = text.substr(kBzip2Block);
    if (block.starts_with("1AY&SY") || block.starts_with("\x17\x72\x45\x38\x50\x90"))
      return Format{"bzip2"};
  }
  if (text.size() > kTarMark && text.substr(kTarMark).starts_with("ustar"))
    return Format{"tar"};
  return std::nullopt;
}

void refuse_formats(const std::filesystem::path& path, std::string_view text) {
  const std::optional<Format> found = format_of(text);
  if (!found) return;
  throw InputError(
      fmt::format("input '{}' is a {} file, expected plain text or JSON lines: {}",
                  path.string(), found->name, found->fix));
}

}  // namespace

DocumentSource::DocumentSource(const std::vector<std::filesystem::path>& inputs,
                               SourceOptions options)
    : options_(std::move(options)) {
  TRIREME_REQUIRE_INPUT(!inputs.empty(), "no input files to tokenize");
  for (const auto& path : inputs) {
    TRIREME_REQUIRE_INPUT(!std::filesystem::is_directory(path),
                          "input '{}' is a directory: name the files in it",
                          path.string());
    Input input;
    input.path = path;
    input.json_lines = has_json_lines(path);
    input.begin = bytes_;
    input.size = io::file_size(path, "text file");
    if (input.size > 0) {
      input.file = io::MappedFile(path, io::MappedFile::Access::sequential, "text file");
      input.text = {reinterpret_cast<const char*>(input.file.data()),
                    static_cast<std::size_t>(input.file.size())};
    }
    input.compression = find_compression(path, input.text);
    if (input.compression == io::Compression::none) {
      input.size = input.text.size();
      refuse_formats(path, input.text);
    } else {
      input.text = {};
      input.file = {};
    }
    bytes_ += input.size;
    inputs_.push_back(std::move(input));
  }
  TRIREME_REQUIRE_INPUT(
      bytes_ > 0, "nothing to tokenize: {} empty",
      inputs.size() == 1
          ? fmt::format("input '{}' is", inputs[0].string())
          : fmt::format("all {} are", format_plural(inputs.size(), "input")));
}

std::size_t DocumentSource::json_inputs() const {
  return static_cast<std::size_t>(std::ranges::count(inputs_, true, &Input::json_lines));
}

std::size_t DocumentSource::compressed_inputs() const {
  return static_cast<std::size_t>(std::count_if(
      inputs_.begin(), inputs_.end(),
      [](const Input& input) { return input.compression != io::Compression::none; }));
}

std::size_t DocumentSource::whole_documents() const {
  if (options_.documents != Documents::file || options_.cut_inside_documents) return 0;
  return static_cast<std::size_t>(
      std::count_if(inputs_.begin(), inputs_.end(), [](const Input& input) {
        return input.compression == io::Compression::none && !input.json_lines &&
               input.size > 0;
      }));
}

// The first place at or after `from` where this input may be cut.
std::size_t DocumentSource::next_cut(const Input& input, std::size_t from) const {
  const std::string_view text = input.text;
  if (from == 0 || from >= text.size()) return std::min(from, text.size());
  if (input.json_lines || options_.documents == Documents::line) {
    return line_start(text, from);
  }
  if (options_.documents == Documents::blank_line) {
    // A cut comes after a blank line. The line that `from` is in may begin before it.
    const std::size_t before = text.rfind('\n', from - 1);
    std::size_t at = before == std::string_view::npos ? 0 : before + 1;
    if (at == from && at > 0) {
      const std::size_t previous = at >= 2 ? text.rfind('\n', at - 2) : text.npos;
      at = previous == std::string_view::npos ? 0 : previous + 1;
    }
    while (at < text.size()) {
      std::size_t next = 0;
      if (is_blank(line_at(text, at, next)) && next >= from) return next;
      at = next;
    }
    return text.size();
  }
  if (!options_.cut_inside_documents) return text.size();
  for (std::size_t at = from; at < text.size(); ++at) {
    const bool may_cut = options_.cut_before_blank_lines_only
                             ? is_blank_line_behind(text, at)
                             : text[at] == ' ' || text[at] == '\n';
    if (may_cut && !is_space_before(text, at)) return at;
  }
  return text.size();
}

// A cut near the end of text that goes on; 0 where it has none. A cut does not depend on
// what comes after it, but the end of the text is none.
std::size_t DocumentSource::late_cut(const Input& input) const {
  const std::size_t size = input.text.size();
  for (std::size_t back = std::size_t{1} << 12; size > 1; back *= 8) {
    const std::size_t from = size > back ? size - back : 1;
    const std::size_t cut = next_cut(input, from);
    if (cut < size) return cut;
    if (from == 1) break;
  }
  return 0;
}

DocumentSource::Place DocumentSource::cut_at(std::uint64_t position) const {
  std::size_t index = 0;
  while (index + 1 < inputs_.size() && inputs_[index + 1].begin <= position) ++index;
  const Input& input = inputs_[index];
  const auto offset = static_cast<std::size_t>(position - input.begin);
  // The end of an input is the beginning of the next.
  if (input.compression != io::Compression::none)
    return {index + (offset > 0 ? 1 : 0), 0};
  const std::size_t cut = next_cut(input, offset);
  if (cut == input.text.size()) return {index + 1, 0};
  return {index, cut};
}

// The first byte of this rank's share of the range; 128 bits, as bytes times ranks may
// exceed 64.
std::uint64_t DocumentSource::share(int rank, int size) const {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes_) * rank / size);
}

// From where to where this rank of so many reads.
std::pair<DocumentSource::Place, DocumentSource::Place> DocumentSource::part(
    int rank, int size) const {
  return {rank == 0 ? Place{0, 0} : cut_at(share(rank, size)),
          rank + 1 == size ? Place{inputs_.size(), 0} : cut_at(share(rank + 1, size))};
}

// In the range of all inputs.
std::uint64_t DocumentSource::position_of(const Place& place) const {
  return place.input < inputs_.size() ? inputs_[place.input].begin + place.offset
                                      : bytes_;
}

// As by part() of every rank; but a cut that lies behind the next share, too, is not
// looked for again, so that a text is gone through once at most.
int DocumentSource::idle_ranks(int size) const {
  int idle = 0;
  std::uint64_t from = 0;
  for (int rank = 0; rank < size; ++rank) {
    const std::uint64_t next = share(rank + 1, size);
    const std::uint64_t to = next > from ? position_of(cut_at(next)) : from;
    if (from >= to) ++idle;
    from = to;
  }
  return idle;
}

// What one call of read() keeps.
class DocumentSource::Reading {
 public:
  Reading(const DocumentSource& source, DocumentSink& sink)
      : source_(source), sink_(sink) {}

  // Bytes [begin, end) of an input, both cuts; calls done(bytes) after each block.
  template <class Done>
  void range(const Input& input, std::size_t begin, std::size_t end, const Done& done) {
    if (input.json_lines) {
      lines(input, begin, end, done, [&](std::string_view line, std::size_t at) {
        if (!is_blank(line)) whole_document(text_of(input, line, at));
      });
    } else if (source_.options_.documents == Documents::line) {
      lines(input, begin, end, done, [&](std::string_view line, std::size_t) {
        whole_document(is_blank(line) ? std::string_view() : line);
      });
    } else if (source_.options_.documents == Documents::blank_line) {
      paragraphs(input, begin, end, done);
    } else {
      if (begin == 0 && !input.is_continued) sink_.begin_document();
      while (begin < end) {
        const std::size_t to = std::min(end, source_.next_cut(input, begin + kBlock));
        sink_.text(input.text.substr(begin, to - begin));
        done(to - begin);
        begin = to;
      }
      if (end == input.text.size()) sink_.end_document();
    }
  }

  // A compressed input, all of it; calls done(bytes) with those of the file.
  template <class Done>
  void compressed(const Input& input, const Done& done) {
    io::CompressedFile file(input.path, input.compression);
    Input window;
    window.path = input.path;
    window.json_lines = input.json_lines;
    std::string text;  // what is left of the window before, and what follows it
    std::size_t left = 0;
    bool is_end = false;
    while (!is_end) {
      const std::uint64_t before = file.position();
      text.resize(left + std::max(left, source_.options_.window));
      const std::size_t size = left + file.read(text.data() + left, text.size() - left);
      is_end = size < text.size();
      window.text = std::string_view(text).substr(0, size);
      // What the window cuts may be white space, which would count as text behind a cut.
      if (!is_end) window.text.remove_suffix(unfinished_suffix(window.text));
      if (!window.is_continued) refuse_formats(input.path, window.text);
      const std::size_t cut = is_end ? size : source_.late_cut(window);
      take(window, cut);
      left = size - cut;
      text.erase(0, cut);
      done(static_cast<std::size_t>(file.position() - before));
    }
    if (!window.is_continued) ++stats.empty_documents;
  }

  ReadStats stats;

 private:
  // The window up to a cut. What comes next continues it.
  void take(Input& window, std::size_t cut) {
    if (cut == 0) return;
    range(window, 0, cut, [](std::size_t) {});
    stats.unpacked_bytes += cut;
    window.is_continued = true;
    window.lines_before += static_cast<std::uint64_t>(std::count(
        window.text.begin(), window.text.begin() + static_cast<long>(cut), '\n'));
  }

  void whole_document(std::string_view text) {
    if (text.empty()) {
      ++stats.empty_documents;
      return;
    }
    sink_.begin_document();
    sink_.text(text);
    sink_.end_document();
  }

  template <class Done, class Each>
  void lines(const Input& input, std::size_t begin, std::size_t end, const Done& done,
             const Each& each) {
    std::size_t reported = begin;
    while (begin < end) {
      std::size_t next = 0;
      each(line_at(input.text, begin, next), begin);
      begin = next;
      if (begin - reported >= kBlock) {
        done(begin - reported);
        reported = begin;
      }
    }
    done(end - reported);
  }

  // Runs of lines that are not blank; the line feed of the last one is left out.
  template <class Done>
  void paragraphs(const Input& input, std::size_t begin, std::size_t end,
                  const Done& done) {
    constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t first = kNone, last = 0;  // of the paragraph being read
    const auto finish = [&] {
      if (first != kNone) whole_document(input.text.substr(first, last - first));
      first = kNone;
    };
    lines(input, begin, end, done, [&](std::string_view line, std::size_t at) {
      if (is_blank(line)) {
        finish();
        return;
      }
      if (first == kNone) first = at;
      last = at + line.size();
    });
    finish();
  }

  // The text of a JSON line; valid until the next call.
  std::string_view text_of(const Input& input, std::string_view line, std::size_t at) {
    using Json = nlohmann::json;
    // Only an error needs the number: lines are counted then.
    const auto number = [&] {
      return 1 + static_cast<std::int64_t>(input.lines_before) +
             std::count(input.text.begin(), input.text.begin() + static_cast<long>(at),
                        '\n');
    };
    const auto place = [&] {
      return fmt::format("{}:{}", input.path.string(), number());
    };
    line = valid_utf8(line, repaired_, stats.replaced_sequences);
    const std::string& key = source_.options_.json_key;
    Json object;
    try {
      object = io::parse_json<Json>(line);
    } catch (const io::JsonError& error) {
      throw InputError(fmt::format("{}; expected one object per line",
                                   error.in_file(input.path.string(), number())));
    }
    TRIREME_REQUIRE_INPUT(object.is_object(), "{}: expected a JSON object, found {}",
                          place(), object.type_name());
    const auto found = object.find(key);
    if (found == object.end()) {
      std::string keys;
      for (const auto& item : object.items())
        keys += (keys.empty() ? "" : ", ") + item.key();
      throw InputError(
          fmt::format("{}: the object has no key '{}', its keys are: {}. Name "
                      "the one with the text by --json-key",
                      place(), key, keys.empty() ? "none" : keys));
    }
    TRIREME_REQUIRE_INPUT(found->is_string(), "{}: '{}' is {}, expected a string",
                          place(), key, found->type_name());
    text_ = std::move(found->get_ref<std::string&>());
    return text_;
  }

  const DocumentSource& source_;
  DocumentSink& sink_;
  std::string repaired_;
  std::string text_;
};

DocumentSource::ReadStats DocumentSource::read(
    int rank, int size, DocumentSink& sink,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  const auto [from, to] = part(rank, size);
  const std::uint64_t planned = position_of(to) - position_of(from);
  Reading reading(*this, sink);
  if (rank == 0) {
    reading.stats.empty_documents = static_cast<std::uint64_t>(std::count_if(
        inputs_.begin(), inputs_.end(), [](const Input& i) { return i.size == 0; }));
  }
  // This is asked where a text has errors, too: they may be those of a file that was cut.
  const auto require_uncut = [&] {
    for (const Input& input : inputs_) input.file.require_uncut();
  };
  const auto done = [&](std::size_t bytes) {
    reading.stats.bytes += bytes;
    if (progress) {
      progress(reading.stats.bytes, std::max(planned, reading.stats.bytes));
    }
  };
  try {
    for (std::size_t index = from.input; index < inputs_.size() && index <= to.input;
         ++index) {
      const Input& input = inputs_[index];
      const std::size_t begin = index == from.input ? from.offset : 0;
      const auto end =
          static_cast<std::size_t>(index == to.input ? to.offset : input.size);
      if (begin >= end) continue;
      if (input.compression != io::Compression::none) {
        reading.compressed(input, done);
      } else {
        reading.range(input, begin, end, done);
        reading.stats.unpacked_bytes += end - begin;
      }
    }
  } catch (const InputError&) {
    require_uncut();
    throw;
  }
  require_uncut();
  return reading.stats;
}

}  // namespace trireme::data
