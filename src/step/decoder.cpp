// step/decoder.cpp — see decoder.hpp.
//
// The cache is one allocation, dealt to the layers anew for each number of texts. A
// prompt goes through the model in pieces of kPieceRows rows, a row being one token of
// one text: of 3 texts 170 tokens each at a time. Only the last piece asks for logits,
// and only of its last tokens. Logits of a tensor group are gathered rank by rank, (rank,
// text, column), and put in order on the host.
#include "step/decoder.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/group.hpp"
#include "kernels/step_state.hpp"
#include "model/chunk.hpp"
#include "nn/micro_batch.hpp"
#include "tensor/arena.hpp"
#include "tensor/batch_spec.hpp"
#include "tensor/shard.hpp"

namespace trireme::step {

namespace {

// The first `count` elements, on the Exec's queue.
template <class To, class From>
void copy_front(const Exec& exec, const To& to, const From& from, index_t count) {
  const auto front = Kokkos::make_pair(index_t{0}, count);
  copy(exec, Kokkos::subview(to, front), Kokkos::subview(from, front));
}

template <class T>
class DecoderOf final : public Decoder {
 public:
  // On a shape-only Exec it finds what it would take, and can do no more.
  DecoderOf(const Exec& exec, ModelState<T>& state, index_t most_texts)
      : Decoder(state.architecture(), most_texts), exec_(exec), state_(state) {
    TRIREME_REQUIRE(most_texts >= 1, "a decoder of {}",
                    format_plural(most_texts, "text"));
    const index_t rows = std::max(kPieceRows, most_texts);
    const index_t ranks = state.groups.tensor->size();
    const index_t logits = most_texts * state.whole().logit_columns();
    allocate(cache_, "decoder cache", cache_elements());
    allocate(step_, "decoder step", 1);
    allocate(tokens_, "decoder tokens", rows);
    allocate(positions_, "decoder positions", rows);
    allocate(logits_, "decoder logits", logits);
    if (ranks > 1) allocate(gathered_, "decoder gather", ranks * logits);
    layers_.caches.resize(state.whole().cache_columns().size());
    if (exec.is_shape_only()) {
      find_workspace(rows);
      return;
    }
    ModelState<T> shapes = state.without_memory();
    const DecoderOf planned(Exec::shape_only(), shapes, most_texts);
    workspace_ = Workspace(planned.workspace_.peaks());
    host_tokens_ = HostArray<std::int32_t>("decoder tokens (host)", extent(rows));
    host_positions_ = HostArray<std::int32_t>("decoder positions (host)", extent(rows));
    host_logits_ = HostArray<T>("decoder logits (host)", extent(ranks * logits));
    whole_logits_.resize(extent(most_texts * vocabulary()));
  }

  DecoderMemory planned_memory() const {
    return {.cache = extent(cache_elements()) * sizeof(T),
            .total = bytes_ + workspace_.peaks().total()};
  }

  void start(index_t texts) override {
    TRIREME_REQUIRE(texts >= 1 && texts <= most_texts(),
                    "{} for a decoder that has room for {}", format_plural(texts, "text"),
                    most_texts());
    texts_ = texts;
    length_ = 0;
    const std::size_t rows = extent(context() * texts);
    const std::vector<index_t> all_columns = state_.whole().cache_columns();
    T* next = cache_.data();
    for (std::size_t i = 0; i < all_columns.size(); ++i) {
      nn::KvCache<T>& layer = layers_.caches[i];
      const std::size_t columns = extent(all_columns[i]);
      layer.k = View2<T>(next, rows, columns);
      layer.v = View2<T>(next + rows * columns, rows, columns);
      layer.length = 0;
      next += 2 * rows * columns;
    }
  }

  std::span<const double> feed(std::span<const data::TokenId> tokens) override {
    const auto count = static_cast<index_t>(tokens.size());
    TRIREME_REQUIRE(texts_ > 0 && count > 0 && count % texts_ == 0,
                    "{} do not give {} the same number of new ones",
                    format_plural(count, "token"), format_plural(texts_, "text"));
    TRIREME_REQUIRE(length_ + count / texts_ <= context(),
                    "{} are filled, {} more exceed the model's {}",
                    format_plural(length_, "position"),
                    format_plural(count / texts_, "token"), context());
    const std::size_t columns = extent(state_.whole().logit_columns());
    const index_t piece = std::max<index_t>(kPieceRows / texts_, 1) * texts_;
    for (index_t at = 0; at < count; at += piece) {
      const index_t rows = std::min(piece, count - at);
      const index_t logit_rows = at + rows == count ? texts_ : 0;
      decode(tokens.subspan(extent(at), extent(rows)),
             View2<T>(logits_.data(), extent(logit_rows), columns));
    }
    return fetch_logits();
  }

  index_t length() const override { return length_; }

 private:
  template <class Array>
  void allocate(Array& array, const char* label, index_t count) {
    bytes_ += extent(count) * sizeof(typename Array::value_type);
    if (!exec_.is_shape_only()) array = Array(label, extent(count));
  }

  index_t cache_elements() const {
    index_t columns = 0;  // of keys, and the same of values
    for (const index_t of_layer : state_.whole().cache_columns()) columns += of_layer;
    return 2 * columns * context() * most_texts();
  }

  // On shapes: as many rows as there ever are, and all of them with logits where that can
  // be, as what the arenas hand out grows with rows only.
  void find_workspace(index_t rows) {
    workspace_ = Workspace({1}, {1});
    const std::vector<index_t> columns = state_.whole().cache_columns();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const View2<T> cache(static_cast<T*>(nullptr), extent(rows), extent(columns[i]));
      layers_.caches[i] = {cache, cache, 0};
    }
    run_layers(1, rows,
               View2<T>(static_cast<T*>(nullptr), extent(most_texts()),
                        extent(state_.whole().logit_columns())));
  }

  // New tokens of `samples` texts, `sequence` of each: those in tokens_ and positions_.
  void run_layers(index_t sequence, index_t samples, const View2<T>& logits) {
    BatchSpec spec = state_.blueprint.batch;
    const std::size_t tokens = spec.field(state_.blueprint.decoded.tokens);
    spec.streams.at(extent(spec.fields[tokens].stream)).sequence = sequence;
    nn::MicroBatch batch(spec, samples);
    const index_t rows = sequence * samples;
    batch.set(tokens, tokens_.data(), rows);
    batch.set(spec.field(state_.blueprint.decoded.positions), positions_.data(), rows);
    const nn::Context context{.exec = exec_,
                              .groups = state_.groups,
                              .step = kernels::StepStateView(step_.data()),
                              .saved = &workspace_.saved(0, 0),
                              .scratch = workspace_.scratch(),
                              .held = workspace_.held(),
                              .batch = batch,
                              .mode = nn::Mode::evaluation,
                              .params = state_.use};
    state_.whole().decode(context, layers_, logits);
  }

  void decode(std::span<const data::TokenId> tokens, const View2<T>& logits) {
    const auto rows = static_cast<index_t>(tokens.size());
    for (index_t r = 0; r < rows; ++r) {
      const std::size_t i = extent(r);
      host_tokens_(i) = static_cast<std::int32_t>(tokens[i]);
      host_positions_(i) = static_cast<std::int32_t>(length_ + r / texts_);
    }
    copy_front(exec_, tokens_, host_tokens_, rows);
    copy_front(exec_, positions_, host_positions_, rows);
    run_layers(rows / texts_, texts_, logits);
    length_ += rows / texts_;
    // The host's copies are written again by the next call.
    exec_.fence("trireme::step::decode");
  }

  std::span<const double> fetch_logits() {
    comm::Group& tensor = *state_.groups.tensor;
    const index_t ranks = tensor.size();
    const index_t columns = state_.whole().logit_columns();
    const index_t part = texts_ * columns;
    if (ranks > 1) {
      tensor.all_gather(exec_, comm::ConstSpan(logits_.data(), part, dtype_of<T>),
                        {gathered_.data(), ranks * part, dtype_of<T>});
    }
    copy_front(exec_, host_logits_, ranks > 1 ? gathered_ : logits_, ranks * part);
    exec_.fence("trireme::step::fetch_logits");
    // Words of a rank: its first columns; those behind them are padding.
    const index_t share = largest_share(vocabulary(), ranks);
    for (index_t text = 0; text < texts_; ++text) {
      for (index_t id = 0; id < vocabulary(); ++id) {
        const index_t from = id / share * part + text * columns + id % share;
        whole_logits_[extent(text * vocabulary() + id)] =
            static_cast<double>(host_logits_(extent(from)));
      }
    }
    return {whole_logits_.data(), extent(texts_ * vocabulary())};
  }

  Exec exec_;
  ModelState<T>& state_;
  std::size_t bytes_ = 0;  // of device memory beside the workspace, allocated or planned
  index_t texts_ = 0;      // under way
  index_t length_ = 0;     // their positions in the cache
  DeviceArray<T> cache_;
  model::DecodeState<T> layers_;
  Workspace workspace_;
  DeviceArray<kernels::StepState> step_;          // unused values; layers ask for one
  DeviceArray<std::int32_t> tokens_, positions_;  // (kPieceRows)
  // This rank's logits, and those of the tensor group, rank by rank.
  DeviceArray<T> logits_, gathered_;
  HostArray<std::int32_t> host_tokens_, host_positions_;
  HostArray<T> host_logits_;
  std::vector<double> whole_logits_;  // (texts, V)
};

}  // namespace

template <class T>
std::unique_ptr<Decoder> make_decoder(const Exec& exec, ModelState<T>& state,
                                      index_t most_texts) {
  return std::make_unique<DecoderOf<T>>(exec, state, most_texts);
}

template <class T>
DecoderMemory plan_decoder(const ModelState<T>& state, index_t most_texts) {
  ModelState<T> shapes = state.without_memory();
  return DecoderOf<T>(Exec::shape_only(), shapes, most_texts).planned_memory();
}

#define TRIREME_INSTANTIATE(T)                                                   \
  template std::unique_ptr<Decoder> make_decoder<T>(const Exec&, ModelState<T>&, \
                                                    index_t);                    \
  template DecoderMemory plan_decoder<T>(const ModelState<T>&, index_t);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step
