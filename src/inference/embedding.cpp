// inference/embedding.cpp — see embedding.hpp.
//
// A round, of one window or of as many as keep all ranks busy:
//   1. each rank encodes its share of the texts, and all get all token ids;
//   2. every rank sorts each window and cuts it into the same micro-batches, of which
//      rank r of R runs every R-th from the r-th on;
//   3. rank 0 gets the vectors and writes them.
// Example: 3000 texts are windows of 1024, 1024 and 952, with 64, 64 and 60
// micro-batches. A text's vector depends on its micro-batch a little, as sums are taken
// in another order for other numbers of rows: that is why ranks must share these as they
// are.
#include "inference/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "comm/on_ranks.hpp"
#include "comm/process_groups.hpp"
#include "data/token_model.hpp"
#include "data/vector_file.hpp"
#include "inference/framed_texts.hpp"
#include "inference/model_loader.hpp"
#include "inference/text_lines.hpp"
#include "model/blueprint.hpp"
#include "step/output_pass.hpp"

namespace trireme::inference {

namespace {

constexpr index_t kWindow = 1024;  // texts that are sorted by length
constexpr index_t kTexts = 16;     // of a micro-batch
constexpr index_t kBatches = kWindow / kTexts;

using Framed = std::vector<std::int32_t>;
using Number = step::OutputNumber;

std::string_view name_of(Pool pool) {
  return pool == Pool::mean ? "mean" : "cls";
}

template <class T>
void append(std::string& bytes, std::span<const T> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}
template <class T>
std::vector<T> values_of(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The file that the vectors go to, with what they are of.
void open_vectors(std::optional<data::VectorFile>& file, const EmbedOptions& options,
                  const LoadedModel& model, const TextLines& lines) {
  std::vector<std::int64_t> offsets;
  for (index_t i = 0; i < lines.size(); ++i) offsets.push_back(lines.offset(i));
  file.emplace(options.out, model.deck.model.hidden, offsets);
  file->set<std::string>("model", model.path.string());
  file->set<std::int64_t>("step", model.training.step);
  file->set<std::string>("texts", options.texts);
  file->set<std::string>("pool", std::string(name_of(options.pool)));
  file->set<std::int64_t>("normalize", options.normalize ? 1 : 0);
  file->set<std::string>("tokenizer", model.tokenizer->model().description());
  file->set<std::int64_t>("sequence", model.deck.model.sequence);
}

// The texts [first, end) of a file, as all ranks know them.
struct Round {
  index_t first = 0, end = 0;
  std::vector<Framed> texts;
  std::vector<std::vector<std::size_t>> batches;  // indices of `texts`
};

class Embedder {
 public:
  Embedder(const EmbedOptions& options, comm::Communicator& world, LoadedModel& model,
           const TextLines& lines)
      : options_(options),
        world_(world),
        lines_(lines),
        sequence_(model.deck.model.sequence),
        hidden_(model.deck.model.hidden),
        framer_(model),
        pass_(model.replica->make_output_pass(std::min(kTexts, lines.size()))),
        batch_(model.replica->part().blueprint.batch, pass_->samples(),
               framer_.padding()) {}

  // Texts of a round: a window, or where that is too little for all ranks, several.
  index_t texts_of_round() const {
    return kWindow * ((world_.size() + kBatches - 1) / kBatches);
  }
  // A line that cannot be read is found before anything is computed.
  void check_lines() {
    comm::on_every_rank(world_, [&] {
      for_each_own(0, lines_.size(), [&](index_t i) { lines_.text(i); });
    });
  }
  Round read(index_t first) {
    Round round{.first = first,
                .end = std::min(first + texts_of_round(), lines_.size()),
                .texts = {},
                .batches = {}};
    std::string own;
    comm::on_every_rank(world_, [&] {
      for_each_own(round.first, round.end, [&](index_t i) { append_framed(i, own); });
    });
    for (const std::string& part : world_.gather(own)) {
      const std::vector<std::int32_t> ids = values_of<std::int32_t>(part);
      for (auto at = ids.begin(); at != ids.end();) {
        const auto begin = at + 1;
        at = begin + *at;
        round.texts.emplace_back(begin, at);
      }
    }
    cut_into_batches(round);
    return round;
  }
  // On rank 0, in the order of the texts.
  std::vector<Number> run(const Round& round) {
    std::string own;
    comm::on_every_rank(world_, [&] {
      for (std::size_t i = extent(world_.rank()); i < round.batches.size();
           i += extent(world_.size())) {
        run_batch(round, round.batches[i], own);
      }
    });
    const std::vector<std::string> parts = world_.gather_to_first(own);
    if (world_.rank() != 0) return {};
    std::vector<Number> vectors(round.texts.size() * extent(hidden_));
    std::vector<const char*> next;
    for (const std::string& part : parts) next.push_back(part.data());
    const std::size_t bytes = extent(hidden_) * sizeof(Number);
    for (std::size_t i = 0; i < round.batches.size(); ++i) {
      for (const std::size_t text : round.batches[i]) {
        const char*& from = next[i % next.size()];
        std::memcpy(vectors.data() + text * extent(hidden_), from, bytes);
        from += bytes;
      }
    }
    return vectors;
  }

  index_t cut() const { return cut_; }  // of this rank's share
  std::int64_t tokens() const { return tokens_; }
  std::int64_t replaced_sequences() const {
    return static_cast<std::int64_t>(framer_.replaced_sequences());
  }

 private:
  // This rank's part of [first, end).
  template <class Work>
  void for_each_own(index_t first, index_t end, const Work& work) const {
    const index_t count = end - first, ranks = world_.size();
    const auto bound = [&](index_t rank) { return first + count * rank / ranks; };
    for (index_t i = bound(world_.rank()); i < bound(world_.rank() + 1); ++i) work(i);
  }
  void append_framed(index_t i, std::string& bytes) {
    Framed framed = framer_.frame(lines_.text(i));
    if (framer_.cut(framed, sequence_)) ++cut_;
    tokens_ += std::ssize(framed);
    const auto length = static_cast<std::int32_t>(framed.size());
    append<std::int32_t>(bytes, {&length, 1});
    append<std::int32_t>(bytes, framed);
  }
  static void cut_into_batches(Round& round) {
    for (std::size_t begin = 0; begin < round.texts.size(); begin += extent(kWindow)) {
      std::vector<std::size_t> order(
          std::min(extent(kWindow), round.texts.size() - begin));
      std::iota(order.begin(), order.end(), begin);
      std::ranges::stable_sort(
          order, {}, [&](std::size_t text) { return round.texts[text].size(); });
      for (std::size_t at = 0; at < order.size(); at += extent(kTexts)) {
        const std::size_t end = std::min(at + extent(kTexts), order.size());
        round.batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(at),
                                   order.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
  }
  void run_batch(const Round& round, const std::vector<std::size_t>& batch,
                 std::string& bytes) {
    std::vector<const Framed*> texts;
    for (const std::size_t text : batch) texts.push_back(&round.texts[text]);
    batch_.fill(texts);
    const auto given = pass_->run(batch_.batch(), batch_.samples(), batch_.sequences());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      // The mean, and behind it the first row.
      const std::size_t begin = (options_.pool == Pool::mean ? 2 * i : 2 * i + 1);
      const auto row = given.subspan(begin * extent(hidden_), extent(hidden_));
      std::vector<Number> vector(row.begin(), row.end());
      finish(round.first + static_cast<index_t>(batch[i]), vector);
      append<Number>(bytes, vector);
    }
  }
  void finish(index_t text, std::vector<Number>& vector) const {
    double squares = 0.0;
    for (const Number x : vector)
      squares += static_cast<double>(x) * static_cast<double>(x);
    TRIREME_REQUIRE_INPUT(std::isfinite(squares),
                          "the vector of text {} has numbers that are not finite: look "
                          "at the checkpoint's weights (trireme inspect --verify)",
                          text + 1);
    if (!options_.normalize || squares == 0.0) return;
    const double share = 1.0 / std::sqrt(squares);
    for (Number& x : vector) x = static_cast<Number>(static_cast<double>(x) * share);
  }

  const EmbedOptions& options_;
  comm::Communicator& world_;
  const TextLines& lines_;
  index_t sequence_, hidden_;
  TextFramer framer_;
  std::unique_ptr<step::OutputPass> pass_;
  FramedBatch batch_;
  index_t cut_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace

EmbedSummary embed(const EmbedOptions& options, comm::Communicator& world, Log& log,
                   const EmbedProgress& progress) {
  const TextLines lines(options.texts, options.json_key);
  LoadedModel model = load_model(comm::make_groups_of_one(), options.checkpoint, log,
                                 options.overrides, model::Use::vectors);
  Embedder embedder(options, world, model, lines);
  // Ranks take as many turns as they have found lines.
  const index_t most = world.all_reduce(lines.size(), comm::Op::max);
  TRIREME_REQUIRE_INPUT(
      world.all_reduce(lines.size(), comm::Op::min) == most,
      "ranks have read different numbers of lines in '{}': is it still being written?",
      options.texts);
  embedder.check_lines();
  std::optional<data::VectorFile> file;
  comm::on_first_rank(world, [&] { open_vectors(file, options, model, lines); });
  for (index_t first = 0; first < lines.size(); first += embedder.texts_of_round()) {
    const Round round = embedder.read(first);
    const std::vector<Number> vectors = embedder.run(round);
    comm::on_first_rank(world, [&] {
      std::vector<std::int32_t> tokens;
      for (const Framed& text : round.texts) {
        tokens.push_back(static_cast<std::int32_t>(text.size()));
      }
      file->write(first, vectors, tokens);
    });
    if (progress) progress(round.end, lines.size());
  }
  EmbedSummary summary{
      .texts = lines.size(),
      .columns = model.deck.model.hidden,
      .cut = world.all_reduce(embedder.cut()),
      .sequence = model.deck.model.sequence,
      .blank_lines = lines.blank_lines(),
      .tokens = world.all_reduce(embedder.tokens()),
      .replaced_sequences = world.all_reduce(embedder.replaced_sequences())};
  comm::on_first_rank(world, [&] {
    file->set<std::int64_t>("cut_texts", summary.cut);
    file->commit();
  });
  return summary;
}

}  // namespace trireme::inference
