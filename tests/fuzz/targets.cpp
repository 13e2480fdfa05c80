// tests/fuzz/targets.cpp — see targets.hpp. Where a reader takes an input, what it made
// of it is used as the program would, and written and read again where it can be.
#include "fuzz/targets.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "ckpt/dialect.hpp"
#include "ckpt/manifest.hpp"
#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "data/byte_level_bpe_files.hpp"
#include "data/corpus.hpp"
#include "data/corpus_writer.hpp"
#include "data/llm_c_dataset.hpp"
#include "data/megatron_dataset.hpp"
#include "data/tokenizer_files.hpp"
#include "data/vocabulary_size.hpp"
#include "io/checksum.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/hdf5_edit.hpp"

namespace trireme::fuzz {

namespace {

namespace fs = std::filesystem;

fs::path scratch(const char* name) {
  return fs::path(scratch_directory()) / name;
}

void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

// What holds of every input that is accepted.
void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// A token for each byte, and 256 for the end of a document.
const data::Tokenizer& byte_tokenizer() {
  static const data::Tokenizer tokenizer = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.emplace_back(1, static_cast<char>(byte));
    tokens.emplace_back("<|endoftext|>");
    return data::tokenizer_from_json(
        "fuzz", data::tokenizer_json(tokens, {}, {{"<|endoftext|>", 256}}));
  }();
  return tokenizer;
}

// A small corpus, made once, and its bytes.
const std::string& corpus_bytes() {
  static const std::string bytes = [] {
    const data::Tokenizer& tokenizer = byte_tokenizer();
    std::vector<fs::path> inputs;
    for (const char* text : {"In the beginning. It was", "", "God created the heaven"}) {
      inputs.push_back(scratch(fmt::format("{}.txt", inputs.size()).c_str()));
      spill(inputs.back(), text);
    }
    const data::DocumentSource source(
        inputs, {.cut_inside_documents = tokenizer.can_cut_before_space(),
                 .cut_before_blank_lines_only = true});
    const auto self = comm::make_self_communicator("fuzz");
    data::CorpusOptions options;
    options.sentences = data::Language::english;
    data::write_corpus(tokenizer, source, scratch("whole.h5"), *self, options);
    std::ifstream file(scratch("whole.h5"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return bytes;
}

// Numbers out of an input, one after the other; 0 when it is used up.
class Numbers {
 public:
  explicit Numbers(const std::string& input) : input_(input) {}
  bool are_left() const { return at_ < input_.size(); }
  std::uint64_t next(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && at_ < input_.size(); ++i, ++at_) {
      value |= std::uint64_t{static_cast<unsigned char>(input_[at_])} << (8 * i);
    }
    return value;
  }

 private:
  const std::string& input_;
  std::size_t at_ = 0;
};

// One change of a corpus that HDF5 itself takes for a whole file: bytes at random in it
// would try HDF5's readers in place of ours.
void edit_corpus(const fs::path& path, Numbers& numbers) {
  static const std::vector<std::string> objects = {
      "tokens", "documents", "tokenizer", "tokenizer/tokenizer.json", "sentences"};
  static const std::vector<std::string> attributes = {
      "format_version", "vocabulary_size", "end_of_document",   "token_count",
      "document_count", "checksum",        "input_bytes",       "unigram_entropy",
      "unknown",        "sentence_count",  "sentence_language", "sentence_checksum"};
  const std::uint64_t kind = numbers.next(1) % 10;
  const std::string& object = objects[numbers.next(1) % objects.size()];
  const std::string& attribute = attributes[numbers.next(1) % attributes.size()];
  switch (kind) {
    case 0:
      test::remove_object(path, object);
      break;
    case 1:
      test::remove_attribute(path, attribute);
      break;
    case 2:
      test::make_soft_link(path, object, objects[numbers.next(1) % objects.size()]);
      break;
    case 3:
      test::make_external_link(path, object, scratch("whole.h5").string(), object);
      break;
    case 4:
      test::make_external_dataset(path, object, scratch("whole.h5").string(),
                                  numbers.next(2));
      break;
    case 5:
      test::make_hollow_dataset(path, object, numbers.next(8) >> (numbers.next(1) % 64));
      break;
    case 6:
      test::make_texts(path, object, numbers.next(2));
      break;
    case 7:
    case 8:
      test::make_attribute(path, attribute, numbers.next(8) >> (numbers.next(1) % 64));
      break;
    default: {
      std::vector<std::uint64_t> values(numbers.next(1) % 8);
      for (std::uint64_t& value : values) {
        value = numbers.next(8) >> (numbers.next(1) % 64);
      }
      test::make_integers(path, object, values);
      break;
    }
  }
}

}  // namespace

void read_json(const std::string& input) {
  using Json = nlohmann::ordered_json;
  const auto json = io::parse_json<Json>(input);
  const std::string text = io::json_text(json);
  expect(io::json_text(io::parse_json<Json>(text)) == text,
         "what was written is read as something else");
  io::json_excerpt(json);
  io::json_text(json, 2);
}

void read_deck(const std::string& input) {
  const config::Deck deck = config::parse(input, "fuzz.yaml");
  const std::string text = config::resolved_text(deck);
  expect(config::resolved_text(config::parse_resolved(text)) == text,
         "the resolved deck is read as another one");
}

void read_tokenizer(const std::string& input) {
  const data::Tokenizer tokenizer = data::tokenizer_from_json("tokenizer.json", input);
  static const std::string text =
      "In the beginning <|endoftext|> 123 \xc3\xa4\xe2\x82\xac\xff\n\n  ";
  tokenizer.decode(tokenizer.encode(text));
  tokenizer.end_of_document();
}

// The input is a vocab.txt, and behind a byte 0 a tokenizer_config.json.
void read_word_list(const std::string& input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  data::TokenizerFiles files = {{"vocab.txt", input.substr(0, end)}};
  if (end < input.size()) files["tokenizer_config.json"] = input.substr(end + 1);
  const data::Tokenizer tokenizer = data::Tokenizer::from_files(files);
  const std::string text = "[CLS] The \xc3\x84ther, [MASK] \xe4\xb8\xad\xff aab\n";
  const std::vector<data::TokenId> ids = tokenizer.encode(text);
  for (const data::TokenId id : ids) expect(id < tokenizer.vocabulary_size(), "an id");
  tokenizer.decode(ids);
  expect(data::Tokenizer::from_files(tokenizer.files()).encode(text) == ids,
         "its files are another tokenizer");
}

// The input is a model of SentencePiece.
void read_sentence_piece(const std::string& input) {
  const data::Tokenizer tokenizer =
      data::Tokenizer::from_files({{"spiece.model", input}});
  const std::string text =
      "In the  beginning\n \xc3\x84 \xe4\xb8\xad\xff\xe2\x96\x81x </s>";
  const std::vector<data::TokenId> ids = tokenizer.encode(text);
  for (const data::TokenId id : ids) expect(id < tokenizer.vocabulary_size(), "an id");
  tokenizer.decode(ids);
  expect(data::Tokenizer::from_files(tokenizer.files()).encode(text) == ids,
         "its files are another tokenizer");
}

// The input is the tokenizer.json beside a vocab.txt or a .model of a few tokens and,
// from a zero byte on, the config.json.
void read_vocabulary_size(const std::string& input) {
  const fs::path directory = scratch("sizes");
  fs::create_directories(directory);
  const std::size_t end = std::min(input.find('\0'), input.size());
  spill(directory / "tokenizer.json", input.substr(0, end));
  spill(directory / "config.json", end < input.size() ? input.substr(end + 1) : "{}");
  const auto takes = [&](data::VocabularyFile kind, index_t tokens) {
    try {
      data::require_size_beside(directory / "tokens", {kind, tokens, tokens});
    } catch (const InputError&) {
      return false;
    }
    return true;
  };
  bool is_any_taken = false;
  for (const auto kind :
       {data::VocabularyFile::word_list, data::VocabularyFile::sentence_piece}) {
    const bool few = takes(kind, 3), some = takes(kind, 8), many = takes(kind, 10);
    expect(some || !few || !many, "a number between two that are taken is refused");
    is_any_taken |= few || some || many;
  }
  TRIREME_REQUIRE_INPUT(is_any_taken, "the files are refused, or say other numbers");
}

void read_safetensors(const std::string& input) {
  const fs::path path = scratch("model.safetensors");
  spill(path, input);
  const io::SafetensorsReader reader(path);
  for (const auto& [name, tensor] : reader.tensors()) {
    if (tensor.dtype == DType::float32) reader.read_float(name);
  }
}

// The input is the index of a model of two files, x in "a" and y in "b".
void read_safetensors_index(const std::string& input) {
  for (const auto& [file, tensor] : {std::pair("a", "x"), std::pair("b", "y")}) {
    if (fs::exists(scratch(file))) continue;
    io::SafetensorsWriter writer;
    writer.add(tensor, DType::float32, {2}, [](std::span<std::byte> bytes) {
      std::ranges::fill(bytes, std::byte{1});
    });
    writer.write(scratch(file));
  }
  const fs::path path = scratch("model.safetensors.index.json");
  spill(path, input);
  const io::SafetensorsReader reader(path);
  for (const auto& [name, tensor] : reader.tensors()) {
    if (tensor.dtype == DType::float32) reader.read_float(name);
    expect(tensor.file.parent_path() == scratch_directory(), "a file from elsewhere");
  }
}

// The input is a config.json.
void read_model_config(const std::string& input) {
  Log log(false);
  const auto read = [&](const std::string& text) {
    const auto json = io::parse_json_file<nlohmann::json>(text, "config.json");
    const ckpt::Dialect& dialect =
        ckpt::dialect_of_config(json, "config.json", ckpt::known_dialects());
    const ckpt::ForeignConfig config = dialect.read_config(json, "config.json", log);
    expect(dialect.inexpressible(config).empty(), "a model that could not be written");
    return io::exact_json_text(dialect.config_json(config));
  };
  const std::string once = read(input);
  expect(read(once) == once, "what was written is read as something else");
}

// The input is the index; the ids are 4096 bytes of zeros.
void read_megatron(const std::string& input) {
  spill(scratch("data.idx"), input);
  spill(scratch("data.bin"), std::string(4096, '\0'));
  const data::MegatronDataset dataset(scratch("data"));
  std::vector<data::TokenId> ids;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(dataset.documents(), 64); ++i) {
    ids.clear();
    dataset.read_document(i, 257, ids);
  }
}

// The input is a token file of llm.c without the zeros of its header. A count of 0 stands
// for that of the ids that there are, which hardly any change of an input leaves right.
void read_llm_c(const std::string& input) {
  constexpr std::size_t kNumbers = 12, kHeader = 1024;
  std::string file = input;
  if (input.size() >= kNumbers) {
    file.insert(kNumbers, kHeader - kNumbers, '\0');
    std::int32_t magic = 0;
    std::memcpy(&magic, input.data(), sizeof(magic));
    const std::size_t id_bytes = magic == 20240801 ? 4 : 2;
    if (input.compare(8, 4, std::string(4, '\0')) == 0) {
      const auto count = static_cast<std::int32_t>((input.size() - kNumbers) / id_bytes);
      std::memcpy(file.data() + 8, &count, sizeof(count));
    }
  }
  spill(scratch("ids.bin"), file);
  const data::LlmCDataset dataset(scratch("ids.bin"));
  const data::Tokenizer& tokenizer = byte_tokenizer();
  std::vector<data::TokenId> ids;
  for (std::uint64_t i = 0; i < dataset.tokens(); ++i) {
    ids.push_back(dataset.token(i, tokenizer.vocabulary_size()));
  }
  const auto self = comm::make_self_communicator("fuzz");
  data::convert_llm_c_dataset(dataset, tokenizer, scratch("ids.h5"), *self, {});
  const data::Corpus corpus(scratch("ids.h5"));
  expect(corpus.verify().empty() && corpus.documents_problem().empty(),
         "a corpus that is damaged");
  std::vector<std::int32_t> made(static_cast<std::size_t>(corpus.token_count()));
  corpus.copy(0, corpus.token_count(), made.data());
  std::erase(ids, tokenizer.end_of_document());
  std::erase(made, static_cast<std::int32_t>(tokenizer.end_of_document()));
  expect(
      std::ranges::equal(ids, made, {},
                         [](data::TokenId id) { return static_cast<std::int32_t>(id); }),
      "a corpus of other tokens");
}

// The input says what to do to a whole corpus; its first byte, by how much to cut it.
void read_corpus(const std::string& input) {
  const fs::path path = scratch("edited.h5");
  spill(path, corpus_bytes());
  Numbers numbers(input);
  const std::uint64_t cut = numbers.next(1);
  for (int edits = 0; numbers.are_left() && edits < 8; ++edits) {
    try {
      edit_corpus(path, numbers);
    } catch (const std::runtime_error&) {
      // Not everything can be done twice, or to what is gone.
    }
  }
  if (cut >= 128) fs::resize_file(path, fs::file_size(path) * (cut - 128) / 128);
  const data::Corpus corpus(path);
  if (!corpus.documents_problem().empty() || !corpus.verify().empty()) return;
  corpus.unigram_entropy();
  const index_t count = std::min<index_t>(corpus.token_count(), 64);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  corpus.copy(corpus.token_count() - count, count, ids.data());
  corpus.document_begin(corpus.document_count());
  if (!corpus.has_sentences()) return;
  const index_t last = corpus.sentence_begin(corpus.sentence_count() - 1);
  expect(corpus.first_sentence_from(last) == corpus.sentence_count() - 1,
         "the last sentence is another one");
}

// The input is what stands below the first line, whose checksum is made right.
void read_manifest(const std::string& input) {
  const std::string text = "{\"xxh3\": \"" +
                           io::to_hex(io::checksum(input.data(), input.size())) +
                           "\",\n" + input;
  const auto manifest = ckpt::Manifest::from_text(text, "manifest.json");
  manifest.check("manifest.json");
  for (const ckpt::BlockEntry& block : manifest.blocks) manifest.bytes_of(block);
  for (const auto& blocks : manifest.blocks_by_file()) manifest.stamp_of(blocks);
  manifest.blocks_by_tensor();
  manifest.parameter_count();
  const std::string again = manifest.to_text();
  expect(ckpt::Manifest::from_text(again, "manifest.json").to_text() == again,
         "what was written is read as something else");
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"json", read_json, {"fuzz/seeds/json"}, {"\\u0000", "\\ud800", "\"", ",", ":"}},
      {"deck",
       read_deck,
       {"fuzz/seeds/deck", "../inputs/quickstart.yaml"},
       {"&a ", "*a", "<<: *a", "!!int ", ": ", "\n", "~", "1e9 tokens", "5m", "[", "]",
        "parallel: {tensor: 2}\n", "pipeline: 4", "precision: {compute: bf16}\n", "auto",
        "never", "$HOME/x", "${", "\t"}},
      {"tokenizer",
       read_tokenizer,
       {"fuzz/seeds/tokenizer", "parity/fixtures/tokenizer/split.json"},
       {"\"WordPiece\"", "\"BertNormalizer\"", "\"##\"", "\"model\"", "\"merges\"",
        "\"vocab\"", "\"added_tokens\"", "\"ByteLevel\"", "\"Split\"", "\"Regex\"",
        "(?=", "[^", "\\\\p{L}+", "\\u0120"}},
      {"sentence_piece",
       read_sentence_piece,
       {"parity/fixtures/tokenizer/bpe.model", "fuzz/seeds/sentence_piece"},
       {std::string("\x0a\x0e\x0a\x05", 4), "\x18\x02", "\x18\x06", "\xe2\x96\x81",
        "<0x41>", "\x12\x02\x18\x01"}},
      {"word_list",
       read_word_list,
       {"fuzz/seeds/word_list"},
       {"[MASK]\n", "[UNK]\n", "##", "\n", "\"do_lower_case\"", "\"strip_accents\"",
        "\"mask_token\"", "null", "false"}},
      {"vocabulary_size",
       read_vocabulary_size,
       {"fuzz/seeds/vocabulary_size"},
       {"\"WordPiece\"", "\"Unigram\"", "\"BPE\"", "\"Metaspace\"", "\"byte_fallback\"",
        "\"added_tokens\"", "\"vocab\"", "\"<extra_id_0>\"", "\"vocab_size\"", "null",
        "true", "4294967305"}},
      {"safetensors",
       read_safetensors,
       {"fuzz/seeds/safetensors"},
       {"\"F32\"", "\"BF16\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"",
        "[0,16]", "[4]"}},
      {"safetensors_index",
       read_safetensors_index,
       {"fuzz/seeds/safetensors_index"},
       {"\"weight_map\"", "\"metadata\"", "\"total_size\"", "\"a\"", "\"b\"", "\"x\"",
        "\"y\"", "\"..\"", "/", "\\u0000", "16"}},
      {"model_config",
       read_model_config,
       {"parity/fixtures/gpt2_odd/config.json", "parity/fixtures/bert_odd/config.json",
        "parity/fixtures/t5_v11_odd/config.json"},
       {"\"n_head\"", "\"n_inner\"", "\"gpt2\"", "null", "[50256]", "1e-05", "-1", "0",
        "9223372036854775808", "true"}},
      {"megatron", read_megatron, {"fuzz/seeds/megatron"}, {"MMIDIDX"}},
      {"llm_c",
       read_llm_c,
       {"fuzz/seeds/llm_c"},
       {std::string("\x00\x01", 2), std::string("\x00\x01\x00\x00", 4)}},
      {"corpus", read_corpus, {"fuzz/seeds/corpus"}, {}},
      {"manifest",
       read_manifest,
       {"fuzz/seeds/manifest"},
       {"\"shape\"", "\"start\"", "\"offset\"", "\"tensor\"", "\"file\"", "[]", "[0]",
        "[1, 4611686018427387904]"}},
  };
  return all;
}

}  // namespace trireme::fuzz
