// data/megatron_dataset.cpp — see megatron_dataset.hpp.
//
// Both files are mapped, and numbers of the index are copied out of it one by one, as
// nothing in it is aligned; whatever it claims is compared with the sizes of both files
// before it is believed. Documents are runs of sequences: with the first sequences [0, 2,
// 3] of the documents, document 0 is sequences 0 and 1, and document 1 is sequence 2. Ids
// may be of any integer type.
#include "data/megatron_dataset.hpp"

#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kVersion = 1;

// Nothing in the index is aligned: its header has 34 bytes.
template <class T>
T value_at(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

fs::path with_suffix(const fs::path& path, const char* suffix) {
  fs::path name = path;
  if (name.extension() == ".idx" || name.extension() == ".bin") name.replace_extension();
  return name += suffix;
}

}  // namespace

// The types of ids by their code in the index; 6 and 7 are floating-point numbers.
const MegatronDataset::IdType MegatronDataset::kIdTypes[9] = {
    {},
    {1, &MegatronDataset::append_sequence<std::uint8_t>},
    {1, &MegatronDataset::append_sequence<std::int8_t>},
    {2, &MegatronDataset::append_sequence<std::int16_t>},
    {4, &MegatronDataset::append_sequence<std::int32_t>},
    {8, &MegatronDataset::append_sequence<std::int64_t>},
    {},
    {},
    {2, &MegatronDataset::append_sequence<std::uint16_t>}};

bool is_megatron_dataset(const fs::path& path) {
  std::error_code ignored;  // not there: not one
  if (path.extension() == ".idx" || path.extension() == ".bin") {
    return fs::is_regular_file(path, ignored);
  }
  return !fs::exists(path, ignored) &&
         fs::is_regular_file(with_suffix(path, ".idx"), ignored);
}

MegatronDataset::MegatronDataset(const fs::path& path)
    : index_(with_suffix(path, ".idx"), io::MappedFile::Access::sequential,
             "index of a Megatron dataset"),
      bin_(with_suffix(path, ".bin"), io::MappedFile::Access::sequential,
           "tokens of a Megatron dataset") {
  const std::string name = index_.path().string();
  constexpr std::uint64_t kHeader = 34;
  TRIREME_REQUIRE_INPUT(index_.size() >= kHeader &&
                            std::memcmp(index_.data(), kMagic.data(), kMagic.size()) == 0,
                        "'{}' is not the index of a Megatron dataset: it does not begin "
                        "with MMIDIDX (tools/preprocess_data.py makes one that does)",
                        name);
  const auto version = value_at<std::uint64_t>(index_.data() + 9);
  TRIREME_REQUIRE_INPUT(version == kVersion, "'{}' has version {}; {} can be read", name,
                        version, kVersion);
  const auto code = value_at<std::uint8_t>(index_.data() + 17);
  TRIREME_REQUIRE_INPUT(code < std::size(kIdTypes) && kIdTypes[code].bytes > 0,
                        "'{}' has elements of type code {}, which is no integer: token "
                        "ids are integers",
                        name, code);
  id_type_ = kIdTypes[code];
  sequences_ = value_at<std::uint64_t>(index_.data() + 18);
  const auto bounds = value_at<std::uint64_t>(index_.data() + 26);
  // Compared without overflow: both counts are whatever the file says.
  const std::uint64_t room = index_.size() - kHeader;
  TRIREME_REQUIRE_INPUT(
      bounds > 0 && sequences_ <= room / 12 && bounds <= (room - sequences_ * 12) / 8,
      "'{}' is damaged or cut short: {} cannot hold {} and {} document bounds", name,
      format_plural(index_.size(), "byte"), format_plural(sequences_, "sequence"),
      bounds);
  documents_ = bounds - 1;
  lengths_ = index_.data() + kHeader;
  places_ = lengths_ + sequences_ * sizeof(std::int32_t);
  bounds_ = places_ + sequences_ * sizeof(std::int64_t);
  check_places();
}

std::int64_t MegatronDataset::sequence_length(std::uint64_t i) const {
  return value_at<std::int32_t>(lengths_ + i * sizeof(std::int32_t));
}

std::int64_t MegatronDataset::sequence_place(std::uint64_t i) const {
  return value_at<std::int64_t>(places_ + i * sizeof(std::int64_t));
}

std::int64_t MegatronDataset::document_bound(std::uint64_t i) const {
  return value_at<std::int64_t>(bounds_ + i * sizeof(std::int64_t));
}

void MegatronDataset::check_places() const {
  const auto count = static_cast<std::int64_t>(sequences_);
  TRIREME_REQUIRE_INPUT(document_bound(0) == 0 && document_bound(documents_) == count,
                        "'{}' is damaged: its documents do not cover its {}",
                        index_.path().string(), format_plural(sequences_, "sequence"));
  for (std::uint64_t i = 0; i < documents_; ++i) {
    TRIREME_REQUIRE_INPUT(document_bound(i) <= document_bound(i + 1),
                          "'{}' is damaged: document {} ends before it begins",
                          index_.path().string(), i);
  }
  const auto size = static_cast<std::int64_t>(bin_.size());
  const auto width = static_cast<std::int64_t>(id_type_.bytes);
  for (std::uint64_t i = 0; i < sequences_; ++i) {
    const std::int64_t place = sequence_place(i), length = sequence_length(i);
    TRIREME_REQUIRE_INPUT(
        place >= 0 && length >= 0 && place <= size && length * width <= size - place,
        "'{}' has {}, and '{}' puts {} of sequence {} at byte {}: one of the files is "
        "cut short or belongs to another dataset",
        bin_.path().string(), format_plural(size, "byte"), index_.path().string(),
        format_plural(length, "id"), i, place);
  }
}

template <class Id>
void MegatronDataset::append_sequence(std::uint64_t sequence, TokenId vocabulary_size,
                                      std::uint64_t document,
                                      std::vector<TokenId>& ids) const {
  const std::byte* place = bin_.data() + sequence_place(sequence);
  const std::int64_t length = sequence_length(sequence);
  for (std::int64_t i = 0; i < length; ++i, place += sizeof(Id)) {
    const auto id = static_cast<std::int64_t>(value_at<Id>(place));
    TRIREME_REQUIRE_INPUT(id >= 0 && id < static_cast<std::int64_t>(vocabulary_size),
                          "'{}': token {} of document {} is {}, and the tokenizer has "
                          "{}: was the dataset made with another one?",
                          bin_.path().string(), ids.size(), document, id,
                          format_plural(vocabulary_size, "token"));
    ids.push_back(static_cast<TokenId>(id));
  }
}

void MegatronDataset::read_document(std::uint64_t document, TokenId vocabulary_size,
                                    std::vector<TokenId>& ids,
                                    std::vector<std::size_t>* begins) const {
  ids.clear();
  if (begins != nullptr) begins->clear();
  const auto first = static_cast<std::uint64_t>(document_bound(document));
  const auto last = static_cast<std::uint64_t>(document_bound(document + 1));
  for (std::uint64_t sequence = first; sequence < last; ++sequence) {
    if (begins != nullptr && sequence_length(sequence) > 0) begins->push_back(ids.size());
    (this->*id_type_.append)(sequence, vocabulary_size, document, ids);
  }
  index_.require_uncut();
  bin_.require_uncut();
}

namespace {

// The documents of one rank on their way into a corpus.
class MegatronDocuments {
 public:
  MegatronDocuments(const MegatronDataset& dataset, const Tokenizer& tokenizer,
                    bool has_sentences, TokenSink& sink)
      : dataset_(dataset),
        end_(tokenizer.end_of_document()),
        size_(tokenizer.vocabulary_size()),
        has_sentences_(has_sentences),
        sink_(sink) {}

  void copy(std::uint64_t document) {
    dataset_.read_document(document, size_, ids_, &begins_);
    if (!ids_.empty() && ids_.back() == end_) ids_.pop_back();
    if (ids_.empty()) {
      ++empty_;
      return;
    }
    sink_.begin_document();
    for (const std::size_t begin : begins_) {
      // The end of the document, alone in a sequence, is in no sentence.
      if (has_sentences_ && begin < ids_.size()) sink_.begin_sentence(begin);
    }
    ids_.push_back(end_);
    sink_.tokens(ids_);
  }
  std::uint64_t empty() const { return empty_; }

 private:
  const MegatronDataset& dataset_;
  TokenId end_, size_;
  bool has_sentences_;
  TokenSink& sink_;
  std::uint64_t empty_ = 0;
  std::vector<TokenId> ids_;
  std::vector<std::size_t> begins_;
};

}  // namespace

CorpusSummary convert_megatron_dataset(const MegatronDataset& dataset,
                                       const Tokenizer& tokenizer, const fs::path& out,
                                       comm::Communicator& comm,
                                       const CorpusOptions& options) {
  TRIREME_REQUIRE_INPUT(!options.sentences || dataset.sequences() > dataset.documents(),
                        "'{}' has {} in {}: its sequences are no sentences. Make it with "
                        "preprocess_data.py "
                        "--split-sentences, or leave --sentences out",
                        dataset.path().string(),
                        format_plural(dataset.sequences(), "sequence"),
                        format_plural(dataset.documents(), "document"));
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  const auto rank = static_cast<std::uint64_t>(comm.rank());
  const std::uint64_t first = dataset.documents() * rank / ranks;
  const std::uint64_t last = dataset.documents() * (rank + 1) / ranks;
  return write_tokenized_corpus(
      tokenizer, dataset.bytes(), out, comm, options, [&](TokenSink& sink) {
        MegatronDocuments documents(dataset, tokenizer, options.sentences.has_value(),
                                    sink);
        for (std::uint64_t i = first; i < last; ++i) {
          documents.copy(i);
          if (options.progress) options.progress(i + 1 - first, last - first);
        }
        return documents.empty();
      });
}

}  // namespace trireme::data
