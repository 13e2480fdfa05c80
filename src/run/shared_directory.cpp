// run/shared_directory.cpp — see shared_directory.hpp.
#include "run/shared_directory.hpp"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/temporary_name.hpp"
#include "comm/on_ranks.hpp"

namespace trireme::run {

namespace fs = std::filesystem;

// Collective: what rank 0 writes there must be there for the others, who write there,
// too.
void require_seen_by_all(comm::Communicator& world, const io::Path& directory,
                         std::string_view what) {
  if (world.size() == 1) return;
  // A network file system may be late.
  constexpr auto kPatience = std::chrono::seconds(10);
  constexpr auto kNap = std::chrono::milliseconds(50);
  const io::Path seen = directory / comm::on_first_rank(world, [&] {
                          const io::Path name = temporary_name("seen").filename();
                          io::write_file(directory / name, "");
                          return name.string();
                        });
  const auto start = std::chrono::steady_clock::now();
  std::error_code ignored;
  bool is_there = fs::exists(seen, ignored);
  while (!is_there && std::chrono::steady_clock::now() - start < kPatience) {
    std::this_thread::sleep_for(kNap);
    is_there = fs::exists(seen, ignored);
  }
  const std::vector<std::string> blind =
      world.gather(is_there ? std::string() : host_name());
  comm::on_first_rank(world, [&] {
    fs::remove(seen, ignored);
    for (std::size_t rank = 0; rank < blind.size(); ++rank) {
      TRIREME_REQUIRE_INPUT(blind[rank].empty(),
                            "the {} '{}' is not the same for all ranks: rank {} on {} "
                            "does not see what rank 0 wrote there. Name one on a file "
                            "system that all nodes share, by its whole path",
                            what, directory.string(), rank, blind[rank]);
    }
  });
}

}  // namespace trireme::run
