// Saving and reading: any layout reads any other, the virtual datasets show the same, the
// state comes back, and failures leave nothing under a final name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/late_queue.hpp"
#include "io/hdf5.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Save, AnyLayoutReadsAnyLayout) {
  for (const int writers : {1, 2, 3}) {
    const test::Scratch scratch;
    const ckpt::Saved saved = test::save_as(writers, scratch.path(), 1000);
    EXPECT_EQ(saved.path, scratch / "step_00001000");
    EXPECT_TRUE(ckpt::problems_of(saved.path, ckpt::Depth::checksums).empty());
    const ckpt::CheckpointReader reader(saved.path);
    for (const int readers : {1, 2, 3, 6}) {
      for (int rank = 0; rank < readers; ++rank) {
        test::RankMemory memory(rank, readers, false);
        memory.read(reader);
        EXPECT_EQ(memory.arrays(), test::RankMemory(rank, readers, true).arrays())
            << writers << " -> " << rank << "/" << readers;
      }
    }
  }
}

// What any HDF5 tool sees: whole tensors, whatever the writers.
TEST(Save, VirtualDatasetsShowWholeTensors) {
  for (const int writers : {1, 2, 3}) {
    const test::Scratch scratch;
    const ckpt::Saved saved = test::save_as(writers, scratch.path(), 5);
    const io::H5File index = io::H5File::open(saved.path / "index.h5");
    const std::vector<test::Tensor> tensors = test::tensors_of(0, 1);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const io::H5Dataset dataset = index.dataset(tensors[i].name);
      EXPECT_EQ(dataset.shape(), tensors[i].shard.global_shape);
      EXPECT_EQ(dataset.read<float>(), test::RankMemory(0, 1, true).arrays()[i]) << i;
    }
  }
}

TEST(Save, StateComesBack) {
  const test::Scratch scratch;
  const ckpt::Saved saved = test::save_as(2, scratch.path(), 1000);
  EXPECT_EQ(ckpt::CheckpointReader(saved.path).state(), test::sample_state(1000));
  EXPECT_EQ(ckpt::CheckpointReader(scratch / "latest").state().step, 1000);
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "step_00001000");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("latest", "step_00001000"));
  EXPECT_THAT(names_in(saved.path), ElementsAre("index.h5", "manifest.json",
                                                "shard_00000.h5", "shard_00001.h5"));
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) bytes += entry.file_size();
  EXPECT_EQ(saved.bytes, bytes);
}

// But for the name of the save, which is another each time.
TEST(Save, SameStateSameBytes) {
  const test::Scratch scratch;
  const std::string save(32, 'c');
  test::save_as(2, scratch / "a", 5, {}, save);
  test::save_as(2, scratch / "b", 5, {}, save);
  for (const char* name :
       {"index.h5", "manifest.json", "shard_00000.h5", "shard_00001.h5"}) {
    EXPECT_EQ(test::slurp(scratch / "a/step_00000005" / name),
              test::slurp(scratch / "b/step_00000005" / name))
        << name;
  }
}

TEST(Save, SameStepAgainReplaces) {
  const test::Scratch scratch;
  test::save_as(1, scratch.path(), 5);
  test::save_as(3, scratch.path(), 5);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("latest", "step_00000005"));
  EXPECT_TRUE(fs::exists(scratch / "step_00000005/shard_00002.h5"));
  EXPECT_EQ(ckpt::peek_generation(scratch / "step_00000005"), 2);
}

TEST(Save, StaleTemporariesAreRemoved) {
  const test::Scratch scratch;
  fs::create_directories(scratch / ".step_00000004.tmp-host-1");
  test::spill(scratch / ".step_00000004.tmp-host-1/shard_00000.h5", "half");
  fs::create_symlink("nowhere", scratch / ".latest.tmp-host-1");
  test::spill(scratch / "notes.txt", "mine");
  test::save_as(1, scratch.path(), 5);
  EXPECT_THAT(names_in(scratch.path()),
              ElementsAre("latest", "notes.txt", "step_00000005"));
}

TEST(Save, ByCommunicator) {
  const test::Scratch scratch;
  const auto comm = comm::make_self_communicator("world");
  const test::RankMemory memory(0, 1, true);
  std::vector<std::string> phases;
  ckpt::SaveOptions options;
  options.hook = [&](std::string_view phase) {
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase);
    return Fault::none;
  };
  const ckpt::Saved saved =
      ckpt::save_checkpoint(Exec(), *comm, scratch / "new/checkpoints",
                            test::sample_state(7), memory.parts(), options);
  EXPECT_EQ(saved.path, scratch / "new/checkpoints/step_00000007");
  test::RankMemory back(0, 1, false);
  back.read(ckpt::CheckpointReader(saved.path));
  EXPECT_EQ(back.arrays(), memory.arrays());
  std::vector<std::string> expected;
  for (const FaultPhase& phase : ckpt::save_phases()) expected.push_back(phase.name);
  std::erase(expected, "ckpt.purge");  // nothing to purge yet
  EXPECT_EQ(phases, expected);
}

TEST(Save, SnapshotIsIndependent) {
  const test::Scratch scratch;
  ckpt::Snapshot snapshot;
  {
    const test::RankMemory memory(1, 2, true);
    snapshot.take(Exec(), memory.parts());
  }
  const ckpt::Staging staging = ckpt::begin_save(scratch.path(), test::sample_state(3));
  std::vector<ckpt::Manifest> shards = {
      test::write_shard(Exec(), staging, 0, test::RankMemory(0, 2, true).parts()),
      test::write_shard(Exec(), staging, 1, snapshot.parts())};
  const auto saved =
      ckpt::publish(scratch.path(), staging, test::sample_state(3), shards);
  test::RankMemory back(0, 1, false);
  back.read(ckpt::CheckpointReader(saved.path));
  EXPECT_EQ(back.arrays(), test::RankMemory(0, 1, true).arrays());
}

// It is taken beside what is launched next, which waits before it writes.
TEST(Save, SnapshotIsOfWhatWasLaunchedBefore) {
  const test::Scratch scratch;
  const Exec exec;
  make_late(exec);
  test::DeviceMemory memory(1, 2);
  ckpt::Snapshot snapshot;
  snapshot.take(exec, memory.parts());
  snapshot.taken().hold_up(exec);
  memory.overwrite(exec);
  snapshot.taken().wait();
  const ckpt::Staging staging = ckpt::begin_save(scratch.path(), test::sample_state(3));
  std::vector<ckpt::Manifest> shards = {
      test::write_shard(exec, staging, 0, test::DeviceMemory(0, 2).parts()),
      test::write_shard(exec, staging, 1, snapshot.parts())};
  const auto saved =
      ckpt::publish(scratch.path(), staging, test::sample_state(3), shards);
  test::RankMemory back(0, 1, false);
  back.read(ckpt::CheckpointReader(saved.path));
  EXPECT_EQ(back.arrays(), test::RankMemory(0, 1, true).arrays());
}

TEST(Save, ForeignModelsAreRefused) {
  const test::Scratch scratch;
  const ckpt::CheckpointReader reader(test::save_as(1, scratch.path(), 5).path);
  std::vector<double> array(100);
  const auto error_of = [&](const std::string& name, DType dtype, const Shape& shape,
                            ckpt::Conversion conversion = ckpt::Conversion::exact) {
    return message_of<InputError>([&] {
      reader.read(Exec(),
                  {name, dtype, shape, ckpt::regions_of(replicated(shape)),
                   reinterpret_cast<std::byte*>(array.data()), true},
                  conversion);
    });
  };
  EXPECT_THAT(error_of("model/none", DType::float32, {5}),
              AllOf(HasSubstr("no tensor 'model/none'"), HasSubstr("another model")));
  EXPECT_THAT(error_of("model/norm", DType::float32, {6}),
              HasSubstr("has shape (5); the model expects (6)"));
  EXPECT_THAT(error_of("model/norm", DType::float64, {5}),
              HasSubstr("holds float32; expected float64"));
  EXPECT_EQ(error_of("model/norm", DType::float64, {5}, ckpt::Conversion::floating),
            "(nothing thrown)");
  EXPECT_EQ(array[4], 404000.0);
  EXPECT_EQ(reader.read_whole("model/norm")[3], 403000.0f);
}

TEST(Save, BlocksMustCoverTheModel) {
  const test::Scratch scratch;
  const ckpt::Staging staging = ckpt::begin_save(scratch.path(), test::sample_state(3));
  const std::vector<ckpt::Manifest> shards = {
      test::write_shard(Exec(), staging, 0, test::RankMemory(0, 2, true).parts())};
  EXPECT_THAT(message_of<Error>([&] {
                ckpt::publish(scratch.path(), staging, test::sample_state(3), shards);
              }),
              HasSubstr("of its 35 elements"));
  EXPECT_FALSE(fs::exists(scratch / "step_00000003"));
}

TEST(Save, FullDisk) {
  const auto comm = comm::make_self_communicator("world");
  const std::vector<float> big(1 << 19);  // 2 MiB
  test::on_full_disks(1 << 20, [&](const test::FullDisk& disk) {
    const fs::path directory = disk / "checkpoints";
    const auto save = [&](std::int64_t step, index_t rows) {
      const Shape shape = {rows, 64};
      const std::vector<ckpt::TensorPart> parts = {
          {"model/big", DType::float32, shape, ckpt::regions_of(replicated(shape)),
           reinterpret_cast<const std::byte*>(big.data()), true}};
      return message_of<Error>([&] {
        ckpt::save_checkpoint(Exec(), *comm, directory, test::sample_state(step), parts);
      });
    };
    EXPECT_EQ(save(1, 1024), "(nothing thrown)");
    EXPECT_THAT(save(2, 8192), AllOf(HasSubstr("rank 0: "), HasSubstr(disk.cause()),
                                     HasSubstr(disk.advice())));
    EXPECT_THAT(names_in(directory), ElementsAre("latest", "step_00000001"));
    EXPECT_EQ(ckpt::find_newest(directory).found,
              fs::canonical(directory / "step_00000001"));
    disk.fill();  // to the last page: even the first byte of metadata finds no place
    EXPECT_THAT(save(3, 1), HasSubstr(disk.cause()));
    EXPECT_THAT(names_in(directory), ElementsAre("latest", "step_00000001"));
    disk.relieve();
    EXPECT_EQ(save(4, 1), "(nothing thrown)");
  });
}

TEST(Save, UnwritableDirectoryIsNamed) {
  const test::Scratch scratch;
  test::spill(scratch / "file", "");
  const auto comm = comm::make_self_communicator("world");
  EXPECT_THAT(message_of<Error>([&] {
                ckpt::save_checkpoint(Exec(), *comm, scratch / "file/checkpoints",
                                      test::sample_state(1),
                                      test::RankMemory(0, 1, true).parts());
              }),
              HasSubstr("cannot create the directory"));
}

}  // namespace
}  // namespace trireme
