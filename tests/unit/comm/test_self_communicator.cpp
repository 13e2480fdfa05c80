// A group of one: outputs are copies of inputs, everything else leaves data alone.
#include "comm/self_communicator.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "comm/rank_grid.hpp"

namespace trireme::comm {
namespace {

TEST(SelfCommunicatorCollectives, CopyOrLeave) {
  const auto self = make_self_communicator("alone");
  EXPECT_EQ(self->size(), 1);
  EXPECT_EQ(self->rank(), 0);
  EXPECT_EQ(self->name(), "alone");
  EXPECT_EQ(self->native_handle(), nullptr);
  Group group(self);
  const Exec exec;
  for (const index_t n : {1, 31, 257}) {
    std::vector<float> in(static_cast<std::size_t>(n));
    std::iota(in.begin(), in.end(), 1.0f);
    const auto start = in;
    const Span span{in.data(), n, DType::float32};
    group.all_reduce(exec, span);
    group.broadcast(exec, span, 0);
    group.all_gather(exec, span, span);
    group.reduce_scatter(exec, span, span);
    EXPECT_EQ(in, start);
    using Collective = void (*)(Group&, const Exec&, ConstSpan, Span);
    for (const Collective collective :
         {Collective{[](Group&comm, const Exec&e, ConstSpan i, Span o) {
            comm.all_gather(e, i, o);
          }},
          Collective{[](Group&comm, const Exec&e, ConstSpan i, Span o) {
            comm.reduce_scatter(e, i, o, Op::max);
          }},
          Collective{[](Group&comm, const Exec&e, ConstSpan i, Span o) {
            comm.all_to_all(e, i, o);
          }}}) {
      std::vector<float> out(start.size(), -1.0f);
      collective(group, exec, span, {out.data(), n, DType::float32});
      EXPECT_EQ(out, start);
    }
  }
}

TEST(SelfCommunicatorViews, SpanOfViews) {
  const DeviceArray<float> data("data", 5);
  const View2<float> matrix(data.data(), 1, 5);
  EXPECT_EQ(span_of(matrix).count, 5);
  EXPECT_EQ(span_of(View1<const float>(data)).dtype, DType::float32);
  EXPECT_EQ(span_of(matrix).bytes(), 20u);
  const auto strided = Kokkos::subview(View2<float>(data.data(), 2, 2), Kokkos::ALL, 0);
  EXPECT_THROW(span_of(strided), Error);
}

TEST(SelfCommunicatorHostValues, AreTheirOwn) {
  const auto self = make_self_communicator("alone");
  EXPECT_EQ(self->all_reduce(2.5), 2.5);
  EXPECT_EQ(self->all_reduce(std::int64_t{7}, Op::min), 7);
  EXPECT_EQ(self->exclusive_scan(9), 0);
  EXPECT_EQ(self->gather(std::string("host")), std::vector<std::string>{"host"});
  std::string text = "text";
  self->broadcast(text);
  EXPECT_EQ(text, "text");
}

TEST(SelfCommunicatorGroups, GridOfOne) {
  const RankGrid grid(make_self_communicator("world"), GridShape{});
  EXPECT_EQ(grid.coordinates(), Coordinates{});
  const ProcessGroups& groups = grid.groups();
  EXPECT_EQ(groups.world->size(), 1);
  EXPECT_EQ(groups.all().size(), 5u);
  for (const Group* group : groups.all()) EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(groups.model->name(), "model");
  EXPECT_EQ(groups.world->split(-1, 0, "none"), nullptr);
}

TEST(SelfCommunicatorErrors, MessagesToOneself) {
  Group self(make_self_communicator("alone"));
  float x = 0;
  EXPECT_THROW(self.send(Exec(), ConstSpan{&x, 1, DType::float32}, 0), Error);
  EXPECT_THROW(self.recv(Exec(), Span{&x, 1, DType::float32}, 0), Error);
  EXPECT_THROW(self.broadcast(Exec(), Span{&x, 1, DType::float32}, 1), Error);
}

}  // namespace
}  // namespace trireme::comm
