// comm/mpi_group.hpp — what the control side and the transport of one group of ranks
// share over MPI: the MPI communicator, and the way in which calls are waited for.
//
// All groups of one world share an MpiWorld, so that whoever waits moves the messages of
// all of them on. Included by the sources of comm that call MPI, and by no others.
#ifndef TRIREME_COMM_MPI_GROUP_HPP_
#define TRIREME_COMM_MPI_GROUP_HPP_

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "comm/adaptive_wait.hpp"
#include "comm/device_watch.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme::comm {

void mpi_check(int code, const char* call);
MPI_Datatype mpi_type(DType type);

// `count` elements as an MPI (type, count) pair, however many they are.
class MpiMessage {
 public:
  MpiMessage(DType dtype, index_t count, index_t max_count);
  ~MpiMessage();
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;

  MPI_Datatype type() const { return type_; }
  int count() const { return count_; }

 private:
  MPI_Datatype type_;
  int count_ = 0;
  bool owned_ = false;
};

// Who began requests, and is told when progress() finds that one is complete.
class MpiOwner {
 public:
  virtual ~MpiOwner() = default;
  virtual void close(int operation, Clock::time_point now) = 0;
  virtual void note_progress(double seconds) = 0;
};

// What all groups of one world share.
struct MpiWorld {
  MpiOptions options;
  WaitPolicy wait = WaitPolicy::spin;
  TransportKind transport = TransportKind::mpi;
  AdaptiveWait adaptive;
  double timeout = 0.0;
  struct UnderWay {
    MPI_Request* request;
    MPI_Status* status;
    MpiOwner* owner;
    int operation;
  };
  std::vector<UnderWay> under_way;            // of all groups, oldest first
  std::vector<MpiOwner*> owners_in_progress;  // for progress(); kept
  std::uint64_t progress_calls = 0;
  MPI_Op narrow[2][3];  // bf16, fp16; sum, max, min
  bool checks_calls = false;
  bool gave_up = false;
  std::shared_ptr<Recorders> recorders = std::make_shared<Recorders>();
  // Looks after what the device carries; null where it carries nothing.
  std::unique_ptr<DeviceWatch> watch;

  explicit MpiWorld(const MpiOptions& given);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  MPI_Op mpi_op(DType type, Op op) const;
  void progress();
  // Takes a request off progress()'s list; false where that has seen it complete.
  bool forget(const MPI_Request& request);
};

// One MPI communicator, and who of it this is.
struct MpiGroup {
  // Takes the communicator over and frees it.
  MpiGroup(MPI_Comm comm_in, std::string name_in, std::shared_ptr<MpiWorld> world_in);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  // Throws where an MPI call of this group has failed.
  void started(int code, const char* call, Site site = "") const;
  // Polls until the request is done. `number`: of the call in this group.
  void wait(MPI_Request& request, const char* call, std::int64_t number, Site site = "",
            MPI_Status* status = MPI_STATUS_IGNORE) const;
  index_t max_count() const { return world->options.max_count; }

  MPI_Comm comm;
  std::string name;
  std::shared_ptr<MpiWorld> world;
  int rank = 0;
  int size = 0;
};

// " (site)", or nothing where the call has none.
std::string of_site(Site site);

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiGroup> group,
                                              const Communicator& control);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_MPI_GROUP_HPP_
