// plan/kernel_model.cpp — see kernel_model.hpp.
//
// A product's rate is not read from a table of measurements, because published machines
// have none: it follows from the number of tiles, and only how fast a full device is, is
// measured. Large products then are near the peak, and those of a model that many tensor
// ranks share fall off as their tiles no longer fill the last wave. For example 2048 x
// 6144 are 384 tiles of 256 x 128, on 108 multiprocessors four waves, of which the last
// is little more than half full. What is neither a product nor attention is bound by
// memory, and its tally has the bytes.
#include "plan/kernel_model.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "kernels/gemm_tuner.hpp"
#include "plan/counts.hpp"

namespace trireme::plan {

namespace {

index_t blocks(index_t extent, index_t block) {
  return (extent + block - 1) / block;
}

// What tensor cores take of a sum at a time; the fewest terms worth a part of their own.
constexpr index_t kTerms = 32, kFewestTerms = 256;
constexpr index_t kMostParts = 4;
// From so many waves on, multiprocessors are not in step any more.
constexpr index_t kManyWaves = 20;

double product_rate(const Device& device, DType type) {
  return device.gemm_share.of(type) * device.gemm_peak.of(type);
}

double tiles_seconds(const Device& device, const ProductShape& shape, index_t batch,
                     const Tile& tile, index_t parts) {
  const double rate = tile.share * product_rate(device, shape.type) /
                      static_cast<double>(device.multiprocessors);
  const index_t tiles =
      blocks(shape.m, tile.rows) * blocks(shape.n, tile.columns) * parts * batch;
  const index_t units = device.multiprocessors;
  const double waves = tiles > kManyWaves * units ? as_double(tiles) / as_double(units)
                                                  : as_double(blocks(tiles, units));
  const index_t terms = blocks(blocks(shape.k, parts), kTerms) * kTerms;
  const double products = 2.0 * as_double(tile.rows * tile.columns) * as_double(terms);
  double seconds = waves * (products / rate + device.wave);
  // Partial sums are written and read in fp32.
  if (parts > 1) {
    seconds += 2.0 * 4.0 * as_double(parts * shape.m * shape.n) / device.bandwidth;
  }
  return seconds;
}

bool is_attention(std::string_view label) {
  return label.starts_with("trireme::kernels::attention_");
}
bool is_attention_forward(std::string_view label) {
  return label == "trireme::kernels::attention_forward";
}

double fused_seconds(const Machine& machine, const AttentionShape& shape,
                     const KernelTally& kernel) {
  const Device& device = machine.device;
  // A backward pass makes the scores again: five products in place of four.
  const double again = is_attention_forward(kernel.label) ? 1.0 : 1.25;
  const double flops = again * (kernel.cost.flops - kernel.cost.masked_flops);
  const double rate =
      device.attention_share.of(shape.type) * product_rate(device, shape.type);
  const double calls = as_double(kernel.calls);
  return std::max(flops / rate + calls * device.launch,
                  rows_seconds(device, shape.type, as_double(kernel.cost.bytes), calls));
}

// Scores are a matrix of their own, whole whatever the mask: a forward pass writes
// them, a softmax and a dropout pass over them, with a mask of bytes.
double materialised_seconds(const Machine& machine, const AttentionShape& shape,
                            const KernelTally& kernel) {
  if (kernel.cost.flops <= 0.0) {
    return rows_seconds(machine.device, shape.type, as_double(kernel.cost.bytes),
                        as_double(kernel.calls));
  }
  const bool is_forward = is_attention_forward(kernel.label);
  const index_t s = shape.sequence, d = shape.head_elements;
  const double products = is_forward ? 2.0 : 4.0;
  const double scores = kernel.cost.flops / (2.0 * products * as_double(d));
  const double calls = as_double(kernel.calls);
  const auto heads =
      std::max<index_t>(std::llround(scores / as_double(s * s) / calls), 1);
  const ProductShape to_scores{
      .type = shape.type, .type_c = shape.type, .m = s, .n = s, .k = d};
  const ProductShape from_scores{
      .type = shape.type, .type_c = shape.type, .m = s, .n = d, .k = s};
  const double of_each = product_seconds(machine.device, to_scores, heads) +
                         product_seconds(machine.device, from_scores, heads);
  const auto element = static_cast<double>(size_of(shape.type));
  const double mask = 1.0;
  const double bytes = (is_forward ? 4.0 : 5.0) * element + mask;
  return products / 2.0 * calls * of_each +
         rows_seconds(machine.device, shape.type, bytes * scores, 2.0 * calls);
}

Collective collective_of(std::string_view operation) {
  if (operation == "all_gather") return Collective::all_gather;
  if (operation == "reduce_scatter") return Collective::reduce_scatter;
  return Collective::all_reduce;
}

void add_message(const Machine& machine, const Places& places,
                 const MessageTally& message, TallySeconds& seconds) {
  const double bytes = as_double(message.bytes), calls = as_double(message.calls);
  if (message.operation == "recv") return;  // its sender has counted it
  if (message.operation == "send") {
    const double each = calls > 0.0 ? bytes / calls : 0.0;
    seconds.stage_messages += calls * message_seconds(machine, places.pipeline, each);
    return;
  }
  const auto on = [&](const GroupPlace& place) {
    return collective_seconds(machine, place, collective_of(message.operation), bytes,
                              calls);
  };
  if (message.axis == "tensor") {
    // Slices of what a stage has received are put together before it is read.
    double& to = message.site == "slices of stage messages" ? seconds.stage_messages
                                                            : seconds.tensor_messages;
    to += on(places.tensor);
  } else if (message.axis == "tied") {
    seconds.other_messages += on(places.tied);
  } else {
    seconds.other_messages +=
        on(message.axis == "gradient" ? places.gradient : places.model);
  }
}

}  // namespace

double product_seconds(const Device& device, const ProductShape& shape, index_t batch) {
  TRIREME_REQUIRE_INPUT(device.gemm_peak.of(shape.type) > 0.0,
                        "the machine file has no device.gemm_peak.{}, in FLOP/s: the "
                        "device has no products of this type",
                        ByType::key_of(shape.type));
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : device.tiles) {
    for (index_t parts = 1; parts <= kMostParts; parts *= 2) {
      if (parts > 1 && shape.k / parts < kFewestTerms) break;
      least = std::min(least, tiles_seconds(device, shape, batch, tile, parts));
    }
  }
  const auto element = as_double(static_cast<index_t>(size_of(shape.type)));
  const auto element_c = as_double(static_cast<index_t>(size_of(shape.type_c)));
  const double bytes = element * as_double((shape.m + shape.n) * shape.k) +
                       element_c * as_double(shape.m * shape.n);
  const double through_memory =
      as_double(batch) * bytes / (device.bandwidth * device.row_share.of(shape.type));
  return std::max(least, through_memory) + device.launch;
}

double rows_seconds(const Device& device, DType type, double bytes, double calls) {
  return bytes / (device.bandwidth * device.row_share.of(type)) + calls * device.launch;
}

// The ranks of all groups with the same remainder of the stride are numbered through: a
// unit holds `whole` of them in a row, and a group `ranks`. Example: groups of six ranks
// on nodes of eight lie 6 | 2 + 4 | 4 + 2 | 6, so that in the worst of them two ranks
// carry what four do elsewhere. Where units do not hold a multiple of the stride, the
// last rank of a group may lie by itself.
int fewest_inside(const GroupPlace& place, int unit) {
  const auto [ranks, stride, devices] = place;
  if (devices > 0 && devices <= unit) return ranks;
  if (unit % (stride * ranks) == 0) return ranks;
  if (stride >= unit || unit % stride != 0) return 1;
  const int whole = unit / stride, period = whole / std::gcd(whole, ranks);
  const int groups = devices > 0 ? std::min(devices / (stride * ranks), period) : period;
  int fewest = ranks;
  for (int group = 0; group < groups; ++group) {
    const int into = static_cast<int>(index_t{group} * ranks % whole);
    const int first = std::min(ranks, whole - into), rest = (ranks - first) % whole;
    fewest = std::min(fewest, rest > 0 ? std::min(first, rest) : first);
    if (ranks - first >= whole) fewest = std::min(fewest, whole);
  }
  return fewest;
}

Crossing collective_crossing(const Machine& machine, const GroupPlace& place) {
  Crossing crossing;
  int inside = 1;  // ranks of the group in a unit of the level within, at least
  for (std::size_t i = 0; i < machine.network.size() && inside < place.ranks; ++i) {
    const NetworkLevel& level = machine.network[i];
    const bool is_outermost = i + 1 == machine.network.size();
    const int here = is_outermost ? place.ranks : fewest_inside(place, level.devices);
    if (here > inside) {
      const double bandwidth = inside * level.bandwidth;
      if (bandwidth < crossing.bandwidth) {
        crossing.bandwidth = bandwidth;
        crossing.narrowest = i;
      }
      crossing.latency = level.latency;
    }
    inside = here;
  }
  return crossing;
}

double collective_seconds(const Machine& machine, const GroupPlace& place,
                          Collective operation, double bytes, double calls) {
  if (place.ranks <= 1) return 0.0;
  const Crossing crossing = collective_crossing(machine, place);
  const double n = place.ranks;
  const double rounds = operation == Collective::all_reduce ? 2.0 : 1.0;
  return rounds * ((n - 1.0) / n * bytes / crossing.bandwidth +
                   calls * crossing.latency * std::log2(n));
}

// One time for all borders between stages: of the worst, which is the slowest stage's as
// soon as messages do not hide.
std::size_t message_level(const Machine& machine, const GroupPlace& place) {
  const auto level = std::ranges::find_if(machine.network, [&](const NetworkLevel& l) {
    return fewest_inside(place, l.devices) == place.ranks;
  });
  const auto last = std::prev(machine.network.end());
  return static_cast<std::size_t>((level < last ? level : last) -
                                  machine.network.begin());
}

double message_seconds(const Machine& machine, const GroupPlace& place, double bytes) {
  const NetworkLevel& crossed = machine.network[message_level(machine, place)];
  return bytes / crossed.bandwidth + crossed.latency;
}

TallySeconds tally_seconds(const Machine& machine, const Places& places,
                           const AttentionShape& attention, const Tally& tally) {
  TallySeconds seconds;
  for (const ProductTally& product : tally.products()) {
    // The same product without its GeLU is counted as well.
    if (product.shape.has_gelu && kernels::times_decide_gelu()) continue;
    seconds.products +=
        as_double(product.calls) * product_seconds(machine.device, product.shape);
  }
  const bool is_fused = machine.software.attention == AttentionKind::fused;
  for (const KernelTally& kernel : tally.kernels()) {
    if (is_attention(kernel.label)) {
      const double taken = is_fused ? fused_seconds(machine, attention, kernel)
                                    : materialised_seconds(machine, attention, kernel);
      seconds.attention += taken;
      if (is_attention_forward(kernel.label)) seconds.attention_forward += taken;
    } else if (kernel.cost.flops <= 0.0) {  // others are the products above
      seconds.rows += rows_seconds(machine.device, attention.type,
                                   as_double(kernel.cost.bytes), as_double(kernel.calls));
    }
  }
  for (const MessageTally& message : tally.messages()) {
    add_message(machine, places, message, seconds);
  }
  return seconds;
}

}  // namespace trireme::plan
