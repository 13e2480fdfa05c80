// kernels/decode_layers.cpp — see decode_layers.hpp.
//
// What a launch takes is put together once: pointers of all layers, and the words that
// blocks hand on to each other, lie in the device's memory, so that a launch's arguments
// are the same from token to token. A launch takes so many texts, and its words are those
// of as many whatever it has. Whether there is a launch is asked for the most texts: else
// the bits of a text would depend on how many others there are. Memory that is only
// planned begins at multiples of 16 bytes.
#include "kernels/decode_layers.hpp"

#include <algorithm>

#include "base/device.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/types.hpp"
#include "kernels/impl/decode_layers.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

namespace {

constexpr const char* kLabel = "trireme::kernels::decode_layers";
constexpr index_t kOfPiece = 8;  // elements of 16 bytes

constexpr index_t kTexts = cuda::kDecodeRows;  // of a launch

bool are_alike(const CachedHeads& a, const CachedHeads& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
         a.scale == b.scale;
}

// Rows one behind the other, from a multiple of 16 bytes on.
template <class T>
bool is_whole(const View2<T>& matrix, index_t rows, index_t columns) {
  return static_cast<index_t>(matrix.extent(0)) == rows &&
         static_cast<index_t>(matrix.extent(1)) == columns &&
         (rows < 2 || static_cast<index_t>(matrix.stride(0)) == columns) &&
         impl::has_pieces(matrix.data(), columns);
}
template <class T>
bool is_whole(const View1<T>& vector, index_t count) {
  return static_cast<index_t>(vector.extent(0)) == count &&
         impl::has_pieces(vector.data(), 0);
}

template <class T>
bool is_whole(const DecodeLayer<T>& layer, index_t hidden, index_t ffn) {
  const CachedHeads& heads = layer.heads;
  const index_t attended = heads.heads * heads.head_dim;
  const index_t cached = heads.kv_heads * heads.head_dim;
  const index_t qkv = attended + 2 * cached;
  return is_whole(layer.qkv, qkv, hidden) && is_whole(layer.qkv_bias, qkv) &&
         is_whole(layer.projection, hidden, attended) &&
         is_whole(layer.projection_bias, hidden) && is_whole(layer.fc1, ffn, hidden) &&
         is_whole(layer.fc1_bias, ffn) && is_whole(layer.fc2, hidden, ffn) &&
         is_whole(layer.fc2_bias, hidden) && is_whole(layer.attention_gamma, hidden) &&
         is_whole(layer.attention_beta, hidden) && is_whole(layer.mlp_gamma, hidden) &&
         is_whole(layer.mlp_beta, hidden) &&
         is_whole(layer.k, static_cast<index_t>(layer.k.extent(0)), cached) &&
         is_whole(layer.v, static_cast<index_t>(layer.k.extent(0)), cached);
}

template <class T>
cuda::DecodeLayersTask task_of(const std::vector<DecodeLayer<T>>& layers,
                               index_t capacity) {
  const DecodeLayer<T>& first = layers.front();
  const auto hidden = static_cast<index_t>(first.fc1.extent(1));
  cuda::DecodeLayersTask task;
  task.layer_count = static_cast<std::int32_t>(layers.size());
  task.rows = static_cast<std::int32_t>(kTexts);
  task.hidden = static_cast<std::int32_t>(hidden);
  task.ffn = static_cast<std::int32_t>(first.fc1.extent(0));
  task.heads = static_cast<std::int32_t>(first.heads.heads);
  task.kv_heads = static_cast<std::int32_t>(first.heads.kv_heads);
  task.head_dim = static_cast<std::int32_t>(first.heads.head_dim);
  task.scale = static_cast<float>(first.heads.scale);
  task.epsilon = static_cast<float>(first.epsilon);
  task.per_column = static_cast<float>(1.0 / static_cast<double>(hidden));
  task.capacity = static_cast<std::int32_t>(capacity);
  task.longest = task.capacity;
  return task;
}

// Half of the cache that an H100's multiprocessors share, and of an A100's somewhat more.
constexpr std::size_t kMostNextBytes = std::size_t{24} << 20;
constexpr std::size_t kLineBytes = 128;

template <class View>
const std::uint16_t* words_of(const View& view) {
  return reinterpret_cast<const std::uint16_t*>(view.data());
}

template <class T>
cuda::DecodeLayer pointers_of(const DecodeLayer<T>& layer) {
  return {{words_of(layer.qkv), words_of(layer.projection), words_of(layer.fc1),
           words_of(layer.fc2)},
          {words_of(layer.qkv_bias), words_of(layer.projection_bias),
           words_of(layer.fc1_bias), words_of(layer.fc2_bias)},
          {words_of(layer.attention_gamma), words_of(layer.mlp_gamma)},
          {words_of(layer.attention_beta), words_of(layer.mlp_beta)},
          reinterpret_cast<std::uint16_t*>(layer.k.data()),
          reinterpret_cast<std::uint16_t*>(layer.v.data())};
}

// How weights come, and to how many blocks: to none where there is no such launch.
struct Way {
  WeightCopies copies;
  int blocks;
};
Way find_way(const Exec& exec, DType type, const cuda::DecodeLayersTask& task,
             const std::optional<WeightCopies>& wanted) {
  const auto by = [&](WeightCopies copies) {
    return Way{copies, impl::decode_layer_blocks(exec, type, task, copies)};
  };
  if (wanted) return by(*wanted);
  const bool is_proven =
      std::ranges::find(kBoxesProvenOn, built_capability()) != kBoxesProvenOn.end();
  if (is_proven) {
    if (const Way way = by(WeightCopies::boxes); way.blocks > 0) return way;
  }
  return by(WeightCopies::quads);
}

}  // namespace

template <class T>
bool DecodeLayers<T>::has(const Exec& exec, const std::vector<DecodeLayer<T>>& layers,
                          index_t capacity, std::optional<WeightCopies> copies) {
  if (sizeof(T) != 2 || layers.empty()) return false;
  const DecodeLayer<T>& first = layers.front();
  const auto hidden = static_cast<index_t>(first.fc1.extent(1));
  const auto ffn = static_cast<index_t>(first.fc1.extent(0));
  const bool are_whole = std::ranges::all_of(layers, [&](const DecodeLayer<T>& layer) {
    return are_alike(layer.heads, first.heads) && layer.epsilon == first.epsilon &&
           is_whole(layer, hidden, ffn);
  });
  const bool fits = hidden % kOfPiece == 0 && ffn % kOfPiece == 0 &&
                    first.heads.head_dim % kOfPiece == 0 &&
                    first.heads.head_dim <= cuda::kDecodeHeadElements;
  return are_whole && fits &&
         find_way(exec, dtype_of<T>, task_of(layers, capacity), copies).blocks > 0;
}

template <class T>
DecodeLayers<T>::DecodeLayers(const Exec& exec, const std::vector<DecodeLayer<T>>& layers,
                              index_t capacity, View2<const T> next,
                              std::optional<WeightCopies> copies)
    : task_(task_of(layers, capacity)) {
  const Way way = find_way(exec, dtype_of<T>, task_, copies);
  copies_ = way.copies;
  task_.blocks = way.blocks;
  TRIREME_REQUIRE(
      task_.blocks > 0,
      "kernels::decode_layers: no launch of such layers here: ask has() first");
  if (exec.is_shape_only()) return;
  layers_ = DeviceArray<cuda::DecodeLayer>("decoder layers", layers.size());
  words_ = DeviceArray<std::uint32_t>("decoder words",
                                      static_cast<std::size_t>(2 * words_of_set(task_)));
  turn_ = DeviceArray<std::int32_t>("decoder turn", 1);
  const auto host = Kokkos::create_mirror_view(layers_);
  for (std::size_t i = 0; i < layers.size(); ++i) host(i) = pointers_of(layers[i]);
  Kokkos::deep_copy(exec.space(), layers_, host);
  if (copies_ == WeightCopies::boxes) {
    maps_ = DeviceArray<cuda::BoxMap>("maps of decoder weights",
                                      layers.size() * cuda::kMatricesOfLayer);
    const auto maps = Kokkos::create_mirror_view(maps_);
    impl::make_box_maps(task_, host.data(), maps.data());
    Kokkos::deep_copy(exec.space(), maps_, maps);
    task_.maps = maps_.data();
  }
  exec.fence("trireme::kernels::DecodeLayers");
  task_.layers = layers_.data();
  task_.words = words_.data();
  task_.turn = turn_.data();
  task_.next = words_of(next);
  task_.next_lines = static_cast<std::int32_t>(
      std::min(next.span() * sizeof(T), kMostNextBytes) / kLineBytes);
}

template <class T>
std::size_t DecodeLayers<T>::bytes() const {
  const std::size_t maps = copies_ == WeightCopies::boxes ? cuda::kMatricesOfLayer : 0;
  return extent(task_.layer_count) *
             (sizeof(cuda::DecodeLayer) + maps * sizeof(cuda::BoxMap)) +
         static_cast<std::size_t>(2 * words_of_set(task_)) * sizeof(std::uint32_t) +
         sizeof(std::int32_t);
}

template <class T>
Cost DecodeLayers<T>::cost(index_t rows, index_t longest) const {
  const index_t h = task_.hidden, attended = task_.heads * task_.head_dim;
  const index_t cached = task_.kv_heads * task_.head_dim;
  const index_t products = h * (2 * attended + 2 * cached) + 2 * h * task_.ffn;
  const index_t vectors = attended + 2 * cached + task_.ffn + 6 * h;
  const index_t keys = rows * longest * cached;
  Cost cost;
  cost.flops = static_cast<double>(task_.layer_count) *
               (2.0 * static_cast<double>(rows * products) +
                4.0 * static_cast<double>(rows * longest * attended));
  cost.bytes = (task_.layer_count * (products + vectors + 2 * keys) + 2 * rows * h) *
               static_cast<index_t>(sizeof(T));
  return cost;
}

template <class T>
void DecodeLayers<T>::run(const Exec& exec, const CachedTexts& texts, View2<const T> x,
                          View2<T> y) const {
  const index_t h = task_.hidden;
  require_extents("decode_layers", "x", x, texts.count, h);
  require_extents("decode_layers", "y", y, texts.count, h);
  TRIREME_REQUIRE(texts.capacity == task_.capacity && texts.longest <= texts.capacity,
                  "kernels::decode_layers: {} of {}, made for {}",
                  format_plural(texts.longest, "position"), texts.capacity,
                  task_.capacity);
  for (index_t first = 0; first < texts.count; first += kTexts) {
    cuda::DecodeLayersTask task = task_;
    const index_t rows = std::min(kTexts, texts.count - first);
    const Kernel kernel{kLabel, cost(rows, texts.longest)};
    if (exec.only_counts(kernel)) continue;
    task.rows = static_cast<std::int32_t>(rows);
    // Behind the other launches comes one of these layers.
    if (first + kTexts < texts.count) task.next_lines = 0;
    task.places = texts.places.data() == nullptr ? nullptr : texts.places.data() + first;
    task.lengths =
        texts.lengths.data() == nullptr ? nullptr : texts.lengths.data() + first;
    task.first_place = static_cast<std::int32_t>(texts.first_place + first);
    task.longest = static_cast<std::int32_t>(texts.longest);
    task.x_leading = static_cast<std::int64_t>(x.stride(0));
    task.y_leading = static_cast<std::int64_t>(y.stride(0));
    task.x = words_of(x) + first * task.x_leading;
    task.y = reinterpret_cast<std::uint16_t*>(y.data()) + first * task.y_leading;
    impl::launch_decode_layers(exec, kernel, dtype_of<T>, task);
  }
}

#define TRIREME_INSTANTIATE(T) template class DecodeLayers<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
