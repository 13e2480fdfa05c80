// The planner's predictions against what papers have published.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::machine_named;
using test::predict;

constexpr double kTera = 1e12;

TEST(Published, Print) {
  struct Row { const char* name; Case c; double want; };
  const std::vector<Row> rows = {
    {"1.7B", {.layers=24,.hidden=2304,.heads=24,.tensor=1,.pipeline=1,.chunks=1,.data=32,.micro=16,.global=512},137},
    {"3.6B", {.layers=30,.hidden=3072,.heads=32,.tensor=2,.pipeline=1,.chunks=1,.data=32,.micro=16,.global=512},138},
    {"7.5B", {.layers=36,.hidden=4096,.heads=32,.tensor=4,.pipeline=1,.chunks=1,.data=32,.micro=16,.global=512},142},
    {"18.4B", {.layers=40,.hidden=6144,.heads=48,.tensor=8,.pipeline=1,.chunks=1,.data=32,.micro=8,.global=1024},135},
    {"39.1B", {.layers=48,.hidden=8192,.heads=64,.tensor=8,.pipeline=2,.chunks=1,.data=32,.micro=4,.global=1536},138},
    {"76.1B", {.layers=60,.hidden=10240,.heads=80,.tensor=8,.pipeline=4,.chunks=3,.data=32,.micro=2,.global=1792},140},
    {"145.6B", {.layers=80,.hidden=12288,.heads=96,.tensor=8,.pipeline=8,.chunks=2,.data=24,.micro=2,.global=2304},148},
    {"310.1B", {.layers=96,.hidden=16384,.heads=128,.tensor=8,.pipeline=16,.chunks=2,.data=15,.micro=1,.global=2160},155},
    {"529.6B", {.layers=105,.hidden=20480,.heads=128,.tensor=8,.pipeline=35,.chunks=3,.data=9,.micro=1,.global=2520},163},
    {"1008B", {.layers=128,.hidden=25600,.heads=160,.tensor=8,.pipeline=64,.chunks=1,.data=6,.micro=1,.global=3072},163}};
  const Machine machine = machine_named("selene");
  for (const Row& row : rows) {
    const Prediction p = predict(machine, row.c);
    const StepParts& s = p.parts;
    std::printf("%-8s %5.0f %6.1f %+5.1f%%  | comp %.2f rec %.2f tp %.2f pp %.2f bub %.2f dp %.2f opt %.2f oth %.2f = %.2f\n", row.name, row.want,
      p.hardware_rate()/kTera, 100*(p.hardware_rate()/kTera/row.want-1), s.compute, s.recompute, s.tensor_messages, s.stage_messages, s.bubble, s.data_messages, s.optimizer, s.other, p.seconds());
  }
}

}  // namespace
}  // namespace trireme::plan
