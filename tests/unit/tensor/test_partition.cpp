// How parameters are cut over a data group: buckets and shares tile the slab, and all
// parts of a bucket are equal and aligned, for models of any size on any ranks.
#include "tensor/partition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"

namespace trireme {
namespace {

using ::testing::ElementsAre;

constexpr index_t kAlignment = Partition::kAlignment;

void add(ParamRegistry& registry, const Shape& shape) {
  registry.add({std::to_string(registry.size()), replicated(shape), {}});
}

// The parameters of a GPT, whose head borrows the embedding.
ParamRegistry gpt(int layers, index_t hidden, index_t vocabulary, index_t sequence) {
  ParamRegistry registry;
  const auto embedding = registry.begin_unit("embedding");
  add(registry, {vocabulary, hidden});
  add(registry, {sequence, hidden});
  for (int layer = 0; layer < layers; ++layer) {
    registry.begin_unit("layer");
    const std::vector<Shape> shapes = {{hidden},
                                       {hidden},
                                       {3 * hidden, hidden},
                                       {3 * hidden},
                                       {hidden, hidden},
                                       {hidden},
                                       {hidden},
                                       {hidden},
                                       {4 * hidden, hidden},
                                       {4 * hidden},
                                       {hidden, 4 * hidden},
                                       {hidden}};
    for (const Shape& shape : shapes) add(registry, shape);
  }
  registry.begin_unit("head", embedding);
  add(registry, {hidden});
  add(registry, {hidden});
  return registry;
}

// A unit for each of these shapes.
ParamRegistry units_of(const std::vector<Shape>& shapes) {
  ParamRegistry registry;
  for (const Shape& shape : shapes) {
    registry.begin_unit("unit");
    add(registry, shape);
  }
  return registry;
}

// The units and elements in buckets: all of them, once, in their order.
void expect_buckets_cover(const Partition& partition, const ParamRegistry& registry) {
  const auto& units = registry.units();
  std::size_t unit = 0;
  index_t end = 0;
  for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
    const Bucket& bucket = partition.buckets()[b];
    ASSERT_EQ(bucket.first_unit, unit);
    ASSERT_GT(bucket.end_unit, unit);
    ASSERT_EQ(bucket.range.begin, end);
    ASSERT_GE(bucket.range.end, end);
    ASSERT_EQ(bucket.range.begin % kAlignment, 0);
    bool is_borrowed = false;
    for (const ParamUnit& by : units) {
      is_borrowed = is_borrowed || (by.borrows && *by.borrows >= bucket.first_unit &&
                                    *by.borrows < bucket.end_unit);
    }
    ASSERT_EQ(bucket.stands_alone, is_borrowed);
    ASSERT_TRUE(!is_borrowed || bucket.end_unit == unit + 1);
    for (; unit < bucket.end_unit; ++unit) {
      ASSERT_EQ(partition.bucket_of_unit(unit), b);
      for (std::size_t p = units[unit].begin; p < units[unit].end; ++p) {
        ASSERT_EQ(partition.bucket_of_param(p), b);
        const index_t count = element_count(registry.spec(p).shard.local_shape);
        ASSERT_EQ(partition.offset(p) % kAlignment, 0);
        ASSERT_GE(partition.offset(p), end);
        ASSERT_LT(partition.offset(p), end + kAlignment);
        end = partition.offset(p) + count;
        ASSERT_LE(end, bucket.range.end);
      }
    }
    // Nothing but padding follows, and no more of it than equal parts need.
    ASSERT_LT(bucket.range.end, end + kAlignment * (partition.parts() + 1));
    end = bucket.range.end;
  }
  ASSERT_EQ(unit, units.size());
  ASSERT_EQ(end, partition.slab_elements());
}

void expect_parts_are_equal(const Partition& partition) {
  for (const Bucket& bucket : partition.buckets()) {
    ASSERT_EQ(bucket.part_size % kAlignment, 0);
    ASSERT_EQ(bucket.part_size * partition.parts(), bucket.range.size());
    index_t end = bucket.range.begin;
    for (int part = 0; part < partition.parts(); ++part) {
      if (bucket.part(part) != IndexRange{end, end + bucket.part_size}) {
        FAIL() << "part " << part << " begins at " << bucket.part(part).begin;
      }
      end += bucket.part_size;
    }
  }
}

// Shares of all parts are all of a parameter, in order.
void expect_shares_tile(const Partition& partition, const ParamRegistry& registry) {
  for (std::size_t p = 0; p < registry.size(); ++p) {
    const Bucket& bucket = partition.buckets()[partition.bucket_of_param(p)];
    const index_t begin = partition.offset(p);
    const index_t count = element_count(registry.spec(p).shard.local_shape);
    index_t end = 0;
    for (int part = 0; part < partition.parts(); ++part) {
      const IndexRange share = partition.share(p, part);
      if (share.size() == 0) continue;
      const IndexRange all = bucket.part(part);
      const bool is_inside =
          begin + share.begin >= all.begin && begin + share.end <= all.end;
      if (share.begin != end || share.size() < 0 || !is_inside) {
        FAIL() << "part " << part << " has [" << share.begin << ", " << share.end
               << ") of parameter " << p;
      }
      end = share.end;
    }
    ASSERT_EQ(end, count) << p;
  }
}

// A part's shards lie one after the other, and nothing is between them.
void expect_shards_are_packed(const Partition& partition) {
  index_t end = 0;
  for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
    ASSERT_EQ(partition.shard_offset(b), end);
    end += partition.buckets()[b].part_size;
  }
  ASSERT_EQ(partition.shard_elements(), end);
}

void expect_consistent(const Partition& partition, const ParamRegistry& registry) {
  ASSERT_NO_FATAL_FAILURE(expect_buckets_cover(partition, registry));
  ASSERT_NO_FATAL_FAILURE(expect_parts_are_equal(partition));
  ASSERT_NO_FATAL_FAILURE(expect_shares_tile(partition, registry));
  ASSERT_NO_FATAL_FAILURE(expect_shards_are_packed(partition));
}

TEST(Partition, IsConsistentForAllSortsOfModels) {
  const std::vector<ParamRegistry> models = {
      gpt(3, 20, 37, 11),
      gpt(2, 64, 512, 128),
      units_of({{1}, {7}, {64}, {65}, {1000}, {3}}),           // vectors only
      units_of({{5, 7}, {1, 300}, {300, 1}, {2, 3, 5}, {9}}),  // rows of all lengths
      units_of({{31, 1000}}),
      units_of({{4}}),
  };
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (const int parts : {1, 2, 3, 4, 7, 16, 100}) {
      for (const index_t elements : {1, 500, 5000, 1 << 20}) {
        SCOPED_TRACE(fmt::format("model {} in {}, buckets of {}", m, parts, elements));
        const Partition partition(models[m], parts, elements);
        ASSERT_EQ(partition.parts(), parts);
        ASSERT_NO_FATAL_FAILURE(expect_consistent(partition, models[m]));
      }
    }
  }
}

TEST(Partition, OnePartHasEverything) {
  const ParamRegistry registry = gpt(2, 20, 37, 11);
  const Partition partition(registry, 1, 1000);
  for (const Bucket& bucket : partition.buckets()) {
    EXPECT_EQ(bucket.part_size, bucket.range.size());
  }
  for (std::size_t p = 0; p < registry.size(); ++p) {
    EXPECT_EQ(partition.share(p, 0),
              (IndexRange{0, element_count(registry.spec(p).shard.local_shape)}));
  }
  EXPECT_EQ(partition.shard_elements(), partition.slab_elements());
}

std::vector<std::size_t> first_units(const Partition& partition) {
  std::vector<std::size_t> units;
  for (const Bucket& bucket : partition.buckets()) units.push_back(bucket.first_unit);
  return units;
}

// Filled from the end, so that what the backward pass completes last may be small.
TEST(PartitionBuckets, AreClosedWhenTheyAreFull) {
  const ParamRegistry five = units_of({{64}, {64}, {64}, {64}, {64}});
  const auto buckets = [&](index_t elements) {
    return first_units(Partition(five, 2, elements));
  };
  EXPECT_THAT(buckets(0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(buckets(1), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(buckets(64), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(buckets(65), ElementsAre(0, 1, 3));
  EXPECT_THAT(buckets(128), ElementsAre(0, 1, 3));
  EXPECT_THAT(buckets(129), ElementsAre(0, 2));
  EXPECT_THAT(buckets(1000), ElementsAre(0));
  // A unit is never divided, whatever its size.
  EXPECT_THAT(first_units(Partition(units_of({{64}, {9, 100}, {64}}), 2, 100)),
              ElementsAre(0, 1));
}

TEST(PartitionBuckets, WhatIsBorrowedHasItsOwn) {
  ParamRegistry registry;
  for (int unit = 0; unit < 6; ++unit) {
    if (unit == 5) {
      registry.begin_unit("borrower", 2);
    } else {
      registry.begin_unit("unit");
    }
    add(registry, {10});
  }
  const Partition partition(registry, 3, 1000);
  EXPECT_THAT(first_units(partition), ElementsAre(0, 2, 3));
  EXPECT_FALSE(partition.buckets()[0].stands_alone);
  EXPECT_TRUE(partition.buckets()[1].stands_alone);
  EXPECT_FALSE(partition.buckets()[2].stands_alone);
  expect_consistent(partition, registry);
}

TEST(PartitionBuckets, AreUnitsEvenWithoutParameters) {
  ParamRegistry registry = units_of({{24}});
  registry.begin_unit("borrower", 0);
  add(registry, {8});
  registry.begin_unit("borrower", 0);
  EXPECT_EQ(Partition(registry, 2, 1).buckets().size(), 3);
}

TEST(PartitionBuckets, UnitsWithoutAName) {
  ParamRegistry registry;
  add(registry, {5, 7});
  add(registry, {3});
  const Partition partition(registry, 2, 1);
  ASSERT_EQ(partition.buckets().size(), 1u);
  EXPECT_EQ(partition.buckets()[0].range, (IndexRange{0, 128}));  // 64 each
  expect_consistent(partition, registry);
}

// The example of partition.hpp: 320 elements, of which three equal parts are 384.
TEST(PartitionParts, AreEqualForThreeRanks) {
  ParamRegistry registry;
  add(registry, {5, 40});
  add(registry, {40});
  const Partition partition(registry, 3, 1);
  EXPECT_EQ(partition.buckets()[0].part_size, 128);
  EXPECT_EQ(partition.buckets()[0].range, (IndexRange{0, 384}));
  EXPECT_EQ(partition.slab_elements(), 384);
  EXPECT_EQ(partition.share(0, 0), (IndexRange{0, 128}));  // three rows and a bit
  EXPECT_EQ(partition.share(0, 1), (IndexRange{128, 200}));
  EXPECT_EQ(partition.share(0, 2).size(), 0);
  EXPECT_EQ(partition.share(1, 1).size(), 0);
  EXPECT_EQ(partition.share(1, 2), (IndexRange{0, 40}));  // no padding
}

// The next bucket begins behind the zeros that make the parts of the first equal.
TEST(PartitionParts, MoreRanksThanTheyHaveElements) {
  const Partition partition(units_of({{3, 100}, {7}}), 8, 1);
  EXPECT_EQ(partition.buckets()[0].range, (IndexRange{0, 512}));
  EXPECT_EQ(partition.buckets()[1].range, (IndexRange{512, 1024}));
  EXPECT_EQ(partition.offset(1), 512);
  EXPECT_EQ(partition.share(0, 4), (IndexRange{256, 300}));
  EXPECT_EQ(partition.share(0, 7).size(), 0);
  EXPECT_EQ(partition.share(1, 0), (IndexRange{0, 7}));
  EXPECT_EQ(partition.shard_offset(1), 64);
  EXPECT_EQ(partition.shard_elements(), 128);
}

TEST(PartitionParts, CostLittleMemory) {
  const ParamRegistry registry = gpt(12, 768, 50257, 1024);
  const index_t alone = Partition(registry, 1, index_t{4} << 20).slab_elements();
  for (const int parts : {2, 3, 8, 64}) {
    const Partition partition(registry, parts, index_t{4} << 20);
    EXPECT_LT(partition.slab_elements(),
              alone + static_cast<index_t>(partition.buckets().size()) * parts * 64);
  }
}

// 175 thousand million parameters on 3072 ranks, by units and as one bucket.
TEST(PartitionSize, OfTheLargestModels) {
  const ParamRegistry registry = gpt(96, 12288, 50257, 2048);
  for (const index_t elements : {index_t{1}, index_t{1} << 45}) {
    const auto start = std::chrono::steady_clock::now();
    const Partition partition(registry, 3072, elements);
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 2.0);  // hundredths, where nobody else computes
    EXPECT_EQ(partition.buckets().size(), elements == 1 ? 98u : 2u);
    EXPECT_GT(partition.slab_elements(), index_t{174'000'000'000});
    ASSERT_NO_FATAL_FAILURE(expect_consistent(partition, registry));
  }
}

// Elements times parts would not fit in 64 bits.
TEST(PartitionSize, DoesNotOverflow) {
  const ParamRegistry registry = units_of({{index_t{1} << 40, index_t{1} << 15}, {7}});
  const Partition partition(registry, 3072, index_t{1} << 60);
  ASSERT_EQ(partition.buckets().size(), 1u);
  ASSERT_NO_FATAL_FAILURE(expect_consistent(partition, registry));
}

TEST(PartitionErrors, NoParts) {
  EXPECT_THAT([] { Partition(units_of({{4}}), 0, 1); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("cut in 0 parts")));
}

}  // namespace
}  // namespace trireme
