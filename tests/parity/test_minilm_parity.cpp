// all-MiniLM-L6-v2, a BERT of 6 layers that somebody has trained, against Hugging Face's
// BertModel, which ran in fp64 (make_minilm_fixtures.py): ids of texts, hidden states of
// every layer of one text, and the last ones of all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"
#include "model/chunk.hpp"
#include "parity/hugging_face_case.hpp"
#include "support/arrays.hpp"
#include "support/minilm.hpp"
#include "support/rows.hpp"

namespace trireme::test {
namespace {

// What the oracle says.
struct MiniLmOracle {
  std::vector<std::int32_t> ids, lengths;  // (n, s), (n)
  std::vector<float> hidden, layers;
  index_t texts = 0, positions = 0;

  MiniLmOracle() {
    const io::SafetensorsReader reader(minilm_fixture("oracle.safetensors").string());
    ids = elements<std::int32_t>(reader.at("ids"));
    lengths = elements<std::int32_t>(reader.at("lengths"));
    hidden = elements<float>(reader.at("hidden"));
    layers = elements<float>(reader.at("layers"));
    texts = std::ssize(lengths);
    positions = std::ssize(ids) / texts;
  }
  index_t length(index_t text) const { return lengths[extent(text)]; }
};

// The first blocks of the model, and one pass of all texts through them.
template <class T>
class MiniLm {
 public:
  MiniLm(const MiniLmOracle& oracle, std::size_t blocks)
      : oracle_(oracle),
        foreign_(hugging_face_model(minilm_directory().string())),
        blueprint_(model::make_blueprint(foreign_->config(), model::Use::vectors)),
        groups_(comm::make_groups_of_one()),
        chunk_(nn::Builder<T>{registry_, params_, groups_}, blueprint_, {0, blocks}) {
    params_.allocate(registry_, ParamBuffer<T>::Use::inference);
    const auto weights = weights_of(foreign_);
    for (std::size_t p = 0; p < registry_.size(); ++p) {
      const std::vector<float> values = weights(registry_.spec(p));
      const auto slice = params_.slice(Slab::weight, p);
      const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, slice);
      const std::size_t count = std::min(values.size(), host.extent(0));
      std::copy_n(values.begin(), count, host.data());
      Kokkos::deep_copy(slice, host);
    }
    params_.refresh_compute(exec_);
  }

  // (positions * texts, h): the last of these blocks' output.
  std::vector<double> hidden() {
    const index_t rows = oracle_.texts * oracle_.positions;
    const Array<T> out(extent(rows * blueprint_.architecture.hidden));
    BatchSpec spec = blueprint_.batch;
    spec.streams.at(0).sequence = oracle_.positions;
    FilledBatch filled(spec, oracle_.texts);
    const HostBatch host = filled.fill(
        0, [&](const FieldSpec& field, index_t text, index_t position) -> index_t {
          if (field.holds == Holds::places) return position;
          if (field.holds == Holds::lengths) return oracle_.length(text);
          if (field.holds != Holds::words) return 0;
          return oracle_.ids[extent(text * oracle_.positions + position)];
        });
    nn::MicroBatch batch(spec, oracle_.texts);
    for (std::size_t f = 0; f < spec.fields.size(); ++f) {
      const auto* values = static_cast<const std::int32_t*>(host.fields.at(f));
      fields_.emplace_back(std::vector<double>(values, values + batch.elements(f)));
      batch.set(f, fields_.back().vector().data(), batch.elements(f));
    }
    run(Exec::shape_only(), batch, out);
    for (Arena* arena : {&saved_, &scratch_, &held_}) {
      memory_.emplace_back("arena", arena->peak() + 1);
      *arena = Arena(memory_.back().data(), memory_.back().extent(0));
    }
    run(exec_, batch, out);
    return rows_of(out.matrix(rows, blueprint_.architecture.hidden));
  }
  index_t columns() const { return blueprint_.architecture.hidden; }

 private:
  void run(const Exec& exec, const nn::MicroBatch& batch, const Array<T>& out) {
    const nn::Context context{.exec = exec,
                              .groups = groups_,
                              .step = kernels::StepStateView(step_.data()),
                              .saved = &saved_,
                              .scratch = scratch_,
                              .held = held_,
                              .batch = batch,
                              .mode = nn::Mode::evaluation};
    chunk_.forward(context, 0, {},
                   model::tensors_of(context, chunk_.border_out(), out.vector().data()));
  }

  const MiniLmOracle& oracle_;
  std::shared_ptr<const ckpt::HuggingFaceModel> foreign_;
  model::Blueprint blueprint_;
  comm::ProcessGroups groups_;
  Exec exec_;
  ParamRegistry registry_;
  ParamBuffer<T> params_;
  model::Chunk<T> chunk_;
  std::vector<Array<std::int32_t>> fields_;
  Kokkos::View<kernels::StepState, DeviceMemory> step_{"step state"};
  std::vector<DeviceArray<std::byte>> memory_;
  Arena saved_, scratch_, held_;
};

// Rows of a text, position after position, within `bound` of the largest of them.
void expect_rows(const std::vector<double>& got, const float* want,
                 const MiniLmOracle& oracle, index_t text, index_t columns,
                 double bound) {
  double worst = 0.0, largest = 0.0;
  for (index_t position = 0; position < oracle.length(text); ++position) {
    for (index_t j = 0; j < columns; ++j) {
      const double mine = got[extent((position * oracle.texts + text) * columns + j)];
      const double theirs = want[position * columns + j];
      worst = std::max(worst, std::abs(mine - theirs));
      largest = std::max(largest, std::abs(theirs));
    }
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(worst, bound * largest) << "text " << text;
}

template <class T>
void expect_hidden_states(double bound) {
  if (minilm_directory().empty()) GTEST_SKIP() << kNoMiniLm;
  const MiniLmOracle oracle;
  constexpr std::size_t kLayers = 6;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    SCOPED_TRACE("before layer " + std::to_string(layer));
    MiniLm<T> model(oracle, 1 + layer);
    const index_t of_layer = oracle.length(0) * model.columns();
    expect_rows(model.hidden(),
                &oracle.layers[extent(static_cast<index_t>(layer) * of_layer)], oracle, 0,
                model.columns(), bound);
  }
  MiniLm<T> model(oracle, 1 + kLayers);
  const std::vector<double> hidden = model.hidden();
  index_t begin = 0;
  for (index_t text = 0; text < oracle.texts; ++text) {
    expect_rows(hidden, &oracle.hidden[extent(begin * model.columns())], oracle, text,
                model.columns(), bound);
    begin += oracle.length(text);
  }
}

TEST(MinilmParity, HiddenStatesFloat) {
  expect_hidden_states<float>(2e-5);
}
// The oracle's numbers are rounded to fp32.
TEST(MinilmParity, HiddenStatesDouble) {
  expect_hidden_states<double>(1e-6);
}

TEST(MinilmParity, Ids) {
  if (minilm_directory().empty()) GTEST_SKIP() << kNoMiniLm;
  const MiniLmOracle oracle;
  const data::Tokenizer tokenizer = data::Tokenizer::load({minilm_directory()});
  std::ifstream file(minilm_fixture("texts.txt"));
  std::string line;
  index_t text = 0;
  for (; std::getline(file, line); ++text) {
    std::vector<data::TokenId> ids = {tokenizer.special(data::Special::classify)};
    for (const data::TokenId id : tokenizer.encode(line)) ids.push_back(id);
    ids.push_back(tokenizer.special(data::Special::separate));
    const auto begin = oracle.ids.begin() + text * oracle.positions;
    EXPECT_EQ(ids, std::vector<data::TokenId>(begin, begin + oracle.length(text)))
        << line;
  }
  EXPECT_EQ(text, oracle.texts);
}

}  // namespace
}  // namespace trireme::test
