// step/decoder.cpp — see decoder.hpp.
//
// The cache is one allocation, dealt to the layers at the start. A prompt goes through
// the model in pieces of kPieceRows tokens; only the last piece asks for logits, and only
// of its last token. Logits of a tensor group are gathered rank by rank, (rank, text,
// column), and put in order on the host.
//
// A step of few tokens is little work: its small launches are left to the calling thread,
// and whether the others take part in the large ones is decided by their time
// (faster_way.hpp). Neither changes a bit of the results.
//
// A step of draw() has a row for each place, whether there is a text or not: a row
// without one has length 0. So its launches are the same from token to token, and for any
// texts.
#include "step/decoder.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/core_time.hpp"
#include "base/error.hpp"
#include "base/graph.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "comm/group.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/step_state.hpp"
#include "model/chunk.hpp"
#include "nn/micro_batch.hpp"
#include "step/drawn_texts.hpp"
#include "step/faster_way.hpp"
#include "tensor/arena.hpp"
#include "tensor/batch_spec.hpp"
#include "tensor/shard.hpp"

namespace trireme::step {

namespace {

// A GPU's step has a text's bits whatever the other texts are as long as its products are
// decode_linear()'s.
static_assert(Decoder::kStepTexts <= kernels::kDecodeRows);

// The first `count` elements, on the Exec's queue.
template <class To, class From>
void copy_front(const Exec& exec, const To& to, const From& from, index_t count) {
  const auto front = Kokkos::make_pair(index_t{0}, count);
  copy(exec, Kokkos::subview(to, front), Kokkos::subview(from, front));
}

// Seconds that one core takes to read all weights, at the best.
template <class T>
double seconds_to_read(const ModelState<T>& state) {
  constexpr double kBytesPerSecond = 18e9;
  index_t elements = 0;
  for (std::size_t i = 0; i < state.registry.size(); ++i) {
    elements += state.registry.spec(i).shard.real_elements();
  }
  return static_cast<double>(extent(elements) * sizeof(T)) / kBytesPerSecond;
}

template <class T>
class DecoderOf final : public Decoder {
 public:
  // On a shape-only Exec it finds what it would take, and can do no more.
  DecoderOf(const Exec& exec, ModelState<T>& state, index_t places)
      : Decoder(state.blueprint, places),
        exec_(exec.with_small_launches_alone()),
        alone_(exec.on_one_thread()),
        state_(state),
        way_(seconds_to_read(state),
             [threads = exec.is_shape_only() ? 1 : exec.space().concurrency()] {
               return are_cores_wanted(threads);
             }),
        texts_(exec, std::min(places, kStepTexts), kDrawnSteps) {
    TRIREME_REQUIRE(places >= 1, "a decoder with {}", format_plural(places, "place"));
    const index_t ranks = state.groups.tensor->size();
    const index_t logits = places * state.whole().logit_columns();
    allocate(cache_, "decoder cache", cache_elements());
    allocate(step_, "decoder step", 1);
    allocate(tokens_, "decoder tokens", kPieceRows);
    allocate(positions_, "decoder positions", kPieceRows);
    allocate(of_texts_, "decoder texts", numbers_of_text() * kStepTexts);
    if (has_source()) allocate(source_, "decoder source", source_context() + 1);
    allocate(logits_, "decoder logits", logits);
    if (ranks > 1) allocate(gathered_, "decoder gather", ranks * logits);
    bytes_ += texts_.device_bytes();
    deal_cache();
    // Of layers that are not joined, which want more: the device may have no launch of
    // all.
    if (exec.is_shape_only()) find_workspace();
    // Messages lie between a layer's launches, or weights are lent for each use of them.
    if (ranks == 1 && state.use == nullptr) {
      state.whole().join_layers(exec, context(), layers_);
      if (layers_.launch) bytes_ += layers_.launch->layers.bytes();
    }
    if (exec.is_shape_only()) return;
    ModelState<T> shapes = state.without_memory();
    const DecoderOf planned(Exec::shape_only(), shapes, places);
    workspace_ = Workspace(planned.workspace_.peaks());
    host_tokens_ = HostArray<std::int32_t>("decoder tokens (host)", extent(kPieceRows));
    host_positions_ =
        HostArray<std::int32_t>("decoder positions (host)", extent(kPieceRows));
    host_of_texts_ = HostArray<std::int32_t>("decoder texts (host)",
                                             extent(numbers_of_text() * kStepTexts));
    host_source_ = HostArray<std::int32_t>("decoder source (host)", source_.extent(0));
    host_logits_ = HostArray<T>("decoder logits (host)", extent(ranks * logits));
    lengths_.resize(extent(places), 0);
    source_lengths_.resize(extent(places), 0);
    whole_logits_.resize(extent(places * vocabulary()));
  }

  DecoderMemory planned_memory() const {
    return {.cache = extent(cache_elements()) * sizeof(T),
            .total = bytes_ + workspace_.peaks().total()};
  }

  void clear(index_t place) override {
    length_of(place) = 0;
    source_length_of(place) = 0;
  }
  index_t length(index_t place) const override { return lengths_.at(extent(place)); }

  void begin_text(index_t place, std::span<const data::TokenId> source) override {
    const auto count = static_cast<index_t>(source.size());
    TRIREME_REQUIRE(
        has_source() && length(place) == 0 && count >= 1 && count <= source_context(),
        "a source of {} for a text of {}; there is room for {}",
        format_plural(count, "position"), format_plural(length(place), "position"),
        source_context());
    for (index_t p = 0; p < count; ++p) {
      host_source_(extent(p)) = static_cast<std::int32_t>(source[extent(p)]);
    }
    host_source_(extent(count)) = static_cast<std::int32_t>(count);
    copy_front(exec_, source_, host_source_, count + 1);
    run_source(exec_, count, place, source_.data());
    exec_.fence("trireme::step::begin_text");
    source_length_of(place) = count;
  }

  std::span<const Logit> read(index_t place,
                              std::span<const data::TokenId> tokens) override {
    const auto count = static_cast<index_t>(tokens.size());
    TRIREME_REQUIRE(count > 0, "no tokens to read");
    require_room(place, count);
    for (index_t at = 0; at < count; at += kPieceRows) {
      const index_t rows = std::min(kPieceRows, count - at);
      const index_t begin = length(place);
      for (index_t r = 0; r < rows; ++r) {
        set_row(r, tokens[extent(at + r)], begin + r);
      }
      length_of(place) += rows;
      // Of few rows it is work like a step's.
      const bool goes_alone = rows <= kStepTexts && way_.takes_second();
      run(goes_alone ? alone_ : exec_, rows, 1,
          {.capacity = context(), .first_place = place, .longest = begin + rows},
          {.capacity = source_context(),
           .first_place = place,
           .longest = source_length_of(place)},
          0, at + rows == count ? 1 : 0);
    }
    return fetch_logits(1);
  }

  void copy_text(index_t from, index_t to) override {
    TRIREME_REQUIRE(length(to) == 0, "the place for a copied text is not empty");
    // The first `positions` rows of a place, of so many that each has.
    const auto copy_rows = [&](const View2<T>& view, index_t capacity,
                               index_t positions) {
      const auto columns = static_cast<index_t>(view.extent(1));
      const auto part = [&](index_t place) {
        return View1<T>(view.data() + place * capacity * columns,
                        extent(positions * columns));
      };
      copy(exec_, part(to), part(from));
    };
    for (const nn::KvCache<T>& layer : layers_.caches) {
      copy_rows(layer.k, context(), length(from));
      copy_rows(layer.v, context(), length(from));
      if (!has_source()) continue;
      copy_rows(layer.source_k, source_context(), source_length_of(from));
      copy_rows(layer.source_v, source_context(), source_length_of(from));
    }
    exec_.fence("trireme::step::copy_text");
    length_of(to) = length(from);
    source_length_of(to) = source_length_of(from);
  }

  std::span<const Logit> step(std::span<const Next> texts) override {
    const auto count = static_cast<index_t>(texts.size());
    TRIREME_REQUIRE(count >= 1 && count <= places(), "a step of {} in {}",
                    format_plural(count, "text"), format_plural(places(), "place"));
    const auto begin = std::chrono::steady_clock::now();
    const Exec& exec = way_.takes_second() ? alone_ : exec_;
    for (index_t at = 0; at < count; at += kStepTexts) {
      const index_t part = std::min(kStepTexts, count - at);
      step_part(exec, texts.subspan(extent(at), extent(part)), at);
    }
    if (exec_.space().concurrency() > 1 && kHostExecution) {
      way_.add(seconds_since(begin));
    }
    return fetch_logits(count);
  }

  void draw(const Drawing& drawing, std::span<const Continued> texts,
            index_t steps) override {
    TRIREME_REQUIRE(
        draws() && places() <= kStepTexts && steps >= 1 && steps <= kDrawnSteps,
        "{} drawn in {}: {} and {} at most, by models that can draw on the "
        "device",
        format_plural(steps, "step"), format_plural(places(), "place"), kDrawnSteps,
        kStepTexts);
    texts_.clear();
    for (const Continued& text : texts) {
      require_room(text.place, 1);
      texts_.set(text.place,
                 {text.token, length(text.place), text.size, text.left, text.owner});
    }
    texts_.send(exec_);
    for (index_t i = 0; i < steps; ++i) run_or_replay_token(drawing);
    texts_.fetch(exec_);
    for (const Continued& text : texts) {
      length_of(text.place) += std::ssize(drawn(text.place));
      check_drawn(text);
    }
  }
  std::span<const std::int32_t> drawn(index_t place) const override {
    return texts_.drawn(place);
  }
  bool draws() const override { return state_.whole().can_draw(); }

  // One step of draw().
  void run_token(const Exec& exec, const Drawing& drawing) {
    const kernels::TextRows rows = texts_.rows();
    const auto count = static_cast<index_t>(rows.tokens.extent(0));
    run_layers(exec, 1, count,
               {.count = count,
                .capacity = context(),
                .lengths = rows.lengths,
                .longest = context()},
               {}, logits_from(0, count), rows.tokens.data(), rows.positions.data());
    const index_t ranks = state_.groups.tensor->size();
    if (ranks > 1) gather_logits(exec, count);
    kernels::draw_tokens<T>(exec, drawing.rule,
                            {.data = ranks > 1 ? gathered_.data() : logits_.data(),
                             .count = count,
                             .columns = state_.whole().logit_columns(),
                             .ranks = ranks,
                             .share = largest_share(vocabulary(), ranks),
                             .usable = drawing.usable},
                            drawing.end_of_document, context(), rows);
  }

 private:
  template <class Array>
  void allocate(Array& array, const char* label, index_t count) {
    bytes_ += extent(count) * sizeof(typename Array::value_type);
    if (!exec_.is_shape_only()) array = Array(label, extent(count));
  }

  // Of keys, and the same of values.
  index_t cache_elements() const {
    const auto sum = [](const std::vector<index_t>& columns) {
      return std::accumulate(columns.begin(), columns.end(), index_t{0});
    };
    const index_t of_place = sum(state_.whole().cache_columns()) * context() +
                             sum(state_.whole().source_columns()) * source_context();
    return 2 * of_place * places();
  }

  void deal_cache() {
    const std::vector<index_t> own = state_.whole().cache_columns();
    const std::vector<index_t> of_source = state_.whole().source_columns();
    T* next = cache_.data();
    const auto take = [&](index_t positions, index_t columns) {
      const View2<T> view(next, extent(positions * places()), extent(columns));
      if (next != nullptr) next += positions * places() * columns;
      return view;
    };
    for (std::size_t i = 0; i < own.size(); ++i) {
      nn::KvCache<T>& layer = layers_.caches.emplace_back();
      layer.k = take(context(), own[i]);
      layer.v = take(context(), own[i]);
      layer.source_k = take(source_context(), of_source[i]);
      layer.source_v = take(source_context(), of_source[i]);
    }
  }

  // The first token of a drawing is launched as ever, which makes what libraries keep.
  void run_or_replay_token(const Drawing& drawing) {
    if (graph_.is_recorded() && recorded_.is_same(drawing)) {
      graph_.replay(exec_);
      return;
    }
    run_token(exec_, drawing);
    // Messages lie between the launches, or weights are lent for each use of them.
    if (state_.groups.tensor->size() > 1 || state_.use != nullptr) return;
    graph_.record(exec_, [this, drawing](const Exec& on) { run_token(on, drawing); });
    recorded_ = drawing;
  }
  void check_drawn(const Continued& text) const {
    const auto tokens = drawn(text.place);
    if (tokens.empty() || kernels::TextRows::is_token(tokens.back())) return;
    TRIREME_REQUIRE(false,
                    "the logit of token {} at position {} is not finite: the weights are "
                    "not those of a healthy model (did its training diverge?)",
                    kernels::TextRows::bad_logit(tokens.back()),
                    text.size + std::ssize(tokens) - 1);
  }

  // Of a text in a step: its place and its length, and that of its source.
  index_t numbers_of_text() const { return has_source() ? 3 : 2; }
  index_t& length_of(index_t place) { return lengths_.at(extent(place)); }
  index_t& source_length_of(index_t place) { return source_lengths_.at(extent(place)); }
  void require_room(index_t place, index_t news) const {
    TRIREME_REQUIRE(!has_source() || source_lengths_.at(extent(place)) > 0,
                    "the text in place {} has no source: begin_text() takes it", place);
    TRIREME_REQUIRE(length(place) + news <= context(),
                    "{} are filled, {} more exceed the model's {}",
                    format_plural(length(place), "position"),
                    format_plural(news, "token"), context());
  }
  void set_row(index_t row, data::TokenId token, index_t position) {
    host_tokens_(extent(row)) = static_cast<std::int32_t>(token);
    host_positions_(extent(row)) = static_cast<std::int32_t>(position);
  }

  // On shapes: the longest piece of a prompt, the largest step, and the longest source.
  void find_workspace() {
    workspace_ = Workspace({1}, {1});
    run_layers(exec_, kPieceRows, 1,
               {.capacity = std::max(context(), kPieceRows),
                .longest = std::max(context(), kPieceRows)},
               {.capacity = source_context(), .longest = source_context()},
               logits_from(0, 1), nullptr, nullptr);
    const index_t texts = std::min(kStepTexts, places());
    run_layers(
        exec_, 1, texts, {.count = texts, .capacity = context(), .longest = context()},
        {.count = texts, .capacity = source_context(), .longest = source_context()},
        logits_from(0, texts), nullptr, nullptr);
    if (has_source()) run_source(exec_, source_context(), 0, nullptr);
  }

  // Texts of one step, whose logits go to the rows from `first` on.
  void step_part(const Exec& exec, std::span<const Next> texts, index_t first) {
    const auto count = static_cast<index_t>(texts.size());
    index_t longest = 0, longest_source = 0;
    for (index_t i = 0; i < count; ++i) {
      const Next& text = texts[extent(i)];
      require_room(text.place, 1);
      set_row(i, text.token, length(text.place));
      const index_t now = ++length_of(text.place);
      host_of_texts_(extent(i)) = static_cast<std::int32_t>(text.place);
      host_of_texts_(extent(count + i)) = static_cast<std::int32_t>(now);
      longest = std::max(longest, now);
      if (!has_source()) continue;
      const index_t of_source = source_length_of(text.place);
      host_of_texts_(extent(2 * count + i)) = static_cast<std::int32_t>(of_source);
      longest_source = std::max(longest_source, of_source);
    }
    copy_front(exec, of_texts_, host_of_texts_, numbers_of_text() * count);
    const auto numbers = [&](index_t which) {
      return View1<const std::int32_t>(of_texts_.data() + which * count, extent(count));
    };
    kernels::CachedTexts sources;
    if (has_source()) {
      sources = {.count = count,
                 .capacity = source_context(),
                 .places = numbers(0),
                 .lengths = numbers(2),
                 .longest = longest_source};
    }
    run(exec, 1, count,
        {.count = count,
         .capacity = context(),
         .places = numbers(0),
         .lengths = numbers(1),
         .longest = longest},
        sources, first, count);
  }

  View2<T> logits_from(index_t first, index_t rows) const {
    const index_t columns = state_.whole().logit_columns();
    T* const data =
        logits_.data() == nullptr ? nullptr : logits_.data() + first * columns;
    return {data, extent(rows), extent(columns)};
  }

  // The rows that set_row() was told of: `sequence` of each of `samples` texts.
  void run(const Exec& exec, index_t sequence, index_t samples,
           const kernels::CachedTexts& texts, const kernels::CachedTexts& sources,
           index_t first_logits, index_t logit_rows) {
    copy_front(exec, tokens_, host_tokens_, sequence * samples);
    copy_front(exec, positions_, host_positions_, sequence * samples);
    run_layers(exec, sequence, samples, texts, sources,
               logits_from(first_logits, logit_rows), tokens_.data(), positions_.data());
    // The host's copies are written again by the next call.
    exec.fence("trireme::step::decode");
  }

  // Of samples whose only stream with rows is this one.
  BatchSpec spec_of(int stream, index_t sequence) const {
    BatchSpec spec = state_.blueprint.batch;
    for (StreamSpec& of : spec.streams) of.sequence = 0;
    spec.streams.at(extent(stream)).sequence = sequence;
    return spec;
  }
  nn::Context context_of(const Exec& exec, const nn::MicroBatch& batch) {
    return {.exec = exec,
            .groups = state_.groups,
            .step = kernels::StepStateView(step_.data()),
            .saved = &workspace_.saved(0, 0),
            .scratch = workspace_.scratch(),
            .held = workspace_.held(),
            .batch = batch,
            .mode = nn::Mode::evaluation,
            .params = state_.use};
  }

  // token_ids and positions: on the device, of `sequence` of each of `samples` texts.
  void run_layers(const Exec& exec, index_t sequence, index_t samples,
                  const kernels::CachedTexts& texts, const kernels::CachedTexts& sources,
                  const View2<T>& logits, const std::int32_t* token_ids,
                  const std::int32_t* positions) {
    for (nn::KvCache<T>& layer : layers_.caches) {
      layer.texts = texts;
      layer.sources = sources;
    }
    const model::Blueprint& blueprint = state_.blueprint;
    const BatchSpec spec = spec_of(blueprint.text_stream(), sequence);
    nn::MicroBatch batch(spec, samples);
    for (nn::Stream& stream : batch.streams) stream.lengths = -1;  // nothing is padded
    const index_t rows = sequence * samples;
    batch.set(spec.field(blueprint.decoded.tokens), token_ids, rows);
    if (!blueprint.decoded.positions.empty()) {
      batch.set(spec.field(blueprint.decoded.positions), positions, rows);
    }
    state_.whole().decode(context_of(exec, batch), layers_, logits);
  }

  // `source`: on the device, its words, and behind them how many they are.
  void run_source(const Exec& exec, index_t count, index_t place,
                  const std::int32_t* source) {
    // (By its name: nvcc's front end cannot assign a list with designators to it here.)
    const kernels::CachedTexts text{
        .capacity = source_context(), .first_place = place, .longest = count};
    for (nn::KvCache<T>& layer : layers_.caches) layer.sources = text;
    const model::Blueprint& blueprint = state_.blueprint;
    const BatchSpec spec = spec_of(blueprint.source_stream(), count);
    nn::MicroBatch batch(spec, 1);
    batch.set(spec.field(blueprint.decoded.source), source, count);
    batch.set(spec.field(blueprint.decoded.source_lengths),
              source == nullptr ? nullptr : source + count, 1);
    state_.whole().begin_text(context_of(exec, batch), layers_);
  }

  void gather_logits(const Exec& exec, index_t texts) {
    comm::Group& tensor = *state_.groups.tensor;
    const index_t part = texts * state_.whole().logit_columns();
    tensor.all_gather(exec, comm::ConstSpan(logits_.data(), part, dtype_of<T>),
                      {gathered_.data(), tensor.size() * part, dtype_of<T>});
  }

  std::span<const Logit> fetch_logits(index_t texts) {
    const index_t ranks = state_.groups.tensor->size();
    const index_t columns = state_.whole().logit_columns();
    const index_t part = texts * columns;
    if (ranks > 1) gather_logits(exec_, texts);
    copy_front(exec_, host_logits_, ranks > 1 ? gathered_ : logits_, ranks * part);
    exec_.fence("trireme::step::fetch_logits");
    // Words of a rank: its first columns; those behind them are padding.
    const index_t share = largest_share(vocabulary(), ranks);
    for (index_t text = 0; text < texts; ++text) {
      for (index_t rank = 0; rank < ranks; ++rank) {
        const index_t words = std::clamp(vocabulary() - rank * share, index_t{0}, share);
        const T* const from = host_logits_.data() + rank * part + text * columns;
        Logit* const to = whole_logits_.data() + text * vocabulary() + rank * share;
        for (index_t j = 0; j < words; ++j) to[j] = static_cast<Logit>(from[j]);
      }
    }
    return {whole_logits_.data(), extent(texts * vocabulary())};
  }

  Exec exec_, alone_;
  ModelState<T>& state_;
  FasterWay way_;          // of a step: exec_ or alone_
  std::size_t bytes_ = 0;  // of device memory beside the workspace, allocated or planned
  std::vector<index_t> lengths_;         // of the text in each place
  std::vector<index_t> source_lengths_;  // of its source; 0: there is none
  DeviceArray<T> cache_;
  model::DecodeState<T> layers_;
  Workspace workspace_;
  DeviceArray<kernels::StepState> step_;          // unused values; layers ask for one
  DeviceArray<std::int32_t> tokens_, positions_;  // (kPieceRows)
  // Of a step's texts: places, then lengths, then lengths of sources.
  DeviceArray<std::int32_t> of_texts_;
  DeviceArray<std::int32_t> source_;  // the one that is taken in, and its length
  // This rank's logits, and those of the tensor group, rank by rank.
  DeviceArray<T> logits_, gathered_;
  HostArray<std::int32_t> host_tokens_, host_positions_, host_of_texts_, host_source_;
  HostArray<T> host_logits_;
  std::vector<Logit> whole_logits_;  // (places, V)
  DrawnTexts texts_;                 // of draw(): row i is place i
  Graph graph_;                      // of a step of draw(), and by what it draws
  Drawing recorded_;
};

}  // namespace

Decoder::Decoder(const model::Blueprint& model, index_t places)
    : vocabulary_(model.architecture.vocab), places_(places) {
  TRIREME_REQUIRE(model.generates_text(), "no text is generated by models of kind {}",
                  name_of(model.architecture.kind));
  const auto positions = [&](int stream) {
    return model.batch.streams.at(extent(stream)).sequence;
  };
  context_ = positions(model.text_stream());
  if (model.decoded.has_source()) source_context_ = positions(model.source_stream());
}

bool Decoder::Drawing::is_same(const Drawing& other) const {
  return rule.temperature == other.rule.temperature && rule.top_k == other.rule.top_k &&
         rule.top_p == other.rule.top_p && rule.seed == other.rule.seed &&
         usable == other.usable && end_of_document == other.end_of_document;
}

template <class T>
std::unique_ptr<Decoder> make_decoder(const Exec& exec, ModelState<T>& state,
                                      index_t places) {
  return std::make_unique<DecoderOf<T>>(exec, state, places);
}

template <class T>
DecoderMemory plan_decoder(const ModelState<T>& state, index_t places) {
  ModelState<T> shapes = state.without_memory();
  return DecoderOf<T>(Exec::shape_only(), shapes, places).planned_memory();
}

template <class T>
Tally plan_token(const ModelState<T>& state, index_t places) {
  ModelState<T> shapes = state.without_memory();
  Tally tally;
  DecoderOf<T> decoder(Exec::shape_only(tally), shapes, places);
  const Tally before = tally;
  decoder.run_token(Exec::shape_only(tally), {.usable = decoder.vocabulary()});
  return tally - before;
}

#define TRIREME_INSTANTIATE(T)                                                   \
  template std::unique_ptr<Decoder> make_decoder<T>(const Exec&, ModelState<T>&, \
                                                    index_t);                    \
  template DecoderMemory plan_decoder<T>(const ModelState<T>&, index_t);         \
  template Tally plan_token<T>(const ModelState<T>&, index_t);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step
