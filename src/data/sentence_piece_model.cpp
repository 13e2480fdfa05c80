// data/sentence_piece_model.cpp — see sentence_piece_model.hpp.
//
// A message is a row of fields: a number that says which field it is and how it is kept,
// and its value: a number of variable length, four or eight bytes, or a length and as
// many bytes. Whatever is read is compared with the end of its message first.
//
// The map of characters is taken over by the library without a look: an array of 32-bit
// units, each of which says where in the array its children are (darts-clone), and the
// normal forms behind it, which end with a zero byte. A damaged one would have it read
// outside, so every place that a unit can name is looked at here.
#include "data/sentence_piece_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "base/words.hpp"

namespace trireme::data {
namespace {

// The numbers of fields, as in sentencepiece_model.proto.
namespace field {
constexpr std::uint32_t kPiece = 1, kTrainer = 2, kNormalizer = 3;
constexpr std::uint32_t kText = 1, kScore = 2, kKind = 3;
constexpr std::uint32_t kAlgorithm = 3, kSuffix = 24, kByteFallback = 35;
constexpr std::uint32_t kUnknownId = 40, kBeginId = 41, kEndId = 42, kPadId = 43;
constexpr std::uint32_t kMap = 2, kDummyPrefix = 3, kRemoveSpaces = 4, kMarkSpaces = 5;
}  // namespace field

enum class Wire : std::uint32_t {
  number = 0,
  eight_bytes = 1,
  bytes = 2,
  four_bytes = 5
};

struct ProtoField {
  std::uint32_t number = 0;
  Wire wire = Wire::number;
  std::uint64_t value = 0;  // of a number, or of four or eight bytes
  std::string_view bytes;
};

class ProtoReader {
 public:
  // `offset`: where in the file `bytes` begins.
  ProtoReader(const std::string& name, std::string_view bytes, std::size_t offset = 0)
      : name_(name), bytes_(bytes), offset_(offset) {}

  bool next(ProtoField& found) {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = number();
    found.number = static_cast<std::uint32_t>(key >> 3);
    found.wire = static_cast<Wire>(key & 7);
    switch (found.wire) {
      case Wire::number:
        found.value = number();
        break;
      case Wire::eight_bytes:
        found.value = fixed<std::uint64_t>();
        break;
      case Wire::four_bytes:
        found.value = fixed<std::uint32_t>();
        break;
      case Wire::bytes: {
        const std::uint64_t length = number();
        require_room(length);
        found.bytes = bytes_.substr(at_, length);
        at_ += length;
        break;
      }
      default:
        throw InputError(
            fmt::format("tokenizer file '{}': at byte {} is no field of a SentencePiece "
                        "model: it is damaged, or of another kind. Copy it again",
                        name_, offset_ + at_));
    }
    return true;
  }
  // The message in the field that was read last.
  ProtoReader message(const ProtoField& found) const {
    return {name_, found.bytes, offset_ + at_ - found.bytes.size()};
  }

 private:
  void require_room(std::uint64_t length) const {
    TRIREME_REQUIRE_INPUT(
        length <= bytes_.size() - at_,
        "tokenizer file '{}' is cut short or damaged: what is at byte {} has {}, and {} "
        "are left. Copy it again",
        name_, offset_ + at_, format_plural(length, "byte"), bytes_.size() - at_);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      require_room(1);
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  template <class T>
  T fixed() {
    require_room(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  const std::string& name_;
  std::string_view bytes_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

class ProtoWriter {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
  }
  void real(std::uint32_t field, float value) {
    varint(std::uint64_t{field} << 3 | static_cast<std::uint64_t>(Wire::four_bytes));
    const auto bits = std::bit_cast<std::uint32_t>(value);
    bytes_.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  void bytes(std::uint32_t field, std::string_view value) {
    varint(std::uint64_t{field} << 3 | static_cast<std::uint64_t>(Wire::bytes));
    varint(value.size());
    bytes_ += value;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

SentencePieceModel::Piece read_piece(const std::string& name, std::size_t id,
                                     ProtoReader reader) {
  SentencePieceModel::Piece piece;
  ProtoField found;
  while (reader.next(found)) {
    if (found.number == field::kText) {
      piece.text = found.bytes;
    } else if (found.number == field::kScore) {
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(found.value));
    } else if (found.number == field::kKind) {
      TRIREME_REQUIRE_INPUT(
          found.value >= 1 && found.value <= 6,
          "tokenizer file '{}': piece {} is of kind {}, and there are 1 to 6: it is "
          "damaged, or made by a newer SentencePiece",
          name, id, found.value);
      piece.kind = static_cast<SentencePieceModel::Kind>(found.value);
    }
  }
  return piece;
}

void read_trainer(const std::string& name, ProtoReader reader,
                  SentencePieceModel& model) {
  ProtoField found;
  while (reader.next(found)) {
    if (found.number == field::kAlgorithm) {
      TRIREME_REQUIRE_INPUT(
          found.value == 1 || found.value == 2,
          "tokenizer file '{}': the model is of type {}{}, which is not supported: "
          "unigram (1) and BPE (2) are",
          name, found.value,
          found.value == 3   ? " (word)"
          : found.value == 4 ? " (char)"
                             : "");
      model.algorithm = static_cast<SentencePieceModel::Algorithm>(found.value);
    } else if (found.number == field::kSuffix) {
      model.space_behind_words = found.value != 0;
    } else if (found.number == field::kByteFallback) {
      model.byte_fallback = found.value != 0;
    }
  }
}

void read_piece_normalizer(ProtoReader reader, SentencePieceModel& model) {
  ProtoField found;
  while (reader.next(found)) {
    if (found.number == field::kMap) model.character_map = found.bytes;
    if (found.number == field::kDummyPrefix) model.adds_space_in_front = found.value != 0;
    if (found.number == field::kRemoveSpaces)
      model.removes_extra_spaces = found.value != 0;
    if (found.number == field::kMarkSpaces) model.marks_spaces = found.value != 0;
  }
}

// A unit of darts-clone's array.
struct TrieUnit {
  std::uint32_t bits = 0;
  bool is_leaf() const { return bits >> 31 != 0; }
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7FFFFFFF; }
  std::uint32_t label() const { return bits & 0x800000FF; }
  std::uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

struct CharacterMap {
  std::vector<TrieUnit> units;
  std::string_view forms;

  // The map must be of whole units.
  explicit CharacterMap(std::string_view map) {
    std::uint32_t size = 0;
    std::memcpy(&size, map.data(), sizeof(size));
    units.resize(size / sizeof(TrieUnit));
    std::memcpy(units.data(), map.data() + sizeof(size), size);
    forms = map.substr(sizeof(size) + size);
  }
};

void check_map(const std::string& name, std::string_view map) {
  if (map.empty()) return;
  const auto require = [&](bool is_right) {
    TRIREME_REQUIRE_INPUT(is_right,
                          "tokenizer file '{}': its map of characters "
                          "(precompiled_charsmap) is damaged. Copy the file again",
                          name);
  };
  std::uint32_t size = 0;
  require(map.size() > sizeof(size));
  std::memcpy(&size, map.data(), sizeof(size));
  // Children lie within blocks of 256 units.
  require(size % 1024 == 0 && size > 0 && size < map.size() - sizeof(size));
  const CharacterMap parts(map);
  require(parts.forms.back() == '\0');
  // A search begins with the children of the first unit, whatever else that is.
  require(!parts.units[0].is_leaf());
  for (std::size_t i = 0; i < parts.units.size(); ++i) {
    const TrieUnit unit = parts.units[i];
    if (unit.is_leaf()) continue;
    const std::size_t children = i ^ unit.offset();
    require((children | 0xFF) < parts.units.size());
    require(!unit.has_leaf() || parts.units[children].value() < parts.forms.size());
  }
}

}  // namespace

int byte_of_piece(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
  };
  if (!is_digit(text[3]) || !is_digit(text[4])) return -1;
  return number_in<int>(text.substr(3, 2), 16).value_or(-1);
}

std::string mapped(const std::string& character_map, std::string_view text) {
  if (character_map.empty() || text.empty()) return std::string(text);
  const CharacterMap map(character_map);
  std::size_t node = map.units[0].offset();
  TrieUnit unit;
  for (const char c : text) {
    node ^= static_cast<std::uint8_t>(c);
    unit = map.units[node];
    if (unit.label() != static_cast<std::uint8_t>(c)) return std::string(text);
    node ^= unit.offset();
  }
  if (!unit.has_leaf()) return std::string(text);
  return map.forms.data() + map.units[node].value();
}

SentencePieceModel SentencePieceModel::parse(const std::string& name,
                                             std::string_view bytes) {
  TRIREME_REQUIRE_INPUT(
      !bytes.starts_with("version https://git-lfs"),
      "tokenizer file '{}' is not the model but a pointer of git LFS to it: get the file "
      "itself (git lfs pull)",
      name);
  TRIREME_REQUIRE_INPUT(
      bytes.size() > 1 && bytes[0] == '\x0A',
      "tokenizer file '{}' is no SentencePiece model: it does not begin with a piece. "
      "Expected what spm_train makes: spiece.model of a T5, tokenizer.model of a Llama",
      name);
  SentencePieceModel model;
  ProtoReader reader(name, bytes);
  ProtoField found;
  bool has_trainer = false, has_normalizer = false;
  while (reader.next(found)) {
    if (found.wire != Wire::bytes) continue;
    if (found.number == field::kPiece) {
      model.pieces.push_back(
          read_piece(name, model.pieces.size(), reader.message(found)));
    } else if (found.number == field::kTrainer) {
      has_trainer = true;
      read_trainer(name, reader.message(found), model);
    } else if (found.number == field::kNormalizer) {
      has_normalizer = true;
      read_piece_normalizer(reader.message(found), model);
    }
  }
  TRIREME_REQUIRE_INPUT(
      has_trainer && has_normalizer,
      "tokenizer file '{}' ends behind {}, without what says how they are used: it is "
      "cut short. Copy it again",
      name, format_plural(model.pieces.size(), "piece"));
  model.check(name);
  return model;
}

void SentencePieceModel::check(const std::string& name) const {
  std::unordered_set<std::string_view> texts;
  std::size_t unknown = 0, bytes = 0;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const Piece& piece = pieces[id];
    const auto require = [&](bool is_right, const char* what) {
      TRIREME_REQUIRE_INPUT(
          is_right,
          "tokenizer file '{}': piece {} {}: the file is damaged. Copy it again", name,
          id, what);
    };
    require(!piece.text.empty() && piece.text.find('\0') == std::string::npos &&
                valid_utf8_prefix(piece.text) == piece.text.size(),
            "has no text");
    require(std::isfinite(piece.score), "has a score that is no number");
    require(texts.insert(piece.text).second, "has the text of another");
    require(piece.kind != Kind::byte || byte_of_piece(piece.text) >= 0,
            "is no byte, as it says");
    unknown += piece.kind == Kind::unknown ? 1 : 0;
    bytes += piece.kind == Kind::byte ? 1 : 0;
  }
  TRIREME_REQUIRE_INPUT(
      unknown == 1,
      "tokenizer file '{}': {} of its {} stand for unknown text, and one must", name,
      unknown, format_plural(pieces.size(), "piece"));
  TRIREME_REQUIRE_INPUT(
      bytes == (byte_fallback ? 256 : 0),
      "tokenizer file '{}' has {} for bytes, and {} (byte_fallback is {})", name,
      format_plural(bytes, "piece"),
      byte_fallback ? "256 are needed" : "none can be in use",
      byte_fallback ? "true" : "false");
  TRIREME_REQUIRE_INPUT(
      std::ranges::any_of(pieces, [](const Piece& p) { return p.kind == Kind::normal; }),
      "tokenizer file '{}' has no pieces for text", name);
  check_map(name, character_map);
}

std::string SentencePieceModel::serialized() const {
  ProtoWriter whole;
  std::uint64_t unknown = 0;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const Piece& piece = pieces[id];
    if (piece.kind == Kind::unknown) unknown = id;
    ProtoWriter one;
    one.bytes(field::kText, piece.text);
    one.real(field::kScore, piece.score);
    one.number(field::kKind, static_cast<std::uint64_t>(piece.kind));
    whole.bytes(field::kPiece, one.text());
  }
  constexpr auto kNone = ~std::uint64_t{0};  // -1
  ProtoWriter trainer;
  trainer.number(field::kAlgorithm, static_cast<std::uint64_t>(algorithm));
  trainer.number(field::kSuffix, space_behind_words ? 1 : 0);
  trainer.number(field::kByteFallback, byte_fallback ? 1 : 0);
  trainer.number(field::kUnknownId, unknown);
  for (const std::uint32_t id : {field::kBeginId, field::kEndId, field::kPadId}) {
    trainer.number(id, kNone);
  }
  whole.bytes(field::kTrainer, trainer.text());
  ProtoWriter normalizer;
  normalizer.bytes(field::kMap, character_map);
  normalizer.number(field::kDummyPrefix, adds_space_in_front ? 1 : 0);
  normalizer.number(field::kRemoveSpaces, removes_extra_spaces ? 1 : 0);
  normalizer.number(field::kMarkSpaces, marks_spaces ? 1 : 0);
  whole.bytes(field::kNormalizer, normalizer.text());
  return whole.text();
}

}  // namespace trireme::data
