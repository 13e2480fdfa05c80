// Every collective against a plain local computation: all element types, odd sizes,
// messages cut into pieces, staged through the host, both waiting policies, whole world
// and parts.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/nccl_link.hpp"
#include "support/strict_transport.hpp"

namespace trireme::comm {
namespace {

struct Variant {
  std::string name;
  MpiOptions options;
};

std::vector<Variant> variants() {
  MpiOptions plain, pieces, staged, naps, aware;
  plain.wait = WaitPolicy::yield;  // tests run with more ranks than cores
  pieces = staged = naps = aware = plain;
  pieces.max_count = 10;
  staged.stage_through_host = true;
  staged.max_count = 50;
  naps.wait.reset();                // what the machine asks for
  aware.host_reads_device = false;  // as where MPI takes pointers to a GPU's memory
  std::vector<Variant> all = {{"plain", plain},   {"pieces", pieces},
                              {"staged", staged}, {"chosen", naps},
                              {"aware", aware},   {"strict", strict_options()}};
  if (has_nccl()) {  // a host's, tests/support/fake_nccl.hpp
    MpiOptions nccl = plain;
    nccl.transport = TransportKind::nccl;
    all.push_back({"nccl", nccl});
  }
  return all;
}

constexpr index_t kSizes[] = {1, 31, 33, 257};

// Small integers: exact in every type, sums over 8 ranks too.
template <class T>
T value(int rank, index_t i, int salt = 0) {
  return T(static_cast<float>((rank * 7 + i * 3 + salt * 5) % 13));
}

template <class T>
float as_float(T x) {
  return static_cast<float>(x);
}

template <class T>
T reduced(const Group& comm, Op op, index_t i) {
  float result = as_float(value<T>(0, i));
  for (int r = 1; r < comm.size(); ++r) {
    const float other = as_float(value<T>(r, i));
    result = op == Op::sum
                 ? result + other
                 : (op == Op::max ? std::max(result, other) : std::min(result, other));
  }
  return T(result);
}

template <class T>
Span span(std::vector<T>& data) {
  return {data.data(), static_cast<index_t>(data.size()), dtype_of<T>};
}

template <class T>
std::vector<T> filled(int rank, index_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (index_t i = 0; i < count; ++i) data[i] = value<T>(rank, i);
  return data;
}

template <class T>
void check_reductions(Group& comm, index_t n) {
  const Exec exec;
  const int p = comm.size();
  for (const Op op : {Op::sum, Op::max, Op::min}) {
    auto data = filled<T>(comm.rank(), n);
    comm.all_reduce(exec, span(data), op);
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_float(data[i]), as_float(reduced<T>(comm, op, i))) << "at " << i;
    }

    const auto in = filled<T>(comm.rank(), n * p);
    std::vector<T> out(static_cast<std::size_t>(n));
    comm.reduce_scatter(exec, {in.data(), n * p, dtype_of<T>}, span(out), op);
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_float(out[i]), as_float(reduced<T>(comm, op, n * comm.rank() + i)));
    }
    // In place: the result replaces this rank's block of the input, the rest stays.
    auto both = in;
    comm.reduce_scatter(exec, span(both), {both.data() + n * comm.rank(), n, dtype_of<T>},
                        op);
    for (index_t i = 0; i < n * p; ++i) {
      const bool own = i / n == comm.rank();
      ASSERT_EQ(as_float(both[i]), as_float(own ? out[i % n] : in[i])) << "at " << i;
    }
  }
}

template <class T>
void check_movements(Group& comm, index_t n) {
  const Exec exec;
  const int p = comm.size();
  const auto own = filled<T>(comm.rank(), n);
  std::vector<T> all(static_cast<std::size_t>(n * p));
  comm.all_gather(exec, {own.data(), n, dtype_of<T>}, span(all));
  for (index_t i = 0; i < n * p; ++i) {
    ASSERT_EQ(as_float(all[i]), as_float(value<T>(static_cast<int>(i / n), i % n)));
  }
  std::vector<T> both(static_cast<std::size_t>(n * p));
  std::copy(own.begin(), own.end(), both.begin() + n * comm.rank());
  comm.all_gather(exec, {both.data() + n * comm.rank(), n, dtype_of<T>}, span(both));
  ASSERT_EQ(std::memcmp(both.data(), all.data(), both.size() * sizeof(T)), 0);

  // Block r of rank q becomes block q of rank r.
  const auto in = filled<T>(comm.rank(), n * p);
  comm.all_to_all(exec, {in.data(), n * p, dtype_of<T>}, span(all));
  for (index_t i = 0; i < n * p; ++i) {
    const auto from = static_cast<int>(i / n);
    ASSERT_EQ(as_float(all[i]), as_float(value<T>(from, n * comm.rank() + i % n)));
  }

  for (int root = 0; root < p; ++root) {
    auto data = filled<T>(comm.rank(), n);
    comm.broadcast(exec, span(data), root);
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_float(data[i]), as_float(value<T>(root, i)));
    }
  }

  if (p == 1) return;
  // A ring, everyone at once.
  const int next = (comm.rank() + 1) % p;
  const int previous = (comm.rank() + p - 1) % p;
  std::vector<T> first(static_cast<std::size_t>(n)), second(static_cast<std::size_t>(n));
  std::vector<T> more(own.size());
  for (index_t i = 0; i < n; ++i) more[i] = value<T>(comm.rank(), i, 1);
  const ConstSpan one{own.data(), n, dtype_of<T>}, other{more.data(), n, dtype_of<T>};
  const auto expect_ring = [&](int round) {
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_float(first[i]), as_float(value<T>(previous, i))) << round;
      ASSERT_EQ(as_float(second[i]), as_float(value<T>(previous, i, 1))) << round;
    }
  };
  comm.open({{next}, {previous}});
  comm.open({{next, Channel::forward},
             {previous, Channel::forward},
             {next, Channel::backward},
             {previous, Channel::backward}});
  {  // In the order they are sent; waited for in another.
    Request a, b, c, d;
    comm.together([&] {
      a = comm.start_recv(exec, span(first), previous);
      b = comm.start_send(exec, one, next);
      c = comm.start_send(exec, other, next);
      d = comm.start_recv(exec, span(second), previous);
    });
    for (Request* request : {&d, &a, &c, &b}) request->wait(exec);
    expect_ring(0);
  }
  {  // Channels keep what is received in another order apart.
    std::fill(first.begin(), first.end(), T(0.0f));
    std::fill(second.begin(), second.end(), T(0.0f));
    Request a, b, c, d;
    comm.together([&] {
      a = comm.start_recv(exec, span(second), previous, "ring", Channel::backward);
      b = comm.start_recv(exec, span(first), previous, "ring", Channel::forward);
      c = comm.start_send(exec, one, next, "ring", Channel::forward);
      d = comm.start_send(exec, other, next, "ring", Channel::backward);
    });
    while (comm.control().is_under_way()) comm.control().progress();
    for (Request* request : {&a, &b, &c, &d}) request->wait(exec);
    expect_ring(1);
  }
  // One after the other.
  if (comm.rank() == 0) {
    comm.send(exec, {own.data(), n, dtype_of<T>}, p - 1);
  } else if (comm.rank() == p - 1) {
    comm.recv(exec, span(first), 0);
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_float(first[i]), as_float(value<T>(0, i)));
    }
  }
}

template <class T>
void check_type(Group& comm, index_t n) {
  SCOPED_TRACE(std::string(name_of(dtype_of<T>)) + " x " + std::to_string(n));
  check_reductions<T>(comm, n);
  check_movements<T>(comm, n);
}

void check_all_types(Group& comm) {
  for (const index_t n : kSizes) {
    check_type<float>(comm, n);
    check_type<double>(comm, n);
    check_type<bf16>(comm, n);
    check_type<fp16>(comm, n);
    check_type<std::int32_t>(comm, n);
    check_type<std::int64_t>(comm, n);
    check_type<std::uint8_t>(comm, n);
    check_type<std::uint16_t>(comm, n);
    check_type<std::uint32_t>(comm, n);
    check_type<std::uint64_t>(comm, n);
  }
}

TEST(CommunicatorCollectives, World) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    Group world(make_mpi_world(variant.options));
    if (variant.name == "pieces") {
      check_all_types(world);
    } else {
      check_type<float>(world, 33);
      check_type<bf16>(world, 257);
    }
  }
}

TEST(CommunicatorCollectives, PartsAtTheSameTime) {
  const auto world = make_mpi_world(variants()[1].options);
  // Odd and even ranks, the higher world ranks first.
  const auto part = world->split(world->rank() % 2, -world->rank(), "parity");
  ASSERT_EQ(part->size(), (world->size() + 1 - world->rank() % 2) / 2);
  ASSERT_EQ(part->rank(), part->size() - 1 - world->rank() / 2);
  EXPECT_EQ(part->name(), "parity");
  Group group(part);
  check_type<float>(group, 257);
  check_type<std::int64_t>(group, 31);
}

TEST(CommunicatorCollectives, SplitWithoutMembership) {
  const auto world = make_mpi_world(variants()[0].options);
  const auto first_two = world->split(world->rank() < 2 ? 0 : -1, 0, "first_two");
  ASSERT_EQ(first_two == nullptr, world->rank() >= 2);
  if (first_two) {
    EXPECT_EQ(first_two->all_reduce(std::int64_t{1}), std::min(2, world->size()));
  }
}

// Unequal magnitudes, so that every order of adding gives other bits.
TEST(CommunicatorCollectives, BitwiseRepeatableAndEqualOnAllRanks) {
  Group world(make_mpi_world(variants()[0].options));
  for (const index_t n : {3, 1000, 40000}) {
    std::vector<float> start(static_cast<std::size_t>(n));
    for (index_t i = 0; i < n; ++i) {
      start[i] = std::sin(1.0f + static_cast<float>(i * world.size() + world.rank())) *
                 std::pow(10.0f, static_cast<float>((i + world.rank()) % 7));
    }
    auto once = start;
    world.all_reduce(Exec(), span(once));
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto again = start;
      world.all_reduce(Exec(), span(again));
      ASSERT_EQ(std::memcmp(once.data(), again.data(), once.size() * sizeof(float)), 0);
    }
    auto of_root = once;
    world.broadcast(Exec(), span(of_root), 0);
    ASSERT_EQ(std::memcmp(once.data(), of_root.data(), once.size() * sizeof(float)), 0);
  }
}

TEST(CommunicatorHostValues, ReducedInRankOrder) {
  const auto world = make_mpi_world(variants()[0].options);
  const int p = world->size();
  const auto mine = [](int rank) {
    return std::sin(rank + 1.0) * std::pow(1e8, rank % 3);
  };
  double sum = mine(0), least = mine(0), most = mine(0);
  for (int r = 1; r < p; ++r) {
    sum += mine(r);
    least = std::min(least, mine(r));
    most = std::max(most, mine(r));
  }
  EXPECT_EQ(world->all_reduce(mine(world->rank())), sum);  // to the bit
  EXPECT_EQ(world->all_reduce(mine(world->rank()), Op::min), least);
  EXPECT_EQ(world->all_reduce(mine(world->rank()), Op::max), most);
  std::vector<double> values = {mine(world->rank()), -1.0, double(world->rank())};
  world->all_reduce(values);
  EXPECT_EQ(values, (std::vector<double>{sum, -1.0 * p, p * (p - 1) / 2.0}));

  const std::int64_t large = (std::int64_t{1} << 53) + world->rank();
  EXPECT_EQ(world->all_reduce(large, Op::max), (std::int64_t{1} << 53) + p - 1);
  EXPECT_EQ(world->all_reduce(large, Op::min), std::int64_t{1} << 53);
  // A NaN on one rank is seen by all.
  const double odd = world->rank() == p - 1 ? std::nan("") : 1.0;
  EXPECT_TRUE(std::isnan(world->all_reduce(odd, Op::max)));
  EXPECT_TRUE(std::isnan(world->all_reduce(odd, Op::min)));
}

TEST(CommunicatorHostValues, GatherScanBroadcast) {
  const auto world = make_mpi_world(variants()[1].options);
  const int p = world->size();
  const int rank = world->rank();
  EXPECT_EQ(world->exclusive_scan(10 + rank), 10 * rank + rank * (rank - 1) / 2);
  const auto numbers = world->gather(std::int64_t{100} * rank);
  const auto texts = world->gather(std::string(static_cast<std::size_t>(rank) * 9, 'x'));
  ASSERT_EQ(static_cast<int>(texts.size()), p);
  for (int r = 0; r < p; ++r) {
    EXPECT_EQ(numbers[r], 100 * r);
    EXPECT_EQ(texts[r], std::string(static_cast<std::size_t>(r) * 9, 'x'));
  }
  EXPECT_EQ(world->gather(std::string()), std::vector<std::string>(texts.size()));
  const auto of_first =
      world->gather_to_first(std::string(static_cast<std::size_t>(rank) * 9, 'x'));
  EXPECT_EQ(of_first, rank == 0 ? texts : std::vector<std::string>());
  EXPECT_EQ(world->gather_to_first(std::string()).size(), rank == 0 ? texts.size() : 0);

  for (const std::string& text :
       {std::string(), std::string("deck\0with zero", 14), std::string(5000, 'y')}) {
    std::string got = rank == p - 1 ? text : "something else";
    world->broadcast(got, p - 1);
    EXPECT_EQ(got, text);
  }
  EXPECT_TRUE(world->any(rank == p - 1));
  EXPECT_FALSE(world->any(false));
  EXPECT_TRUE(world->all(true));
  EXPECT_EQ(world->all(rank != p - 1), false);
}

TEST(CommunicatorTraffic, CountsCallsAndBytesBySite) {
  Group on_device(make_mpi_world(variants()[0].options));
  Group* const world = &on_device;
  const int p = world->size();
  std::vector<float> data(100), all(static_cast<std::size_t>(100 * p));
  world->all_reduce(Exec(), span(data), Op::sum, "gradients");
  world->all_reduce(Exec(), span(data), Op::sum, "gradients");
  world->all_gather(Exec(), {data.data(), 100, DType::float32}, span(all), "weights");
  if (p == 1) {  // nothing was sent
    EXPECT_EQ(world->traffic().calls, 0);
    return;
  }
  EXPECT_EQ(world->traffic().calls, 3);
  EXPECT_EQ(world->traffic().bytes, 800 + 400 * p);
  EXPECT_GT(world->traffic().seconds, 0.0);
  ASSERT_EQ(world->sent().messages().size(), 2u);
  const MessageTally& gradients = world->sent().messages()[0];
  EXPECT_EQ(gradients.site, "gradients");
  EXPECT_EQ(gradients.operation, "all_reduce");
  EXPECT_EQ(gradients.calls, 2);
  EXPECT_EQ(gradients.elements, 200);
  EXPECT_EQ(world->sent().messages()[1].elements, 100 * p);
  world->reset_traffic();
  EXPECT_EQ(world->traffic().calls, 0);
  EXPECT_TRUE(world->sent().messages().empty());
}

// Several under way at once, of two groups; results in
// the order of the waits, whatever that is.
TEST(CommunicatorRequests, ManyUnderWay) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const auto control = make_mpi_world(variant.options);
    const int p = control->size(), rank = control->rank();
    Group all(control), again(control->split(0, rank, "other"));
    Group *const world = &all, *const other = &again;
    const index_t own = 17, n = own * p;
    const Exec exec;
    auto sums = filled<float>(rank, 33);
    auto summands = filled<float>(rank, n);
    std::vector<float> part(static_cast<std::size_t>(own)), whole(summands.size());
    auto in_place = summands;
    const auto block_of = [&](std::vector<float>& v) {
      return Span{v.data() + own * rank, own, DType::float32};
    };
    Request a = world->start_all_reduce(exec, span(sums));
    Request b =
        other->start_reduce_scatter(exec, span(summands), span(part), Op::sum, "parts");
    Request c = world->start_reduce_scatter(exec, span(in_place), block_of(in_place),
                                            Op::sum, "in place");
    EXPECT_EQ(a.under_way(), p > 1);
    control->progress();
    c.wait(exec);
    b.wait(exec);
    a.wait(exec);
    EXPECT_FALSE(a.under_way());
    a.wait(exec);  // again: nothing to wait for
    for (index_t i = 0; i < 33; ++i)
      ASSERT_EQ(sums[i], reduced<float>(*world, Op::sum, i));
    for (index_t i = 0; i < own; ++i) {
      const float want = reduced<float>(*world, Op::sum, own * rank + i);
      ASSERT_EQ(part[i], want);
      ASSERT_EQ(in_place[own * rank + i], want);
    }
    Request d = world->start_all_gather(exec, span(part), span(whole), "gather");
    Request e = other->start_all_gather(exec, block_of(in_place), span(in_place),
                                        "gather in place");
    e.wait(exec);
    d.wait(exec);
    for (index_t i = 0; i < n; ++i) {
      ASSERT_EQ(whole[i], reduced<float>(*world, Op::sum, i)) << i;
      ASSERT_EQ(in_place[i], whole[i]) << i;
    }
  }
}

// MPI combines numbers that it does not know by functions on the host: where that may not
// read the device's memory they get copies, and others do not.
TEST(CommunicatorStaging, NarrowSumsOfADeviceGoThroughTheHost) {
  for (const bool reads : {true, false}) {
    MpiOptions options = variants()[0].options;
    options.host_reads_device = reads;
    Group world(make_mpi_world(options));
    if (world.size() == 1) return;
    std::vector<float> wide(100, 1.0f);
    std::vector<bf16> narrow(100, bf16(1.0f));
    world.all_reduce(Exec(), span(wide));
    EXPECT_EQ(world.staging_bytes(), 0u);
    world.all_reduce(Exec(), span(narrow));
    EXPECT_EQ(world.staging_bytes(), reads ? 0u : 200u);
    EXPECT_EQ(as_float(narrow[99]), static_cast<float>(world.size()));
  }
}

// Messages under way together are so for as long as one of them is, not for the sum of
// their times; a rank that does nothing beside them is busy with them all that time.
TEST(CommunicatorTime, UnderWayIsCountedOnce) {
  Group on_device(make_mpi_world(variants()[0].options));
  Group* const world = &on_device;
  constexpr int kMessages = 8;
  std::vector<std::vector<float>> data(kMessages, std::vector<float>(1 << 18, 1.0f));
  world->control().barrier();
  world->reset_traffic();
  const auto start = Clock::now();
  std::vector<Request> requests;
  for (auto& one : data) requests.push_back(world->start_all_reduce(Exec(), span(one)));
  world->control().progress();
  for (Request& request : requests) request.wait(Exec());
  const double spent = std::chrono::duration<double>(Clock::now() - start).count();
  const Traffic& traffic = world->traffic();
  if (world->size() == 1) {
    EXPECT_EQ(traffic.under_way_seconds, 0.0);
    return;
  }
  EXPECT_GT(traffic.under_way_seconds, 0.0);
  EXPECT_LE(traffic.under_way_seconds, spent);
  // But for what lies between the calls.
  EXPECT_GE(traffic.seconds + traffic.progress_seconds, 0.6 * traffic.under_way_seconds);
  EXPECT_LE(traffic.seconds + traffic.progress_seconds, spent);
}

// A pass that only finds out sizes sends nothing: ranks need not even agree.
TEST(CommunicatorShapeOnly, SendsNothing) {
  Group on_device(make_mpi_world(variants()[0].options));
  Group* const world = &on_device;
  if (world->rank() == 0) {
    world->all_reduce(Exec::shape_only(), Span{nullptr, 1000, DType::float32});
  }
  EXPECT_EQ(world->traffic().calls, 0);
}

}  // namespace
}  // namespace trireme::comm
