// report/event_file.cpp — see event_file.hpp.
//
// A message of Protocol Buffers is a sequence of fields, each with a key (its number, and
// how long it is) before its value. Two kinds of values are enough here: numbers of fixed
// size, and lengths with so many bytes, which may be a text or another message; and
// variable-length numbers for keys, lengths, steps and the status of a start.
#include "report/event_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "io/atomic_file.hpp"

namespace trireme::report {

namespace {

constexpr std::string_view kNamePrefix = "events.out.tfevents.";

// Each entry is what eight zero bits make of a byte; bits go from the lowest up.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78;
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReflectedPolynomial : 0);
    }
    table[byte] = rest;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

std::uint32_t masked_crc(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8u;
}

// The lowest `bytes` bytes, the lowest first.
void append_fixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// Seven bits a byte, the lowest first; all bytes but the last have the highest bit.
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Writes the fields of one message.
class MessageWriter {
 public:
  MessageWriter& number(int field, std::int64_t value) {
    key(field, 0);
    append_varint(text_, static_cast<std::uint64_t>(value));
    return *this;
  }
  MessageWriter& real(int field, double value) {
    key(field, 1);
    append_fixed(text_, std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  MessageWriter& real(int field, float value) {
    key(field, 5);
    append_fixed(text_, std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  MessageWriter& bytes(int field, std::string_view value) {
    key(field, 2);
    append_varint(text_, value.size());
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void key(int field, int kind) {
    append_varint(text_, static_cast<std::uint64_t>(field << 3 | kind));
  }
  std::string text_;
};

// Event: wall_time = 1, step = 2; one of file_version = 3, summary = 5, session_log = 7.
// A number that is 0 is left out, as by other writers.
MessageWriter event_at(double time, std::int64_t step) {
  MessageWriter event;
  event.real(1, time);
  if (step != 0) event.number(2, step);
  return event;
}

// The seconds that the newest file there has in its name; -1 where there is none.
std::int64_t newest_seconds(const io::Path& directory) {
  std::int64_t newest = -1;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kNamePrefix)) continue;
    std::int64_t seconds = -1;
    std::from_chars(name.data() + kNamePrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  if (error) {
    throw Error(
        io::system_message("cannot list the directory", directory, error.value()));
  }
  return newest;
}

io::Path path_of(const io::Path& directory, const EventFileName& name) {
  io::create_directories(directory);
  const std::int64_t seconds = std::max(static_cast<std::int64_t>(std::floor(name.time)),
                                        newest_seconds(directory) + 1);
  return directory /
         fmt::format("{}{:010}.{}.{}", kNamePrefix, seconds, name.host, name.start);
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = ~0u;
  for (const char c : data) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

std::string framed_record(std::string_view data) {
  std::string record;
  append_fixed(record, data.size(), 8);
  append_fixed(record, masked_crc(record), 4);
  record += data;
  append_fixed(record, masked_crc(data), 4);
  return record;
}

std::string version_event(double time) {
  return event_at(time, 0).bytes(3, "brain.Event:2").text();
}

// SessionLog: status = 1, of which START is 1.
std::string start_event(double time, std::int64_t step) {
  return event_at(time, step).bytes(7, MessageWriter().number(1, 1).text()).text();
}

// Summary: any number of value = 1; Value: tag = 1, simple_value = 2.
std::string scalars_event(double time, std::int64_t step,
                          const std::vector<Scalar>& scalars) {
  MessageWriter summary;
  for (const Scalar& scalar : scalars) {
    std::string tag;
    append_repaired(scalar.tag, tag);
    summary.bytes(
        1,
        MessageWriter().bytes(1, tag).real(2, static_cast<float>(scalar.value)).text());
  }
  return event_at(time, step).bytes(5, summary.text()).text();
}

EventFile::EventFile(const io::Path& directory, const EventFileName& name,
                     std::int64_t first_step)
    : file_(path_of(directory, name), io::FileWriter::Mode::create) {
  file_.append(framed_record(version_event(name.time)) +
               framed_record(start_event(name.time, first_step)));
  io::sync_directory(directory);
}

void EventFile::write(double time, std::int64_t step,
                      const std::vector<Scalar>& scalars) {
  file_.append(framed_record(scalars_event(time, step, scalars)));
}

}  // namespace trireme::report
