// comm/mpi_group.cpp — waiting for MPI calls, and what MPI lacks: types of two bytes,
// counts beyond 32 bits.
//
// Control and transport of a group wait in one loop, MpiGroup::wait(): it polls, naps by
// the world's policy, shows signs of life and gives up at the limit. MpiWorld::progress()
// polls whatever is under way in any group, since MPI moves messages only while it is
// called.
#include "comm/mpi_group.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/timers.hpp"
#include "comm/narrow_reduce.hpp"
#include "comm/operation_board.hpp"

namespace trireme::comm {
namespace {

std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

template <class T, Op op>
void narrow_operation(void* in, void* inout, int* count, MPI_Datatype*) {
  narrow_reduce(op, static_cast<const T*>(in), static_cast<T*>(inout), *count);
}

template <class T>
void create_operations(MPI_Op* ops) {
  mpi_check(MPI_Op_create(&narrow_operation<T, Op::sum>, 1, &ops[0]), "MPI_Op_create");
  mpi_check(MPI_Op_create(&narrow_operation<T, Op::max>, 1, &ops[1]), "MPI_Op_create");
  mpi_check(MPI_Op_create(&narrow_operation<T, Op::min>, 1, &ops[2]), "MPI_Op_create");
}

}  // namespace

void mpi_check(int code, const char* call) {
  TRIREME_REQUIRE(code == MPI_SUCCESS, "{} failed: {}", call, mpi_text(code));
}

std::string of_site(Site site) {
  return *site == '\0' ? std::string() : fmt::format(" ({})", site);
}

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::bfloat16:
    case DType::float16:
    case DType::uint16:
      return MPI_UINT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::uint32:
      return MPI_UINT32_T;
    case DType::uint64:
      return MPI_UINT64_T;
  }
  throw Error("mpi_type: not a DType");
}

MpiMessage::MpiMessage(DType dtype, index_t count, index_t max_count)
    : type_(mpi_type(dtype)) {
  if (count <= max_count) {
    count_ = static_cast<int>(count);
    return;
  }
  // MPI counts with an int: the message becomes one element of a type that holds
  // everything, first whole runs of max_count elements and then the rest.
  const auto runs = static_cast<int>(count / max_count);
  const auto rest = static_cast<int>(count % max_count);
  MPI_Datatype run = MPI_DATATYPE_NULL;
  MPI_Datatype whole = MPI_DATATYPE_NULL;
  mpi_check(MPI_Type_contiguous(static_cast<int>(max_count), type_, &run),
            "MPI_Type_contiguous");
  const int lengths[2] = {runs, rest};
  const MPI_Aint places[2] = {
      0, static_cast<MPI_Aint>(runs) * max_count * static_cast<MPI_Aint>(size_of(dtype))};
  const MPI_Datatype types[2] = {run, type_};
  mpi_check(MPI_Type_create_struct(2, lengths, places, types, &whole),
            "MPI_Type_create_struct");
  mpi_check(MPI_Type_commit(&whole), "MPI_Type_commit");
  MPI_Type_free(&run);
  type_ = whole;
  count_ = 1;
  owned_ = true;
}

MpiMessage::~MpiMessage() {
  if (owned_) MPI_Type_free(&type_);  // pending calls keep what they need of it
}

MpiWorld::MpiWorld(const MpiOptions& given) : options(given) {
  under_way.reserve(64);
  owners_in_progress.reserve(8);
  create_operations<bf16>(narrow[0]);
  create_operations<fp16>(narrow[1]);
}

MpiWorld::~MpiWorld() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  for (auto& type : narrow) {
    for (MPI_Op& op : type) MPI_Op_free(&op);
  }
}

MPI_Op MpiWorld::mpi_op(DType type, Op op) const {
  const auto index = static_cast<std::size_t>(op);
  if (type == DType::bfloat16) return narrow[0][index];
  if (type == DType::float16) return narrow[1][index];
  const MPI_Op plain[] = {MPI_SUM, MPI_MAX, MPI_MIN};
  return plain[index];
}

void MpiWorld::progress() {
  // A rank that computes for long gives a sign of life here, as no call of MPI does it
  // for it.
  constexpr std::uint64_t kSignEvery = 16;
  OperationBoard* const board = recorders->board.get();
  if (board != nullptr && ++progress_calls % kSignEvery == 0) {
    board->give_sign(Clock::now());
  }
  if (under_way.empty()) return;
  std::optional<Region> region;
  if (recorders->timers != nullptr) {
    region.emplace(*recorders->timers, Section::communication, RegionLabel{.name = ""});
  }
  const auto begin = Clock::now();
  std::vector<MpiOwner*>& owners = owners_in_progress;
  owners.clear();
  for (const UnderWay& one : under_way) {
    if (std::find(owners.begin(), owners.end(), one.owner) == owners.end()) {
      owners.push_back(one.owner);
    }
  }
  std::erase_if(under_way, [&](const UnderWay& one) {
    int done = 0;  // one that is complete becomes MPI_REQUEST_NULL
    mpi_check(MPI_Test(one.request, &done, one.status), "progress of messages");
    if (done != 0) one.owner->close(one.operation, Clock::now());
    return done != 0;
  });
  // Each has a share: of who takes how much of it nobody knows, and all of it is once in
  // the accounts.
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (MpiOwner* owner : owners) {
    owner->note_progress(seconds / static_cast<double>(owners.size()));
  }
}

bool MpiWorld::forget(const MPI_Request& request) {
  return std::erase_if(under_way,
                       [&](const UnderWay& one) { return one.request == &request; }) > 0;
}

MpiGroup::MpiGroup(MPI_Comm comm_in, std::string name_in,
                   std::shared_ptr<MpiWorld> world_in)
    : comm(comm_in), name(std::move(name_in)), world(std::move(world_in)) {
  mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm_set_name(comm, name.c_str());
}

MpiGroup::~MpiGroup() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm);
}

void MpiGroup::started(int code, const char* call, Site site) const {
  TRIREME_REQUIRE(code == MPI_SUCCESS,
                  "{} in group '{}'{} failed on its rank {} of {}: {}", call, name,
                  of_site(site), rank, size, mpi_text(code));
}

void MpiGroup::wait(MPI_Request& request, const char* call, std::int64_t number,
                    Site site, MPI_Status* status) const {
  OperationBoard* const board = world->recorders->board.get();
  AdaptiveWait* const adaptive =
      world->wait == WaitPolicy::adaptive ? &world->adaptive : nullptr;
  if (adaptive != nullptr) adaptive->begin();
  Clock::time_point start{};
  std::int64_t naps_taken = 0;
  for (std::uint64_t polls = 1;; ++polls) {
    int done = 0;
    started(MPI_Test(&request, &done, status), call, site);
    if (done != 0) {
      if (adaptive != nullptr) adaptive->end();
      return;
    }
    const bool naps = adaptive != nullptr ? adaptive->next() == AdaptiveWait::Next::nap
                                          : world->wait == WaitPolicy::yield;
    if (naps) {
      const timespec nap{0, nap_nanoseconds(naps_taken++)};
      nanosleep(&nap, nullptr);
    }
    if (polls % 256 != 0) continue;
    // The watch counts on it that this thread is in no call of MPI when it ends the job.
    if (world->watch != nullptr) world->watch->require_whole();
    if (world->timeout <= 0.0 && board == nullptr) continue;
    const auto now = Clock::now();
    if (start == Clock::time_point{}) start = now;
    if (board != nullptr) board->give_sign(now);
    const double waited = std::chrono::duration<double>(now - start).count();
    if (world->timeout <= 0.0 || waited < world->timeout) continue;
    if (board != nullptr) board->report_hang(waited);
    world->gave_up = true;
    throw Error(fmt::format(
        "{} in group '{}'{} (call {} of this group): rank {} of {} waited {:.1f} "
        "s for the others. One of them has stopped, hangs or makes other "
        "calls; the limit is run.hang_timeout",
        call, name, of_site(site), number, rank, size, waited));
  }
}

}  // namespace trireme::comm
