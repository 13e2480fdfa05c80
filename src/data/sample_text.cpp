// data/sample_text.cpp — see sample_text.hpp.
//
// What a maker writes into the fields is printed, and nothing is made anew from the
// corpus: so a mistake between its sample and the model's fields is seen here, too. All
// numbers are taken as double, which holds every int32 and float, so that one way of
// listing them does for all fields. No Batch is filled, whose memory is Kokkos': who
// looks at a corpus computes nothing, and begins without. For example, positions that
// begin anew are "0 ... 5, 0 ... 9".
#include "data/sample_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/plural.hpp"
#include "base/utf8.hpp"

namespace trireme::data {

namespace {

// What an id stands for, on one line.
std::string piece_text(const Tokenizer& tokenizer, double id) {
  const auto number = static_cast<std::int64_t>(id);
  if (number < 0 || number >= tokenizer.vocabulary_size()) {
    return fmt::format("<{}>", number);
  }
  std::string text, line;
  append_repaired(tokenizer.bytes_of(static_cast<TokenId>(number)), text);
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '"' || c == '\\') {
      line += {'\\', c};
    } else if (static_cast<unsigned char>(c) < ' ') {
      line += fmt::format("\\x{:02x}", c);
    } else {
      line += c;
    }
  }
  return line;
}

// "0 ... 7, 0 x 3, 5": three or more that ascend by one, two or more alike.
std::string runs_text(std::span<const double> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t alike = i + 1, ascending = i + 1;
    while (alike < values.size() && values[alike] == values[i]) ++alike;
    while (ascending < values.size() &&
           values[ascending] == values[ascending - 1] + 1.0) {
      ++ascending;
    }
    if (i > 0) text += ", ";
    if (ascending - i > 2) {
      text += fmt::format("{} ... {}", values[i], values[ascending - 1]);
      i = ascending;
    } else {
      text += fmt::format("{}", values[i]);
      if (alike - i > 1) text += fmt::format(" x {}", alike - i);
      i = alike;
    }
  }
  return text;
}

class SampleWriter {
 public:
  SampleWriter(const BatchSpec& spec, SampleMaker& maker, index_t position,
               const Tokenizer& tokenizer)
      : spec_(spec), tokenizer_(tokenizer) {
    std::vector<std::vector<std::int32_t>> numbers(spec.fields.size());
    std::vector<std::vector<float>> weights(spec.fields.size());
    std::vector<SampleColumn> columns;
    for (std::size_t i = 0; i < spec.fields.size(); ++i) {
      const FieldSpec& field = spec.fields[i];
      const index_t rows = spec.elements(field, 1);
      const bool has_weights = field.type() == DType::float32;
      const auto count = static_cast<std::size_t>(rows);
      numbers[i].resize(has_weights ? 0 : count);
      weights[i].resize(has_weights ? count : 0);
      void* const data = has_weights ? static_cast<void*>(weights[i].data())
                                     : static_cast<void*>(numbers[i].data());
      columns.push_back({field.name, {data, 1, rows, field.type()}});
    }
    maker.make(position, columns);
    for (std::size_t i = 0; i < spec.fields.size(); ++i) {
      std::vector<double>& values = values_.emplace_back();
      values.assign(numbers[i].begin(), numbers[i].end());
      values.insert(values.end(), weights[i].begin(), weights[i].end());
    }
  }

  std::string text() const {
    std::size_t width = 0;
    for (const FieldSpec& field : spec_.fields) {
      width = std::max(width, field.name.size());
    }
    std::string lines;
    for (std::size_t stream = 0; stream < spec_.streams.size(); ++stream) {
      const StreamSpec& its = spec_.streams[stream];
      lines += fmt::format("{}, {}\n", its.name, format_plural(its.sequence, "position"));
      for (const FieldSpec& field : spec_.fields) {
        if (field.stream != static_cast<int>(stream)) continue;
        lines += fmt::format("  {:<{}}  {}\n", field.name, width, text_of_field(field));
      }
    }
    return lines;
  }

 private:
  // Of a field of the spec.
  const std::vector<double>& values_of(const FieldSpec& field) const {
    return values_.at(static_cast<std::size_t>(&field - spec_.fields.data()));
  }

  // Positions of a stream that are no padding.
  std::size_t length_of(int stream) const {
    for (const FieldSpec& field : spec_.fields) {
      if (field.stream != stream || field.holds != Holds::lengths) continue;
      return static_cast<std::size_t>(std::max(values_of(field).at(0), 0.0));
    }
    return static_cast<std::size_t>(
        spec_.streams.at(static_cast<std::size_t>(stream)).sequence);
  }

  // Positions of a stream that another one predicts.
  std::vector<double> rows_of(int stream) const {
    std::vector<double> rows;
    for (const FieldSpec& field : spec_.fields) {
      if (field.holds != Holds::rows || field.rows_of != stream) continue;
      const std::vector<double>& more = values_of(field);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    return rows;
  }

  // Words of rows that do not follow each other.
  bool are_apart(int stream) const {
    return std::ranges::any_of(spec_.fields, [&](const FieldSpec& field) {
      return field.stream == stream && field.holds == Holds::rows;
    });
  }

  std::string text_of_field(const FieldSpec& field) const {
    const std::vector<double>& values = values_of(field);
    if (field.holds != Holds::words || field.per == Per::sample) return runs_text(values);
    return are_apart(field.stream) ? list_of_words(values)
                                   : text_of_words(field.stream, values);
  }

  std::string list_of_words(std::span<const double> ids) const {
    std::string list;
    for (const double id : ids) {
      list +=
          fmt::format("{}\"{}\"", list.empty() ? "" : ", ", piece_text(tokenizer_, id));
    }
    return list;
  }

  std::string text_of_words(int stream, std::span<const double> ids) const {
    const std::size_t length = std::min(length_of(stream), ids.size());
    const std::vector<double> rows = rows_of(stream);
    std::string text;
    for (std::size_t i = 0; i < length; ++i) {
      std::string piece = piece_text(tokenizer_, ids[i]);
      const bool has_space = piece.starts_with(' ');
      if (has_space) piece.erase(0, 1);
      if (has_space && (i > 0 || !tokenizer_.model().drops_first_space())) text += ' ';
      const bool is_row = std::ranges::find(rows, static_cast<double>(i)) != rows.end();
      text += is_row ? fmt::format("{{{}}}", piece) : piece;
    }
    text = fmt::format("\"{}\"", text);
    if (length < ids.size()) {
      text += fmt::format(" and {} of padding", ids.size() - length);
    }
    return text;
  }

  const BatchSpec& spec_;
  const Tokenizer& tokenizer_;
  std::vector<std::vector<double>> values_;  // of each field
};

}  // namespace

std::string sample_text(const BatchSpec& spec, SampleMaker& maker, index_t position,
                        const Tokenizer& tokenizer) {
  return SampleWriter(spec, maker, position, tokenizer).text();
}

}  // namespace trireme::data
