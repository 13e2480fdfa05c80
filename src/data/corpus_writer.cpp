// data/corpus_writer.cpp — see corpus_writer.hpp.
//
// The bytes of a corpus must not depend on the number of ranks. Ranks therefore share out
// the input where text may be cut (document_source.hpp), the counts of all ranks before
// give each rank the place of its own tokens, and sums are made over fixed blocks of the
// finished file, not over what a rank wrote. Example: ranks with 5, 3 and 4 tokens write
// at tokens 0, 5 and 8, and add 0, 5 and 8 to the places where their documents begin.
#include "data/corpus_writer.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/temporary_name.hpp"
#include "base/utf8.hpp"
#include "base/wall_time.hpp"
#include "comm/on_ranks.hpp"
#include "data/bpe_trainer.hpp"
#include "data/corpus_format.hpp"
#include "data/sentence_characters.hpp"
#include "data/spool.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"

namespace trireme::data {
namespace {

using Clock = std::chrono::steady_clock;

// A spool of this rank, beside the corpus to come.
io::Path spool_path(const std::filesystem::path& out, const char* what) {
  io::Path path = temporary_name(out);
  path += what;
  return path;
}

// This rank's part of a corpus: ids and the places where documents and sentences begin.
class TokenSpool : public TokenSink {
 public:
  TokenSpool(const Tokenizer& tokenizer, const CorpusOptions& options,
             const std::filesystem::path& out)
      : ids(spool_path(out, ".tokens"), options.spool_memory),
        starts(spool_path(out, ".documents"), options.spool_memory),
        sentences(spool_path(out, ".sentences"), options.spool_memory),
        counts(tokenizer.vocabulary_size()),
        narrow_(token_type(tokenizer.vocabulary_size()) == DType::uint16) {}

  void begin_document() override {
    starts.append(&token_count, sizeof(token_count));
    ++document_count;
  }
  void begin_sentence(std::size_t id) override {
    const std::uint64_t place = token_count + id;
    sentences.append(&place, sizeof(place));
    ++sentence_count;
  }
  void tokens(std::span<const TokenId> values) override {
    for (const TokenId id : values) ++counts[id];
    token_count += values.size();
    if (narrow_) {
      narrowed_.assign(values.begin(), values.end());
      ids.append(narrowed_.data(), narrowed_.size() * sizeof(std::uint16_t));
    } else {
      ids.append(values.data(), values.size() * sizeof(TokenId));
    }
  }

  Spool ids;
  Spool starts;     // of documents, in tokens of this rank (uint64)
  Spool sentences;  // where they begin, likewise
  std::vector<std::uint64_t> counts;
  std::uint64_t token_count = 0;
  std::uint64_t document_count = 0;
  std::uint64_t sentence_count = 0;

 private:
  bool narrow_;
  std::vector<std::uint16_t> narrowed_;
};

// Encodes documents on their way into a spool.
class TokenizingSink : public DocumentSink {
 public:
  TokenizingSink(const Tokenizer& tokenizer, const CorpusOptions& options,
                 TokenSpool& spool)
      : spool_(spool),
        encoder_(tokenizer, options.added_tokens),
        end_of_document_(tokenizer.end_of_document()) {
    if (options.sentences) splitter_.emplace(*options.sentences);
  }

  void begin_document() override { spool_.begin_document(); }
  void text(std::string_view bytes) override {
    text_bytes_ += bytes.size();
    ids_.clear();
    if (splitter_) {
      // Places are those of the repaired text.
      const std::string_view text = valid_utf8(bytes, repaired_, replaced_);
      begins_.clear();
      encoder_.encode(text, ids_, begins_);
      find_sentences(text);
    } else {
      encoder_.encode(bytes, ids_);
    }
    spool_.tokens(ids_);
  }
  void end_document() override { spool_.tokens({&end_of_document_, 1}); }

  std::uint64_t replaced_sequences() const {
    return replaced_ + encoder_.replaced_sequences();
  }
  std::uint64_t text_bytes() const { return text_bytes_; }
  const Encoder& encoder() const { return encoder_; }

 private:
  // A sentence begins with the first id whose text, without white space in front, begins
  // at its first byte or behind it. Where two begin with one id there is one.
  void find_sentences(std::string_view text) {
    splitter_->split(text, sentences_);
    std::size_t id = 0, next = 0;
    for (const std::size_t sentence : sentences_) {
      while (id < ids_.size() && begins_[id] < sentence &&
             blanks_at(text, begins_[id]).end < sentence) {
        ++id;
      }
      if (id == ids_.size()) return;
      if (id < next) continue;
      spool_.begin_sentence(id);
      next = id + 1;
    }
  }

  TokenSpool& spool_;
  Encoder encoder_;
  TokenId end_of_document_;
  std::vector<TokenId> ids_;
  std::optional<SentenceSplitter> splitter_;
  std::vector<std::size_t> begins_, sentences_;
  std::string repaired_;
  std::uint64_t replaced_ = 0;
  std::uint64_t text_bytes_ = 0;
};

std::uint64_t summed(comm::Communicator& comm, std::uint64_t value) {
  return static_cast<std::uint64_t>(comm.all_reduce(static_cast<std::int64_t>(value)));
}

// Counts of all ranks, by their bytes; exact, unlike a sum of doubles.
std::vector<std::uint64_t> summed(comm::Communicator& comm,
                                  const std::vector<std::uint64_t>& counts) {
  const std::string packed(reinterpret_cast<const char*>(counts.data()),
                           counts.size() * sizeof(counts[0]));
  std::vector<std::uint64_t> total(counts.size(), 0);
  for (const std::string& part : comm.gather(packed)) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      std::uint64_t value;
      std::memcpy(&value, part.data() + i * sizeof(value), sizeof(value));
      total[i] += value;
    }
  }
  return total;
}

// Of all ranks, how often each added token was found.
std::map<TokenId, std::uint64_t> summed(comm::Communicator& comm,
                                        const Tokenizer& tokenizer,
                                        const std::map<TokenId, std::uint64_t>& found) {
  std::map<TokenId, std::uint64_t> total;
  for (const AddedToken& token : tokenizer.added_tokens()) total[token.id] = 0;
  for (const auto& [id, count] : found) total[id] = count;
  std::vector<std::uint64_t> counts;
  for (const auto& [id, count] : total) counts.push_back(count);
  counts = summed(comm, counts);
  std::size_t next = 0;
  for (auto& [id, count] : total) count = counts[next++];
  std::erase_if(total, [](const auto& entry) { return entry.second == 0; });
  return total;
}

// Where rank 0 put the datasets, for the others.
struct Layout {
  std::uint64_t tokens_at = 0;
  std::uint64_t documents_at = 0;
  std::uint64_t sentences_at = 0;  // where they are kept
};

void set_attributes(io::H5File& file, const Tokenizer& tokenizer,
                    const CorpusSummary& summary,
                    const std::optional<Language>& sentences) {
  file.set_attribute<std::int64_t>("format_version", kCorpusFormatVersion);
  file.set_attribute<std::uint64_t>("vocabulary_size", tokenizer.vocabulary_size());
  file.set_attribute<std::uint64_t>("end_of_document", tokenizer.end_of_document());
  file.set_attribute<std::uint64_t>("token_count", summary.tokens);
  file.set_attribute<std::uint64_t>("document_count", summary.documents);
  file.set_attribute<std::uint64_t>("input_bytes", summary.input_bytes);
  file.set_attribute<std::uint64_t>("replaced_sequences", summary.replaced_sequences);
  file.set_attribute<double>("unigram_entropy", summary.unigram_entropy);
  file.set_attribute<std::string>("checksum", io::to_hex(0));  // its value comes last
  file.set_attribute<std::string>("tokenizer_checksum",
                                  io::to_hex(checksum_of(tokenizer.files())));
  if (!sentences) return;
  file.set_attribute<std::uint64_t>("sentence_count", summary.sentences);
  file.set_attribute<std::string>("sentence_language", std::string(code_of(*sentences)));
  file.set_attribute<std::int64_t>("sentence_rules", kSentenceRules);
  file.set_attribute<std::string>("sentence_checksum", io::to_hex(0));
}

Layout make_file(const io::Path& path, const Tokenizer& tokenizer,
                 const CorpusSummary& summary, const std::optional<Language>& sentences) {
  io::H5File file = io::H5File::create(path);
  set_attributes(file, tokenizer, summary, sentences);
  for (const auto& [name, content] : tokenizer.files()) {
    file.write_bytes("tokenizer/" + name, content);
  }
  Layout layout;
  std::uint64_t end = 0;
  const auto make = [&](const char* name, DType type, std::uint64_t count) {
    auto dataset = file.make_dataset(name, type, {static_cast<index_t>(count)});
    end = std::max(end, dataset.offset().value() + dataset.bytes());
    return dataset;
  };
  layout.tokens_at =
      make("tokens", token_type(tokenizer.vocabulary_size()), summary.tokens)
          .offset()
          .value();
  auto documents = make("documents", DType::uint64, summary.documents + 1);
  documents.write_rows(static_cast<index_t>(summary.documents), 1, &summary.tokens,
                       sizeof(summary.tokens));
  layout.documents_at = documents.offset().value();
  if (sentences) {
    layout.sentences_at =
        make("sentences", DType::uint64, summary.sentences).offset().value();
  }
  file.close();
  // A full disk shows here rather than after the copying.
  io::FileWriter(path, io::FileWriter::Mode::existing).reserve(end);
  return layout;
}

// How much the ranks before this one have.
struct Before {
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t sentences = 0;
};

// This rank's part of the datasets.
void write_part(const io::Path& path, const Layout& layout, std::size_t token_bytes,
                const Before& before, TokenSpool& spool) {
  io::FileWriter writer(path, io::FileWriter::Mode::existing);
  std::uint64_t at = layout.tokens_at + before.tokens * token_bytes;
  const auto put = [&](const std::byte* data, std::size_t bytes) {
    writer.write_at(at, data, bytes);
    at += bytes;
  };
  spool.ids.drain(put);
  const auto put_places = [&](std::byte* data, std::size_t bytes) {
    auto* place = reinterpret_cast<std::uint64_t*>(data);
    for (std::size_t i = 0; i < bytes / sizeof(*place); ++i) place[i] += before.tokens;
    put(data, bytes);
  };
  at = layout.documents_at + before.documents * sizeof(std::uint64_t);
  spool.starts.drain(put_places);
  at = layout.sentences_at + before.sentences * sizeof(std::uint64_t);
  spool.sentences.drain(put_places);
  writer.sync();
  writer.close();
}

// Sums this rank's share of the blocks of a dataset, as they are in the file.
std::string block_sums(const io::Path& path, std::uint64_t begin, std::uint64_t bytes,
                       int rank, int size) {
  const std::uint64_t blocks = (bytes + kChecksumBlock - 1) / kChecksumBlock;
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t first = blocks * static_cast<std::uint64_t>(rank) / ranks;
  const std::uint64_t last = blocks * static_cast<std::uint64_t>(rank + 1) / ranks;
  const io::FileReader reader(path);
  std::vector<std::byte> block(kChecksumBlock);
  std::string sums;
  for (std::uint64_t i = first; i < last; ++i) {
    const std::uint64_t offset = i * kChecksumBlock;
    const std::size_t length = std::min<std::uint64_t>(kChecksumBlock, bytes - offset);
    reader.read_at(begin + offset, block.data(), length);
    const std::uint64_t sum = io::checksum(block.data(), length);
    sums.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  }
  return sums;
}

// Collective: the checksum of a dataset, known to rank 0.
std::string checksum_of_dataset(const io::Path& path, std::uint64_t begin,
                                std::uint64_t bytes, comm::Communicator& comm) {
  std::string sums;
  comm::on_every_rank(
      comm, [&] { sums = block_sums(path, begin, bytes, comm.rank(), comm.size()); });
  std::string all;
  for (const std::string& part : comm.gather(sums)) all += part;
  return io::to_hex(io::checksum(all.data(), all.size()));
}

void broadcast(comm::Communicator& comm, std::uint64_t& value) {
  auto number = static_cast<std::int64_t>(value);
  comm.broadcast(number);
  value = static_cast<std::uint64_t>(number);
}

std::uint64_t before_this_rank(comm::Communicator& comm, std::uint64_t count) {
  return static_cast<std::uint64_t>(
      comm.exclusive_scan(static_cast<std::int64_t>(count)));
}

// The writing, from counts to the published file.
void publish(const Tokenizer& tokenizer, const std::filesystem::path& out,
             const CorpusSummary& summary, const std::optional<Language>& sentences,
             TokenSpool& spool, comm::Communicator& comm) {
  const std::size_t token_bytes = size_of(token_type(tokenizer.vocabulary_size()));
  std::optional<io::AtomicFile> file;  // removed on the way out of an error
  Layout layout;
  const std::string name = comm::on_first_rank(comm, [&] {
    file.emplace(out);
    layout = make_file(file->temporary().string(), tokenizer, summary, sentences);
    return file->temporary().string();
  });
  for (std::uint64_t* place :
       {&layout.tokens_at, &layout.documents_at, &layout.sentences_at}) {
    broadcast(comm, *place);
  }
  const Before before = {before_this_rank(comm, spool.token_count),
                         before_this_rank(comm, spool.document_count),
                         before_this_rank(comm, spool.sentence_count)};
  comm::on_every_rank(comm,
                      [&] { write_part(name, layout, token_bytes, before, spool); });

  const std::string token_sum =
      checksum_of_dataset(name, layout.tokens_at, summary.tokens * token_bytes, comm);
  const std::string sentence_sum = checksum_of_dataset(
      name, layout.sentences_at, summary.sentences * sizeof(std::uint64_t), comm);
  comm::on_first_rank(comm, [&] {
    io::H5File corpus = io::H5File::open_for_writing(name);
    corpus.set_attribute<std::string>("checksum", token_sum);
    if (sentences) corpus.set_attribute<std::string>("sentence_checksum", sentence_sum);
    corpus.close();
    file->commit();
  });
}

}  // namespace

double entropy_of(const std::vector<std::uint64_t>& counts) {
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts) total += count;
  double entropy = 0.0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(total);
    entropy -= p * std::log(p);
  }
  return entropy;
}

namespace {

// This rank's part of a corpus, and what is known of the whole once all parts are
// spooled.
struct Spooled {
  std::unique_ptr<TokenSpool> part;
  CorpusSummary summary;
};

// fill(spool) reads the input and returns how many empty documents it left out.
Spooled spool_part(const Tokenizer& tokenizer, std::uint64_t input_bytes,
                   const std::filesystem::path& out, comm::Communicator& comm,
                   const CorpusOptions& options,
                   const std::function<std::uint64_t(TokenSpool&)>& fill) {
  Spooled spooled;
  std::uint64_t empty = 0;
  double seconds = 0.0;
  comm::on_every_rank(comm, [&] {
    if (comm.rank() == 0) io::require_writable(out);
    const auto start = Clock::now();
    spooled.part = std::make_unique<TokenSpool>(tokenizer, options, out);
    empty = fill(*spooled.part);
    seconds = seconds_since(start);
  });
  CorpusSummary& summary = spooled.summary;
  summary.tokens = summed(comm, spooled.part->token_count);
  summary.documents = summed(comm, spooled.part->document_count);
  summary.sentences = summed(comm, spooled.part->sentence_count);
  summary.empty_documents = summed(comm, empty);
  summary.input_bytes = input_bytes;
  summary.tokenize_seconds = comm.all_reduce(seconds, comm::Op::max);
  const std::vector<std::uint64_t> counts = summed(comm, spooled.part->counts);
  summary.unigram_entropy = entropy_of(counts);
  const std::optional<TokenId> unknown = tokenizer.model().unknown();
  if (unknown) summary.unknown_tokens = counts[*unknown];
  return spooled;
}

}  // namespace

CorpusSummary write_corpus(const Tokenizer& tokenizer, const DocumentSource& source,
                           const std::filesystem::path& out, comm::Communicator& comm,
                           const CorpusOptions& options) {
  std::uint64_t unpacked = 0, text = 0, replaced = 0;
  std::map<TokenId, std::uint64_t> added;
  Spooled spooled =
      spool_part(tokenizer, source.bytes(), out, comm, options, [&](TokenSpool& spool) {
        TokenizingSink sink(tokenizer, options, spool);
        const DocumentSource::ReadStats read =
            source.read(comm.rank(), comm.size(), sink, options.progress);
        unpacked = read.unpacked_bytes;
        text = sink.text_bytes();
        replaced = read.replaced_sequences + sink.replaced_sequences();
        added = sink.encoder().added_tokens_found();
        return read.empty_documents;
      });
  CorpusSummary& summary = spooled.summary;
  summary.input_bytes = summed(comm, unpacked);
  summary.text_bytes = summed(comm, text);
  summary.replaced_sequences = summed(comm, replaced);
  summary.added_tokens_found = summed(comm, tokenizer, added);
  for (const auto& [id, count] : summary.added_tokens_found) {
    if (id == tokenizer.model().unknown()) summary.unknown_tokens -= count;
  }
  TRIREME_REQUIRE_INPUT(summary.documents > 0,
                        "nothing to tokenize: the {} of input have no document with text "
                        "({} empty ones)",
                        human_bytes(source.bytes()), summary.empty_documents);
  TRIREME_REQUIRE_INPUT(
      !options.sentences || summary.sentences > 0,
      "there are no sentences in the {} of input: no document has text that becomes "
      "tokens. Leave --sentences out, or name other inputs",
      human_bytes(source.bytes()));
  publish(tokenizer, out, summary, options.sentences, *spooled.part, comm);
  return summary;
}

CorpusSummary write_tokenized_corpus(
    const Tokenizer& tokenizer, std::uint64_t input_bytes,
    const std::filesystem::path& out, comm::Communicator& comm,
    const CorpusOptions& options,
    const std::function<std::uint64_t(TokenSink& sink)>& read) {
  const Spooled spooled = spool_part(tokenizer, input_bytes, out, comm, options, read);
  TRIREME_REQUIRE_INPUT(spooled.summary.documents > 0,
                        "there are no documents with tokens in the input ({} empty ones)",
                        spooled.summary.empty_documents);
  publish(tokenizer, out, spooled.summary, options.sentences, *spooled.part, comm);
  return spooled.summary;
}

}  // namespace trireme::data
