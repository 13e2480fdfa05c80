// tests/fuzz/mutator.cpp — see mutator.hpp.
#include "fuzz/mutator.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <utility>

namespace trireme::fuzz {

namespace {

// Where counts, offsets and types end, and one beside.
constexpr std::array<std::uint64_t, 22> kEdges = {0,
                                                  1,
                                                  2,
                                                  7,
                                                  8,
                                                  0x7f,
                                                  0x80,
                                                  0xff,
                                                  0x100,
                                                  0x7fff,
                                                  0x8000,
                                                  0xffff,
                                                  0x10000,
                                                  0x7fffffff,
                                                  0x80000000,
                                                  0xffffffff,
                                                  0x100000000,
                                                  0x3fffffffffffffff,
                                                  0x4000000000000000,
                                                  0x7fffffffffffffff,
                                                  0x8000000000000000,
                                                  0xffffffffffffffff};

constexpr std::array<const char*, 24> kValues = {"0",
                                                 "-1",
                                                 "-0",
                                                 "1",
                                                 "2",
                                                 "3",
                                                 "1e999",
                                                 "-1e999",
                                                 "1e-999",
                                                 "0.5",
                                                 "1e18",
                                                 "2147483648",
                                                 "4294967296",
                                                 "4611686018427387904",
                                                 "9223372036854775807",
                                                 "9223372036854775808",
                                                 "18446744073709551615",
                                                 "18446744073709551616",
                                                 "null",
                                                 "true",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "NaN"};

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

Mutator::Mutator(std::uint64_t seed, std::vector<std::string> words,
                 std::size_t most_bytes)
    : random_(seed), words_(std::move(words)), most_bytes_(most_bytes) {}

// The library's distributions differ from one standard library to another.
std::size_t Mutator::below(std::size_t limit) {
  return limit == 0 ? 0 : static_cast<std::size_t>(random_() % limit);
}

std::string Mutator::mutant(const std::vector<std::string>& pool, std::size_t seeds) {
  std::string input = pool[below(below(2) == 0 ? seeds : pool.size())];
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes; ++i) change(input, pool);
  if (input.size() > most_bytes_) input.resize(most_bytes_);
  return input;
}

void Mutator::change(std::string& input, const std::vector<std::string>& pool) {
  const std::size_t at = below(input.size() + 1);
  const std::size_t length = 1 + below(below(2) == 0 ? 8 : input.size() - at);
  switch (below(12)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(below(256));
      break;
    case 2:
      input.erase(at, length);
      break;
    case 3:
      input.insert(at, input.substr(at, length));
      break;
    case 4: {  // moved
      const std::string piece = input.substr(at, length);
      input.erase(at, length);
      input.insert(below(input.size() + 1), piece);
      break;
    }
    case 5:
      input.resize(at);
      break;
    case 6:
      if (!words_.empty()) input.insert(at, words_[below(words_.size())]);
      break;
    case 7: {  // with the end of another
      const std::string& other = pool[below(pool.size())];
      input = input.substr(0, at) + other.substr(below(other.size() + 1));
      break;
    }
    case 8:
    case 9:
      overwrite_integer(input);
      break;
    case 10:
      replace_number(input);
      break;
    default:
      nest(input);
      break;
  }
}

void Mutator::overwrite_integer(std::string& input) {
  const std::size_t bytes = std::size_t{1} << below(4);
  if (input.size() < bytes) return;
  std::uint64_t value = kEdges[below(kEdges.size())];
  if (below(4) == 0) value = below(2 * input.size() + 1);
  // Fields of binary formats lie at multiples of their size, from the first on.
  std::size_t at = below(input.size() - bytes + 1);
  if (below(2) == 0) at -= at % bytes;
  for (std::size_t i = 0; i < bytes; ++i) {
    input[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
  }
}

// A number written in digits, the next from a random place on.
void Mutator::replace_number(std::string& input) {
  const auto begin =
      std::find_if(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())),
                   input.end(), is_digit);
  if (begin == input.end()) return;
  const auto end = std::find_if(begin, input.end(), [](char c) { return !is_digit(c); });
  input.replace(begin, end, kValues[below(kValues.size())]);
}

// Levels around nothing much, most of the time closed again.
void Mutator::nest(std::string& input) {
  static constexpr std::array<std::pair<const char*, const char*>, 4> kKinds = {
      {{"[", "]"}, {"{\"a\":", "}"}, {"{a: ", "}"}, {"- ", ""}}};
  const auto& [open, close] = kKinds[below(kKinds.size())];
  const std::size_t most = most_bytes_ / (std::strlen(open) + 1);
  const std::size_t levels = 1 + below(below(8) == 0 ? most : 100);
  const bool closes = below(4) != 0;
  std::string text;
  for (std::size_t i = 0; i < levels; ++i) text += open;
  text += "1";
  for (std::size_t i = 0; i < levels && closes; ++i) text += close;
  // In the place of a number, where there is one: as a value.
  std::size_t at = below(input.size() + 1);
  const std::size_t number = input.find_first_of("0123456789", at);
  if (number != std::string::npos && below(2) == 0) {
    input.erase(number, input.find_first_not_of("0123456789", number) - number);
    at = number;
  }
  input.insert(at, text);
}

}  // namespace trireme::fuzz
