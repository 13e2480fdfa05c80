// Dropout of every block of GPT, BERT and T5, in every layout, is what docs/math says, a
// bit at a time: of its sample, its layer's number in the model, its site and its place.
//
// Each block is a chunk by itself, with weights and an input by which its masks can be
// read off its output. With p = 1/2 what is kept is doubled.
//   embedding, final norm  what is dropped is 1 everywhere: 2 mask.
//   T5's head              the same, and word j of the table is column j of what it
//   reads. a branch of a layer    norms leave their input as it is, other branches are 0,
//   and
//                          this one is 1: y - x = 2 mask. Or it drops probabilities, and
//                          all keys are alike: value k is 2^(k mod 12) in one of two
//                          columns, and n (y - x) / 2 has a bit for each of n keys.
// Two more columns, which no branch writes, say what a norm behind the sum has made of
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "ckpt/region.hpp"
#include "comm/rank_grid.hpp"
#include "layouts/layout_matrix.hpp"
#include "model/chunk.hpp"
#include "support/arrays.hpp"
#include "support/filled_batch.hpp"

namespace trireme::test {
namespace {

using random::Site;

constexpr index_t kBlockHeads = 24, kBlockHeadDim = 2, kKeyBits = 12;
constexpr index_t kBranchColumns = kBlockHeads * kBlockHeadDim;
constexpr index_t kBlockHidden = kBranchColumns + 2;
constexpr double kLastColumn = 8.0;
constexpr index_t kBlockSamples = 12, kFirstSample = 700;
constexpr std::uint64_t kBlockSeed = 78;

enum class Dropped { rows, probabilities };

model::Architecture small_model(Kind kind, Dropped dropped) {
  model::Architecture a = matrix_architecture(
      {.layers = 2, .heads = kBlockHeads, .samples = kBlockSamples, .kind = kind});
  if (a.kind == model::ModelKind::t5) a.layers = a.decoder_layers = 2;
  a.hidden = kBlockHidden;
  a.head_size = kBlockHeadDim;
  a.dropout = dropped == Dropped::rows ? 0.5 : 0.0;
  a.attention_dropout = dropped == Dropped::probabilities ? 0.5 : 0.0;
  return a;
}

// By docs/math/dropout.md, without any of the kernels.
struct DocumentedMask {
  std::uint16_t layer = 0;
  Site site = Site::embedding;
  index_t length = 1;  // of a row
  bool is_of_keys = false;

  // 1 where an element of the row is kept.
  std::vector<std::uint8_t> row(index_t sample, index_t number) const {
    const random::Generator generator{.seed = kBlockSeed,
                                      .owner = static_cast<std::uint64_t>(sample),
                                      .layer = layer,
                                      .site = site};
    const index_t calls = is_of_keys ? 4 * ((length + 31) / 32) : (length + 7) / 8;
    std::vector<std::uint32_t> drawn;  // eight words of each call
    for (index_t n = 0; n < calls; ++n) {
      const random::Words words =
          generator.block<7>(static_cast<std::uint64_t>(number * calls + n));
      for (const std::uint32_t word : words.word) {
        drawn.insert(drawn.end(), {word & 0xffffu, word >> 16});
      }
    }
    std::vector<std::uint8_t> bits;
    for (index_t at = 0; at < length; ++at) {
      const index_t call = is_of_keys ? 4 * (at / 32) + at % 8 / 2 : at / 8;
      const index_t word = is_of_keys ? 2 * (at % 32 / 8) + at % 2 : at % 8;
      bits.push_back(drawn[extent(8 * call + word)] >= 32768 ? 1 : 0);
    }
    return bits;
  }
};

// The same once for all layouts.
const std::vector<std::uint8_t>& kept(const DocumentedMask& mask, index_t sample,
                                      index_t row) {
  using Key = std::array<index_t, 5>;
  static std::map<Key, std::vector<std::uint8_t>> known;
  std::vector<std::uint8_t>& bits =
      known[Key{mask.layer, static_cast<index_t>(mask.site), mask.length, sample, row}];
  if (bits.empty()) bits = mask.row(sample, row);
  return bits;
}

// What numbers docs/math/random_numbers.md gives to blocks.
std::uint16_t layer_of(const model::Architecture& a, const std::string& block) {
  const bool is_decoders = block.starts_with("decoder/");
  index_t number = is_decoders ? a.layers : 0;
  if (const auto at = block.find("layers/"); at != std::string::npos) {
    number += std::stoi(block.substr(at + 7));
  }
  if (block == "encoder/final_norm") number = a.layers + a.decoder_layers;
  if (block == "head") number = a.layers + a.decoder_layers + 1;
  return static_cast<std::uint16_t>(number);
}

struct Branch {
  const char* name;
  Site output;
  Site probabilities = Site::embedding;  // none
  const char* values = nullptr;          // the matrix that makes them
  index_t heads_before = 0;              // in its rows
};
constexpr Branch kAttention{"attention", Site::attention_output,
                            Site::attention_probabilities, "qkv", 2 * kBlockHeads};
constexpr Branch kMlp{"mlp", Site::mlp_output};
constexpr Branch kCross{"cross", Site::cross_attention_output,
                        Site::cross_attention_probabilities, "kv", kBlockHeads};

// Rows that a rank has of a micro-batch, from a position on.
struct OutputRows {
  std::vector<double> values;
  index_t columns, samples, begin;

  // Calls visit(sample of the micro-batch, position, row).
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (index_t row = 0; row < std::ssize(values) / columns; ++row) {
      visit(row % samples, begin + row / samples, &values[extent(row * columns)]);
    }
  }
};

// A block on some groups, and passes of micro-batches through it.
class BlockPass {
 public:
  BlockPass(const comm::ProcessGroups& groups, const Layout& layout,
            const model::Architecture& architecture, std::size_t block)
      : groups_(groups),
        splits_sequence_(layout.sequence != 0),
        blueprint_(model::make_blueprint(architecture)),
        block_(block),
        chunk_(nn::Builder<float>{registry_, params_, groups_}, blueprint_,
               {block, block + 1}),
        filled_(blueprint_.batch, layout.micro()),
        batch_(blueprint_.batch, layout.micro()) {
    params_.allocate(registry_, ParamBuffer<float>::Use::training);
    load_fields();
    for (const auto& [border, memory] :
         {std::pair{&chunk_.border_in(), &in_}, {&chunk_.border_out(), &out_}}) {
      *memory =
          Array<float>(extent(model::elements_of(context(Exec::shape_only()), *border)));
    }
    run(Exec::shape_only());
    for (Arena* arena : {&saved_, &scratch_, &held_}) {
      memory_.emplace_back("arena", arena->peak() + 1);
      *arena = Arena(memory_.back().data(), memory_.back().extent(0));
    }
    fill_input();
  }

  const model::BlockSpec& spec() const { return blueprint_.blocks[block_]; }
  const model::Architecture& architecture() const { return blueprint_.architecture; }
  index_t positions(int stream) const {
    return blueprint_.batch.streams.at(extent(stream)).sequence;
  }

  // Weights with which a block that is no layer drops ones.
  void drop_ones() {
    const bool is_head = spec().objective >= 0;
    set_all([&](const std::string& name) {
      return name.ends_with("final_norm/weight") || name.ends_with("norm/bias") ? 1.0
                                                                                : 0.0;
    });
    const std::string& table = spec().table;
    if (table.empty()) return;
    set(table + "/weight", [&](index_t row, index_t column) {
      return !is_head || row == column ? 1.0 : 0.0;
    });
  }
  // Weights of a layer with one branch.
  void open(const Branch& branch, Dropped dropped) {
    const bool is_layer_norm = architecture().norm == model::Norm::layernorm;
    const double mean = (1.0 + kLastColumn) / kBlockHidden;
    const double square = (1.0 + kLastColumn * kLastColumn) / kBlockHidden;
    const double variance = square - (is_layer_norm ? mean * mean : 0.0);
    const double deviation = std::sqrt(variance + architecture().norm_epsilon);
    set_all([&](const std::string& name) {
      if (name.ends_with("norm/weight")) return deviation;
      return name.ends_with("norm/bias") ? mean : 0.0;
    });
    const std::string at = spec().name + "/" + branch.name;
    if (branch.values == nullptr) {
      open_mlp(at);
      return;
    }
    const bool drops_keys = dropped == Dropped::probabilities;
    set(at + "/" + branch.values + "/weight", [&](index_t row, index_t column) {
      const index_t first = branch.heads_before * kBlockHeadDim;
      if (row < first || column >= kSequence) return 0.0;
      if (!drops_keys) return 1.0;
      const bool is_its = column / kKeyBits == row % kBlockHeadDim;
      return is_its ? std::ldexp(1.0, static_cast<int>(column % kKeyBits)) : 0.0;
    });
    set(at + "/projection/weight", [&](index_t row, index_t column) {
      return row < kBranchColumns && column == (drops_keys ? row : 0) ? 1.0 : 0.0;
    });
  }

  // Of the samples from `first` of the step on.
  void forward(index_t first) {
    kernels::StepState state;
    state.seed = kBlockSeed;
    state.sample_base = static_cast<std::uint64_t>(kFirstSample + first);
    Kokkos::deep_copy(step_, state);
    saved_.reset();
    run(exec_);
    exec_.fence("test");
  }
  // Local rows of what the block makes, and rows of T5's logits.
  OutputRows output() {
    const nn::Context here = context(exec_).on_stream(spec().stream);
    const model::Border& border = chunk_.border_out();
    const auto at =
        std::ranges::find(border, spec().makes.at(0), &model::BorderTensor::name);
    const model::Tensors<float> tensors =
        model::tensors_of(here, border, out_.vector().data());
    return {rows_of(tensors[extent(at - border.begin())]), kBlockHidden, here.samples(),
            here.sequence_begin()};
  }
  OutputRows logits() {
    const nn::Context here = context(exec_).on_stream(spec().stream);
    const index_t columns = chunk_.logit_columns();
    const Array<float> memory(extent(here.rows() * columns));
    const View2<float> logits =
        chunk_.logits_again(here, 0, memory.matrix(here.rows(), columns));
    return {rows_of(logits), static_cast<index_t>(logits.extent(1)), here.samples(), 0};
  }

 private:
  nn::Context context(const Exec& exec) {
    return {.exec = exec,
            .groups = groups_,
            .step = kernels::StepStateView(step_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = batch_,
            .totals = totals_.vector(),
            .gradients = nn::Gradients::none,
            .splits_sequence = splits_sequence_};
  }
  void run(const Exec& exec) {
    const nn::Context here = context(exec);
    chunk_.forward(here, 0,
                   model::tensors_of(here, chunk_.border_in(), in_.vector().data()),
                   model::tensors_of(here, chunk_.border_out(), out_.vector().data()));
  }
  // All positions are real, and of one document.
  void load_fields() {
    const HostBatch host =
        filled_.fill(0, [&](const FieldSpec& field, index_t, index_t position) {
          const index_t all = positions(field.stream);
          switch (field.holds) {
            case Holds::places:
            case Holds::rows:
              return position;
            case Holds::lengths:
            case Holds::ends:
              return all;
            case Holds::weights:
              return index_t{1};
            default:
              return index_t{0};
          }
        });
    for (std::size_t f = 0; f < blueprint_.batch.fields.size(); ++f) {
      const index_t elements = batch_.elements(f);
      fields_.emplace_back("field", extent(elements));
      Kokkos::deep_copy(
          fields_.back(),
          Kokkos::View<const std::int32_t*, Kokkos::HostSpace,
                       Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
              static_cast<const std::int32_t*>(host.fields.at(f)), extent(elements)));
      batch_.set(f, fields_.back().data(), elements);
    }
  }
  // Into a layer: a 1 in the column of a row's position, and the last column. Into others
  // ones.
  void fill_input() {
    const nn::Context here = context(exec_);
    std::vector<double> values;
    for (const model::BorderTensor& tensor : chunk_.border_in()) {
      const nn::Context of = here.on_stream(tensor.stream);
      for (index_t row = 0; row < of.local_rows(); ++row) {
        const index_t position = of.sequence_begin() + row / of.samples();
        for (index_t j = 0; j < tensor.columns; ++j) {
          const bool is_last = j + 1 == tensor.columns;
          values.push_back(!spec().is_layer || j == position ? 1.0
                           : is_last                         ? kLastColumn
                                                             : 0.0);
        }
      }
    }
    in_.set(values);
  }
  // The branch is gelu(16) / 16, or gelu(16) 1 / 16.
  void open_mlp(const std::string& at) {
    const index_t columns = architecture().ffn_hidden;
    set(at + "/fc1/weight", [&](index_t row, index_t column) {
      if (column >= kSequence) return 0.0;
      return row < columns ? 16.0 : 1.0;
    });
    set(at + "/fc2/weight", [&](index_t row, index_t column) {
      return row < kBranchColumns && column == 0 ? 1.0 / 16.0 : 0.0;
    });
  }
  template <class Value>
  void set_all(const Value& value) {
    for (const ParamSpec& param : registry_.specs()) {
      set(param.name, [&](index_t, index_t) { return value(param.name); });
    }
  }
  // This rank's part of what has value(row, column).
  template <class Value>
  void set(const std::string& name, const Value& value) {
    const std::size_t p = registry_.find(name);
    const auto weight = params_.slice(Slab::weight, p);
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, weight);
    for (const ckpt::Region& region : ckpt::regions_of(registry_.spec(p).shard)) {
      for (index_t i = 0; i < region.global.rows; ++i) {
        for (index_t j = 0; j < region.global.columns; ++j) {
          host(region.local_offset + i * region.local_stride + j) =
              static_cast<float>(value(region.global.row + i, region.global.column + j));
        }
      }
    }
    Kokkos::deep_copy(weight, host);
    params_.refresh_compute(exec_);
  }
  comm::ProcessGroups groups_;
  bool splits_sequence_;
  model::Blueprint blueprint_;
  std::size_t block_;
  Exec exec_;
  ParamRegistry registry_;
  ParamBuffer<float> params_;
  model::Chunk<float> chunk_;
  FilledBatch filled_;
  nn::MicroBatch batch_;
  std::vector<DeviceArray<std::int32_t>> fields_;
  Kokkos::View<kernels::StepState, DeviceMemory> step_{"step state"};
  Array<double> totals_{std::size_t{2 * kernels::kMostObjectives}};
  Array<float> in_{std::size_t{0}}, out_{std::size_t{0}};
  std::vector<DeviceArray<std::byte>> memory_;
  Arena saved_, scratch_, held_;
};

// Bits that ranks have read of a mask.
struct Bits {
  index_t read = 0, wrong = 0;

  void add(bool is_right) {
    ++read;
    wrong += is_right ? 0 : 1;
  }
};

bool is_near(double value, double expected) {
  return std::abs(value - expected) < 0.1;
}

// One block in one layout, on a rank of it.
class BlockCheck {
 public:
  BlockCheck(const comm::RankGrid& grid, const Layout& layout,
             const model::Architecture& architecture, std::size_t block)
      : grid_(grid),
        layout_(layout),
        pass_(grid.groups(), layout, architecture, block),
        layer_(layer_of(architecture, pass_.spec().name)) {}

  void expect_rows() {
    const auto is_kept = [](double value, bool keeps) {
      return is_near(value, keeps ? 2.0 : 0.0);
    };
    if (pass_.spec().is_layer) {
      for (const Branch& branch : branches()) {
        pass_.open(branch, Dropped::rows);
        expect(branch.name, row_copies() * rows() * kBranchColumns,
               [&](index_t sample, index_t position, const double* y, Bits& bits) {
                 const auto& keeps =
                     kept(mask(branch.output, kBlockHidden), sample, position);
                 for (index_t j = 0; j < kBranchColumns; ++j) {
                   bits.add(is_kept(added(y, position, j), keeps[extent(j)] != 0));
                 }
               });
      }
      return;
    }
    pass_.drop_ones();
    const DocumentedMask of_rows = mask(Site::embedding, kBlockHidden);
    if (pass_.spec().objective >= 0) {
      expect_logits(of_rows);
      return;
    }
    expect("rows", row_copies() * rows() * kBlockHidden,
           [&](index_t sample, index_t position, const double* y, Bits& bits) {
             const auto& keeps = kept(of_rows, sample, position);
             for (index_t j = 0; j < kBlockHidden; ++j) {
               bits.add(is_kept(y[j], keeps[extent(j)] != 0));
             }
           });
  }

  // Of each query and head those of the keys that it sees.
  void expect_probabilities() {
    const model::BlockSpec& spec = pass_.spec();
    for (std::size_t i = 0; i < spec.attention.size(); ++i) {
      const Branch& branch = i == 0 ? kAttention : kCross;
      const index_t queries = positions(spec.attention[i].queries);
      const index_t keys = positions(spec.attention[i].keys);
      const bool is_causal = spec.attention[i].mask == kernels::MaskKind::causal;
      const index_t seen = is_causal ? queries * (queries + 1) / 2 : queries * keys;
      pass_.open(branch, Dropped::probabilities);
      DocumentedMask of_keys = mask(branch.probabilities, keys);
      of_keys.is_of_keys = true;
      expect(branch.name, row_copies() * kBlockSamples * kBlockHeads * seen,
             [&](index_t sample, index_t query, const double* y, Bits& bits) {
               const index_t visible = is_causal ? query + 1 : keys;
               for (index_t j = 0; j < kBranchColumns; ++j) {
                 const double value =
                     added(y, query, j) * static_cast<double>(visible) / 2.0;
                 const auto& keeps =
                     kept(of_keys, sample, j / kBlockHeadDim * queries + query);
                 const index_t first = j % kBlockHeadDim * kKeyBits;
                 for (index_t k = first; k < std::min(first + kKeyBits, visible); ++k) {
                   const bool is_set = (std::lround(value) >> (k - first) & 1) != 0;
                   bits.add(is_near(value, std::round(value)) &&
                            is_set == (keeps[extent(k)] != 0));
                 }
               }
             });
    }
  }

 private:
  std::vector<Branch> branches() const {
    if (pass_.spec().attention.size() == 1) return {kAttention, kMlp};
    return {kAttention, kCross, kMlp};
  }
  DocumentedMask mask(Site site, index_t length) const {
    return {.layer = layer_, .site = site, .length = length};
  }
  index_t positions(int stream) const { return pass_.positions(stream); }
  index_t rows() const { return kBlockSamples * positions(pass_.spec().stream); }
  index_t row_copies() const { return layout_.sequence != 0 ? 1 : layout_.tensor; }
  // What a branch has added to the input of a layer in a column.
  static double added(const double* y, index_t position, index_t j) {
    const double zero = y[kBranchColumns];
    const double scale = kLastColumn / (y[kBranchColumns + 1] - zero);
    return (y[j] - zero) * scale - (j == position ? 1.0 : 0.0);
  }
  // Words of this rank are columns of what the head reads.
  void expect_logits(const DocumentedMask& of_rows) {
    const index_t words = pass_.architecture().vocab, ranks = layout_.tensor;
    const index_t begin = grid_.coordinates().tensor * ((words + ranks - 1) / ranks);
    expect("logits", rows() * kBlockHidden,
           [&](index_t sample, index_t position, const double* y, Bits& bits) {
             const auto& keeps = kept(of_rows, sample, position);
             for (index_t j = begin; j < std::min(begin + columns_, kBlockHidden); ++j) {
               bits.add((y[j - begin] > 0.1) == (keeps[extent(j)] != 0));
             }
           });
  }
  // Passes of all micro-batches; all ranks have so many bits, and what check() finds.
  template <class Check>
  void expect(const char* what, index_t all, const Check& check) {
    const index_t share = kBlockSamples / layout_.data;
    const index_t begin = grid_.coordinates().data * share;
    Bits bits;
    for (index_t first = begin; first < begin + share; first += layout_.micro()) {
      pass_.forward(first);
      const OutputRows rows =
          pass_.spec().objective >= 0 ? pass_.logits() : pass_.output();
      columns_ = rows.columns;
      rows.for_each([&](index_t sample, index_t position, const double* row) {
        check(kFirstSample + first + sample, position, row, bits);
      });
    }
    EXPECT_EQ(bits.wrong, 0) << pass_.spec().name << ", " << what;
    EXPECT_EQ(grid_.groups().world->all_reduce(static_cast<double>(bits.read)),
              static_cast<double>(all))
        << pass_.spec().name << ", " << what;
  }

  const comm::RankGrid& grid_;
  Layout layout_;
  BlockPass pass_;
  std::uint16_t layer_;
  index_t columns_ = 0;  // of the rows that are looked at
};

void expect_masks(const comm::RankGrid& grid, const Layout& layout) {
  SCOPED_TRACE(layout.name());
  for (const Dropped dropped : {Dropped::rows, Dropped::probabilities}) {
    const model::Architecture architecture = small_model(layout.size.kind, dropped);
    const model::Blueprint blueprint = model::make_blueprint(architecture);
    for (std::size_t block = 0; block < blueprint.blocks.size(); ++block) {
      const model::BlockSpec& spec = blueprint.blocks[block];
      const bool drops_outside =
          architecture.kind == model::ModelKind::t5 || spec.kind == "embedding";
      if (!spec.is_layer && !drops_outside) continue;
      if (dropped == Dropped::probabilities && !spec.is_layer) continue;
      BlockCheck check(grid, layout, architecture, block);
      dropped == Dropped::rows ? check.expect_rows() : check.expect_probabilities();
    }
  }
}

// Rows that differ in what masks could know of: who has which heads, positions and
// samples, whole or in micro-batches.
std::vector<Layout> mask_layouts(Kind kind) {
  std::vector<Layout> layouts = all_layouts(8);
  for (Layout& layout : layouts) {
    layout.size.samples = kBlockSamples;
    layout.size.kind = kind;
  }
  const index_t shortest = kind == Kind::t5 || kind == Kind::t5_own_head
                               ? small_model(kind, Dropped::rows).decoder_sequence
                               : kSequence;
  std::erase_if(layouts, [&](const Layout& layout) {
    return layout.zero > 0 || layout.small_buckets != 0 || layout.data_first != 0 ||
           layout.data > 2 || layout.microbatches != (layout.data == 1 ? 1 : 3) ||
           !layout.is_valid(8) || (layout.sequence != 0 && shortest % layout.tensor != 0);
  });
  return layouts;
}

class BlockMasksOfKind : public ::testing::TestWithParam<Kind> {};

TEST_P(BlockMasksOfKind, AreAsDocumented) {
  const auto world = layout_world();
  const std::vector<Layout> layouts = mask_layouts(GetParam());
  for_each_layout(*world, one_of_each_grid(layouts),
                  [&](const auto& ranks, const Layout& first) {
                    const comm::RankGrid grid(ranks, first.grid());
                    for (const Layout& layout : layouts) {
                      if (layout.is_on_grid_of(first)) expect_masks(grid, layout);
                    }
                  });
}

INSTANTIATE_TEST_SUITE_P(BlockMasks, BlockMasksOfKind,
                         ::testing::Values(Kind::gpt, Kind::bert, Kind::bert_post,
                                           Kind::t5),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace trireme::test
