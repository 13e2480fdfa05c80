// model/chunk.cpp — see chunk.hpp, which has the example that the names here follow:
// border i is before block i of the chunk, border i + 1 behind it.
//
// A chunk keeps a table of its tensors with their lifetimes (find_lifetimes), made once
// from the blueprint. Each pass fills a list of Views by that table, and hands a block
// those that it reads and those that it makes, by name, wherever in a border they stand:
// with `memory` and `text` in a border, a layer that reads `text` gets that alone. Values
// of the forward pass are listed by slot, because several micro-batches are in flight;
// gradients live within one call and have one list.
#include "model/chunk.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/initialize.hpp"
#include "kernels/reductions.hpp"
#include "nn/context.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::model {

namespace {

// `where` gives the text for a message, which is made only where it is needed.
template <class T, class Where>
void require_shapes(const nn::Context& context, const Border& border,
                    const Tensors<T>& given, const Where& where) {
  TRIREME_REQUIRE(given.size() == border.size(), "{}: {}, {} wanted", where(),
                  format_plural(given.size(), "tensor"), border.size());
  for (std::size_t k = 0; k < border.size(); ++k) {
    const auto rows = extent(rows_of(context, border[k]));
    const auto columns = extent(border[k].columns);
    TRIREME_REQUIRE(given[k].extent(0) == rows && given[k].extent(1) == columns,
                    "{}: '{}' of {} x {}, {} x {} wanted", where(), border[k].name,
                    given[k].extent(0), given[k].extent(1), rows, columns);
  }
}

// A tensor that passes all blocks of a chunk by stays where it is if the memory behind
// the chunk is that before it.
template <class T>
void pass_by(const nn::Context& context, View2<T> to, View2<T> from) {
  if (to.data() != nullptr && to.data() == from.data()) return;
  copy(context.exec, to, from);
}

}  // namespace

template <class T>
bool FiniteCheck<T>::is_bad(const View1<const T>& view) const {
  kernels::fill(exec_, View1<std::int64_t>(count_), std::int64_t{0});
  kernels::count_non_finite<T>(exec_, view, View0<std::int64_t>(count_.data()));
  const auto host = Kokkos::create_mirror_view(count_);
  Kokkos::deep_copy(exec_.space(), host, count_);
  exec_.fence("count of non-finite numbers");
  return host(0) > 0;
}

template <class T>
std::size_t Tables<T>::add(const nn::Builder<T>& builder, const SharedTable& table,
                           const std::vector<std::size_t>& users, Tie tie) {
  const std::size_t unit = builder.registry.begin_unit(table.unit);
  if (table.cut == TableCut::words) {
    const nn::VocabParallelEmbedding<T> words(builder, table.name, table.rows,
                                              table.columns, table.init_std, tie);
    by_name.insert({table.name, {words.weight(), words, unit}});
  } else {
    const ParamRef<T> weight =
        builder.add({.name = table.parameter(),
                     .shard = split({table.rows, table.columns}, 1, builder.tensor_size(),
                                    builder.tensor_rank()),
                     .init = Initializer::normal(table.init_std),
                     .decay = true,
                     .tie = tie});
    by_name.insert({table.name, {weight, std::nullopt, unit}});
  }
  const auto uses = [&](const BlockRange& chunk) {
    return std::ranges::any_of(users, [&](std::size_t u) { return chunk.contains(u); });
  };
  if (std::ranges::count_if(chunks, uses) > 1) builder.registry.set_used_by_chunks(unit);
  return unit;
}

template <class T>
Chunk<T>::Chunk(const nn::Builder<T>& builder, const Blueprint& blueprint,
                const BlockRange& range, BlockMaker<T> make, Tables<T>* tables)
    : blueprint_(blueprint), range_(range) {
  TRIREME_REQUIRE(range.begin < range.end && range.end <= blueprint.blocks.size(),
                  "a chunk of blocks {} to {} of {}: outside of the model, or with "
                  "nothing in it",
                  range.begin, range.end, blueprint.blocks.size());
  fields_ = blueprint.fields_of(range);
  Tables<T> of_chunk{{range}};
  Tables<T>& of_stage = tables == nullptr ? of_chunk : *tables;
  register_copies(builder, of_stage);
  std::size_t layers = 0;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const std::size_t first_unit = builder.registry.units().size();
    register_owned(builder, of_stage, i);
    nn::Builder<T> of_block = builder;
    const int stream = blueprint.blocks[i].stream;
    of_block.is_split = blueprint.batch.streams.at(extent(stream)).is_split;
    blocks_.push_back(make({of_block, blueprint, i, of_stage}));
    units_.push_back({first_unit, builder.registry.units().size()});
    layers_before_.push_back(layers);
    layers += blueprint.blocks[i].is_layer ? 1 : 0;
  }
  find_lifetimes();
  gradients_.resize(lifetimes_.size());
  set_slot_count(1);
}

// Tables whose owner is on another stage are registered before all blocks, by the first
// chunk that uses them, for all chunks of the stage.
template <class T>
void Chunk<T>::register_copies(const nn::Builder<T>& builder, Tables<T>& tables) {
  for (const SharedTable& table : blueprint_.tables) {
    const std::vector<std::size_t> users = blueprint_.users(table);
    const auto first = std::ranges::lower_bound(users, range_.begin);
    const auto end = std::ranges::lower_bound(users, range_.end);
    const bool is_known = tables.by_name.contains(table.name);
    if (first == end || is_known || range_.contains(users.front())) continue;
    const std::size_t unit = tables.add(builder, table, users, Tie::copy);
    copies_.push_back({unit, *first - range_.begin, *(end - 1) - range_.begin});
  }
}

template <class T>
void Chunk<T>::register_owned(const nn::Builder<T>& builder, Tables<T>& tables,
                              std::size_t block) const {
  const std::string& name = blueprint_.blocks[block].table;
  if (name.empty()) return;
  const SharedTable& table = blueprint_.table(name);
  const std::vector<std::size_t> users = blueprint_.users(table);
  if (users.front() != block) return;
  const bool is_tied = std::ranges::any_of(users, [&](std::size_t user) {
    return std::ranges::none_of(
        tables.chunks, [&](const BlockRange& chunk) { return chunk.contains(user); });
  });
  tables.add(builder, table, users, is_tied ? Tie::owner : Tie::none);
}

template <class T>
void Chunk<T>::find_lifetimes() {
  borders_.resize(size() + 1);
  for (const BorderTensor& tensor : border_in()) {
    borders_[0].push_back(lifetimes_.size());
    lifetimes_.push_back({tensor, 0, 0});
  }
  for (std::size_t i = 0; i < size(); ++i) {
    for (const BorderTensor& tensor : spec(i).border) {
      if (spec(i).makes_tensor(tensor.name)) {
        borders_[i + 1].push_back(lifetimes_.size());
        lifetimes_.push_back({tensor, i + 1, i + 1});
        continue;
      }
      const auto passing = std::ranges::find_if(borders_[i], [&](std::size_t id) {
        return lifetimes_[id].tensor.name == tensor.name;
      });
      lifetimes_[*passing].last = i + 1;  // Blueprint::check has seen that it is there
      borders_[i + 1].push_back(*passing);
    }
    const auto ids_of = [&](const std::vector<std::string>& names, const Ids& border) {
      Ids ids;
      for (const std::string& name : names) {
        ids.push_back(*std::ranges::find(
            border, name, [&](std::size_t id) { return lifetimes_[id].tensor.name; }));
      }
      return ids;
    };
    reads_.push_back(ids_of(spec(i).reads, borders_[i]));
    makes_.push_back(ids_of(spec(i).makes, borders_[i + 1]));
  }
}

template <class T>
void Chunk<T>::set_slot_count(int slots) {
  slots_.assign(extent(slots), Values(lifetimes_.size()));
  for (const auto& block : blocks_) block->set_slot_count(slots);
}

template <class T>
typename Chunk<T>::Values& Chunk<T>::values_of(int slot) {
  return const_cast<Values&>(std::as_const(*this).values_of(slot));
}
template <class T>
const typename Chunk<T>::Values& Chunk<T>::values_of(int slot) const {
  TRIREME_REQUIRE(slot >= 0 && slot < std::ssize(slots_),
                  "slot {} of {}: set_slot_count says how many there are", slot,
                  slots_.size());
  return slots_[extent(slot)];
}

// A source has no gradient of an input: a backward pass reads none of its weights.
template <class T>
PassUnits Chunk<T>::weight_units(Pass pass) const {
  const bool skips_source = pass != Pass::forward && spec(0).is_source();
  return {skips_source ? units_[0].end : units_[0].begin, units_.back().end, pass};
}

template <class T>
bool Chunk<T>::is_recomputed(const nn::Context& context, std::size_t block) const {
  return spec(block).is_layer &&
         static_cast<index_t>(layers_before_[block]) < context.recompute.layers;
}

template <class T>
Tensors<T> Chunk<T>::listed(const Values& values, const Ids& ids) const {
  Tensors<T> tensors;
  for (const std::size_t id : ids) tensors.push_back(values[id]);
  return tensors;
}

template <class T>
View2<T> Chunk<T>::take(const nn::Context& context, Arena& arena, Category category,
                        const BorderTensor& tensor) const {
  return arena.matrix<T>(category, rows_of(context, tensor), tensor.columns);
}

// Takes memory for the tensors that stay within the chunk: two areas, which neighbouring
// borders use in turns, and a matrix of its own for each tensor that passes a block by.
template <class T>
void Chunk<T>::take_scratch(const nn::Context& context, Category category,
                            Values& values) const {
  constexpr index_t kAlignment = 64;  // elements: a cache line and more
  const auto is_short = [&](const Lifetime& life) { return life.first == life.last; };
  const auto elements = [&](const Lifetime& life) {
    const index_t count = rows_of(context, life.tensor) * life.tensor.columns;
    return (count + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::array<index_t, 2> most = {0, 0};
  for (std::size_t border = 1; border < size(); ++border) {
    index_t sum = 0;
    for (const std::size_t id : borders_[border]) {
      if (is_short(lifetimes_[id])) sum += elements(lifetimes_[id]);
    }
    most[border % 2] = std::max(most[border % 2], sum);
  }
  std::array<T*, 2> areas = {};
  for (std::size_t i = 0; i < areas.size(); ++i) {
    if (most[i] > 0) areas[i] = context.scratch.vector<T>(category, most[i]).data();
  }
  for (std::size_t border = 1; border < size(); ++border) {
    T* next = areas[border % 2];
    for (const std::size_t id : borders_[border]) {
      const Lifetime& life = lifetimes_[id];
      if (!is_short(life)) {
        const bool is_new = life.first == border && !goes_out(life);
        if (is_new) values[id] = take(context, context.scratch, category, life.tensor);
        continue;
      }
      values[id] = View2<T>(next, extent(rows_of(context, life.tensor)),
                            extent(life.tensor.columns));
      if (next != nullptr) next += elements(life);
    }
  }
}

template <class T>
void Chunk<T>::require_ends(const nn::Context& context, const Tensors<T>& in,
                            const Tensors<T>& out) const {
  const auto where = [&](const char* end) {
    return [this, end] {
      return fmt::format("blocks {} to {}, {}", spec(0).name, spec(size() - 1).name, end);
    };
  };
  require_shapes(context, border_in(), in, where("input"));
  require_shapes(context, border_out(), out, where("output"));
}

template <class T>
void Chunk<T>::require_fields(const nn::Context& context) const {
  const BatchSpec& batch = blueprint_.batch;
  for (std::size_t s = 0; s < batch.streams.size(); ++s) {
    TRIREME_REQUIRE(context.batch.streams[s].sequence <= batch.streams[s].sequence,
                    "samples of {}, the model has {}",
                    format_plural(context.batch.streams[s].sequence, "position"),
                    batch.streams[s].sequence);
  }
  for (const std::size_t i : fields_) {
    const FieldSpec& field = batch.fields[i];
    const index_t wanted = field.per == Per::sample
                               ? context.samples()
                               : context.on_stream(field.stream).rows();
    TRIREME_REQUIRE(context.batch.elements(i) == wanted,
                    "field '{}' of a micro-batch of {} of {} has {}, {} wanted",
                    field.name, format_plural(context.sequence(), "position"),
                    format_plural(context.samples(), "sample"),
                    format_plural(context.batch.elements(i), "element"), wanted);
  }
}

// Tells whoever lends the parameters' memory that a block reads them, or adds to their
// gradients: its own units, and those that it borrows from. Where it is the last of the
// pass that uses a copied table, with which no block of the chunk does anything else,
// that is done with, too.
template <class T>
template <class Run>
void Chunk<T>::use(const nn::Context& context, std::size_t block, Pass pass,
                   const Run& run) const {
  ParamUse* const params = context.params;
  if (params == nullptr) {
    run();
    return;
  }
  const Units& units = units_[block];
  for (std::size_t u = units.begin; u < units.end; ++u) params->begin(u, pass);
  run();
  for (std::size_t u = units.end; u-- > units.begin;) params->end(u, pass);
  for (const Copy& copy : copies_) {
    const std::size_t last = goes_forward(pass) ? copy.last : copy.first;
    if (block == last) params->end(copy.unit, pass);
  }
}

template <class T>
void Chunk<T>::forward(const nn::Context& context, int slot, const Tensors<T>& in,
                       const Tensors<T>& out) {
  require_fields(context);
  require_ends(context, in, out);
  Values& values = values_of(slot);
  for (std::size_t k = 0; k < in.size(); ++k) values[borders_[0][k]] = in[k];
  for (std::size_t i = 0; i < size(); ++i) {
    for (std::size_t k = 0; k < borders_[i + 1].size(); ++k) {
      const std::size_t id = borders_[i + 1][k];
      const Lifetime& life = lifetimes_[id];
      if (life.first != i + 1) continue;
      values[id] = i + 1 == size()
                       ? out[k]
                       : take(context, *context.saved, Category::hidden, life.tensor);
    }
    const bool with_gradients = spec(i).gradients_in_forward && context.takes_gradients();
    use(context, i, with_gradients ? Pass::forward_with_gradients : Pass::forward,
        [&] { run_block(context, slot, values, i); });
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    const std::size_t id = borders_[size()][k];
    if (lifetimes_[id].first < size()) pass_by<T>(context, out[k], values[id]);
  }
}

// What a layer saves that is to be made again goes to memory that is given back at once.
template <class T>
void Chunk<T>::run_block(const nn::Context& context, int slot, const Values& values,
                         std::size_t block) {
  if (spec(block).objective >= 0 && context.objective_counts != nullptr) {
    context.objective_counts->wait(context.exec);
  }
  const Tensors<T> in = listed(values, reads_[block]);
  const Tensors<T> out = listed(values, makes_[block]);
  const nn::Context here = context.on_stream(spec(block).stream);
  if (!is_recomputed(context, block)) {
    blocks_[block]->forward(here, slot, in, out);
    return;
  }
  const ArenaScope thrown_away(context.held);
  blocks_[block]->forward(here.saving_in(context.held), slot, in, out);
}

// Makes again what a layer saves, in the memory that is held until its weight gradients
// are taken. Its output is there already, so that this one is thrown away.
template <class T>
void Chunk<T>::recompute(const nn::Context& context, int slot, std::size_t block) {
  const ArenaScope scope(context.scratch);
  Tensors<T> out;
  for (const std::size_t id : makes_[block]) {
    out.push_back(
        take(context, context.scratch, Category::hidden, lifetimes_[id].tensor));
  }
  const nn::Context here = context.on_stream(spec(block).stream);
  blocks_[block]->forward(here.saving_in(context.held), slot,
                          listed(values_of(slot), reads_[block]), out);
}

// What the block before this one wants made of the gradient that this one writes, where
// that is all of the gradient of its output: this one reads the output first, before
// whatever else, and it ends here.
template <class T>
void Chunk<T>::pass_branch_gradient(const nn::Context& context, int slot,
                                    std::size_t block, WeightPass weight_pass,
                                    Arena& memory) {
  if (block == 0 || !blocks_[block]->makes_branch_gradients()) return;
  const Ids &made = makes_[block - 1], &read = reads_[block];
  const bool is_handed_on = made.size() == 1 && !read.empty() && made[0] == read[0] &&
                            lifetimes_[made[0]].last == lifetimes_[made[0]].first;
  if (!is_handed_on) return;
  blocks_[block]->make_branch_gradient(
      slot, blocks_[block - 1]->leave_branch_gradient(
                context.on_stream(spec(block - 1).stream), slot, weight_pass, memory));
}

template <class T>
void Chunk<T>::backward(const nn::Context& context, int slot, const Tensors<T>& d_out,
                        const Tensors<T>& d_in, WeightPass weight_pass) {
  require_ends(context, d_in, d_out);
  const bool now = weight_pass == WeightPass::now;
  for (std::size_t k = 0; k < d_in.size(); ++k) gradients_[borders_[0][k]] = d_in[k];
  for (std::size_t k = 0; k < d_out.size(); ++k) {
    const std::size_t id = borders_[size()][k];
    if (comes_in(lifetimes_[id])) {
      pass_by<T>(context, gradients_[id], d_out[k]);
    } else {
      gradients_[id] = d_out[k];
    }
  }
  const ArenaScope scope(context.scratch);
  take_scratch(context, Category::gradient, gradients_);
  // Weight gradients are taken together with the input gradients of the same part, so
  // that what one needs from the other is held for one block at a time.
  // What a block makes for the one before it lives until that one is done with: in the
  // two arenas in turns, below what the block itself takes.
  const std::array<Arena*, 2> arenas = {&context.held, &context.scratch};
  const std::array<std::size_t, 2> marks = {context.held.used(), context.scratch.used()};
  for (std::size_t i = size(); i-- > 0;) {
    const std::size_t mine = now ? i % 2 : 0, next = now ? 1 - mine : 0;
    pass_branch_gradient(context, slot, i, weight_pass, *arenas[next]);
    const std::size_t kept = arenas[next]->used();
    const auto run = [&] {
      if (is_recomputed(context, i)) recompute(context, slot, i);
      blocks_[i]->backward_input(context.on_stream(spec(i).stream), slot,
                                 listed(gradients_, makes_[i]),
                                 listed(gradients_, reads_[i]), weight_pass);
    };
    if (!spec(i).is_source()) {
      use(context, i, now ? Pass::backward : Pass::backward_input, run);
    } else if (now) {
      use(context, i, Pass::backward_weight, run);
    } else {
      run();
    }
    if (!now) continue;
    arenas[mine]->release_to(marks[mine]);
    arenas[next]->release_to(kept);
  }
}

template <class T>
void Chunk<T>::backward_weight(const nn::Context& context, int slot) {
  for (std::size_t i = size(); i-- > 0;) {
    use(context, i, Pass::backward_weight,
        [&] { blocks_[i]->backward_weight(context.on_stream(spec(i).stream), slot); });
  }
  context.held.reset();
}

template <class T>
void Chunk<T>::require_generation(const nn::Context& context) const {
  TRIREME_REQUIRE(range_.size() == blueprint_.blocks.size(),
                  "text is generated by whole models, not by chunks of a pipeline");
  TRIREME_REQUIRE(!context.splits_sequence,
                  "generation is not split along the sequence: its calls are short");
}

// Blocks on other streams than the text's have nothing to do with its words.
template <class T>
void Chunk<T>::decode(const nn::Context& context, DecodeState<T>& state,
                      View2<T> logits) {
  require_generation(context);
  const ArenaScope scope(context.scratch);
  take_scratch(context, Category::hidden, gradients_);
  Tensors<T> last;
  last.push_back(logits);
  const int text = blueprint_.text_stream();
  std::size_t cache = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const bool is_last = i + 1 == size();
    if (is_last && logits.extent(0) == 0) return;
    if (state.launch && i == state.launch->begin &&
        context.on_stream(text).sequence() == 1) {
      const auto& [layers, begin, end] = *state.launch;
      layers.run(context.exec, state.caches.at(cache).texts,
                 View2<const T>(listed(gradients_, reads_[begin])[0]),
                 listed(gradients_, makes_[end - 1])[0]);
      cache += end - begin;
      i = end - 1;
      continue;
    }
    nn::KvCache<T>* const of_block = has_cache(i) ? &state.caches.at(cache++) : nullptr;
    if (spec(i).stream != text) continue;
    use(context, i, Pass::forward, [&] {
      blocks_[i]->decode(context.on_stream(text), of_block, listed(gradients_, reads_[i]),
                         is_last ? last : listed(gradients_, makes_[i]));
    });
  }
}

// All blocks with a cache, as neighbours, are one launch, or none is.
template <class T>
void Chunk<T>::join_layers(const Exec& exec, index_t capacity,
                           DecodeState<T>& state) const {
  std::vector<kernels::DecodeLayer<T>> layers;
  std::size_t cache = 0, begin = 0, end = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (!has_cache(i)) continue;
    const auto layer = blocks_[i]->decode_layer(state.caches.at(cache++));
    if (!layer || (!layers.empty() && i != end)) return;
    if (layers.empty()) begin = i;
    layers.push_back(*layer);
    end = i + 1;
  }
  if (!kernels::DecodeLayers<T>::has(exec, layers, capacity)) return;
  View2<const T> next;
  for (std::size_t i = end; i < size() && next.extent(0) == 0; ++i) {
    next = blocks_[i]->logit_weights();
  }
  state.launch = {kernels::DecodeLayers<T>(exec, layers, capacity, next), begin, end};
}

template <class T>
bool Chunk<T>::reads_source(std::size_t i) const {
  return std::ranges::any_of(reads_[i], [&](std::size_t id) {
    return lifetimes_[id].tensor.stream == blueprint_.source_stream();
  });
}

// Blocks on the source's stream keep nothing: no other pass follows.
template <class T>
void Chunk<T>::begin_text(const nn::Context& context, DecodeState<T>& state) {
  require_generation(context);
  const ArenaScope scope(context.scratch);
  take_scratch(context, Category::hidden, gradients_);
  std::size_t cache = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    nn::KvCache<T>* const of_block = has_cache(i) ? &state.caches.at(cache++) : nullptr;
    const nn::Context here = context.on_stream(spec(i).stream);
    const Tensors<T> in = listed(gradients_, reads_[i]);
    if (here.stream == blueprint_.source_stream()) {
      use(context, i, Pass::forward, [&] {
        const ArenaScope thrown_away(context.held);
        blocks_[i]->forward(here.saving_in(context.held), 0, in,
                            listed(gradients_, makes_[i]));
      });
    } else if (here.stream == blueprint_.text_stream() && reads_source(i)) {
      TRIREME_REQUIRE(of_block != nullptr,
                      "block '{}' reads a text's source, and keeps nothing of it",
                      spec(i).name);
      use(context, i, Pass::forward,
          [&] { blocks_[i]->begin_text(here, *of_block, in); });
    }
  }
}

template <class T>
View2<T> Chunk<T>::logits_again(const nn::Context& context, int slot,
                                const View2<T>& memory) const {
  View2<T> logits;
  const std::size_t last = size() - 1;
  use(context, last, Pass::forward, [&] {
    logits =
        blocks_[last]->logits_again(context.on_stream(spec(last).stream), slot, memory);
  });
  return logits;
}

template <class T>
std::vector<index_t> Chunk<T>::cache_columns() const {
  std::vector<index_t> columns;
  for (std::size_t i = 0; i < size(); ++i) {
    if (has_cache(i)) columns.push_back(blocks_[i]->cache_columns());
  }
  return columns;
}

template <class T>
std::vector<index_t> Chunk<T>::source_columns() const {
  std::vector<index_t> columns;
  for (std::size_t i = 0; i < size(); ++i) {
    if (has_cache(i)) columns.push_back(blocks_[i]->source_columns());
  }
  return columns;
}

template <class T>
bool Chunk<T>::can_draw() const {
  for (std::size_t i = 0; i < size(); ++i) {
    const bool decodes = spec(i).stream == blueprint_.text_stream();
    if (decodes && !blocks_[i]->can_draw()) return false;
  }
  return true;
}

// Only the ends of a layer that is made again were kept, so that no part of it can be
// named. What came in is not looked at: the chunk that made it names it better.
template <class T>
std::string Chunk<T>::locate_non_finite(const nn::Context& context, int slot) const {
  const Values& values = values_of(slot);
  const FiniteCheck<T> check(context.exec);
  for (std::size_t i = 0; i < size(); ++i) {
    const bool again = is_recomputed(context, i);
    if (!again) {
      const std::string part = blocks_[i]->locate_non_finite(context, check, slot);
      if (!part.empty()) return part;
    }
    const bool is_bad = std::ranges::any_of(borders_[i + 1], [&](std::size_t id) {
      return lifetimes_[id].first == i + 1 && check.is_bad(values[id]);
    });
    if (!is_bad) continue;
    const bool has_parts = !spec(i).last_part.empty() && !again;
    return has_parts ? spec(i).name + "/" + spec(i).last_part : spec(i).name;
  }
  return {};
}

#define TRIREME_INSTANTIATE(T)   \
  template class FiniteCheck<T>; \
  template struct Tables<T>;     \
  template class Chunk<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
