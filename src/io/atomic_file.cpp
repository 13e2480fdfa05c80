// io/atomic_file.cpp — temporary names, fsync and rename; see atomic_file.hpp.
//
// Two things are easily forgotten here. A rename is on disk only when the directory that
// holds the name has been synced. And a destination may be something that a rename would
// destroy without need, a device such as /dev/null or an empty directory: these are asked
// about before anything is written.
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/temporary_name.hpp"

namespace trireme::io {

namespace {

Path directory_of(const Path& path) {
  const Path parent = path.parent_path();
  return parent.empty() ? Path(".") : parent;
}

}  // namespace

AtomicFile::AtomicFile(Path path)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  TRIREME_REQUIRE_INPUT(!std::filesystem::is_directory(path_),
                        "cannot write '{}': it is a directory; name a file",
                        path_.string());
  // The rename would put a file in the place of the device.
  TRIREME_REQUIRE_INPUT(!is_stream(path_),
                        "cannot write '{}': it is a device or a pipe; name a file",
                        path_.string());
}

AtomicFile::~AtomicFile() {
  if (committed_) return;
  writer_.reset();
  std::error_code ignored;  // an exception is under way, most often
  std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  if (!writer_) {
    writer_ = std::make_unique<FileWriter>(temporary_, FileWriter::Mode::create);
  }
  writer_->write_at(written_, data, bytes);
  written_ += bytes;
}

void AtomicFile::commit() {
  if (!writer_) {
    const auto mode = std::filesystem::exists(temporary_) ? FileWriter::Mode::existing
                                                          : FileWriter::Mode::create;
    writer_ = std::make_unique<FileWriter>(temporary_, mode);
  }
  writer_->sync();
  writer_->close();
  rename_synced(temporary_, path_);
  committed_ = true;
}

StagedDirectory::StagedDirectory(Path path)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  io::create_directories(directory_of(path_));
  io::create_directory(temporary_);
}

StagedDirectory::~StagedDirectory() {
  if (committed_) return;
  std::error_code ignored;  // an exception is under way, most often
  std::filesystem::remove_all(temporary_, ignored);
}

void StagedDirectory::commit() {
  // rename(2) would replace an empty directory.
  TRIREME_REQUIRE(!std::filesystem::exists(std::filesystem::symlink_status(path_)),
                  "'{}' has come into being meanwhile; it is not replaced",
                  path_.string());
  sync_directory(temporary_);
  rename_synced(temporary_, path_);
  committed_ = true;
}

namespace {

std::uint64_t bytes_in(const Path& path) {
  std::error_code ignored;
  std::uint64_t bytes = 0;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored))) {
    bytes = std::filesystem::file_size(path, ignored);
    return ignored ? 0 : bytes;
  }
  for (std::filesystem::recursive_directory_iterator it(path, ignored), end;
       !ignored && it != end; it.increment(ignored)) {
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

}  // namespace

std::vector<std::string> remove_leftovers_of(const Path& path) {
  const std::string wanted = path.filename();
  const auto is_wanted = [&](std::string_view name) { return name == wanted; };
  std::vector<std::string> lines;
  for (const Path& leftover : temporaries_in(directory_of(path), is_wanted)) {
    const auto owner = owner_of_temporary(leftover.filename().string());
    if (!owner) continue;
    const std::string what =
        fmt::format("'{}' ({}, of process {} on {})", leftover.string(),
                    human_bytes(bytes_in(leftover)), owner->process, owner->host);
    if (may_be_alive(*owner)) {
      lines.push_back(fmt::format(
          "{} is half of an output of this name: another process is writing it, or was "
          "killed; remove it if nobody is",
          what));
      continue;
    }
    std::error_code error;
    std::filesystem::remove_all(leftover, error);
    lines.push_back(error ? system_message("cannot remove", leftover, error.value())
                          : fmt::format("removed {}, which a killed process left", what));
  }
  return lines;
}

void sync_file(const Path& path) {
  FileWriter writer(path, FileWriter::Mode::existing);
  writer.sync();
  writer.close();
}

void sync_directory(const Path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open())
    throw Error(system_message("cannot open the directory", path, errno));
  const int status = ::fsync(descriptor);
  // Some network file systems know no fsync of a directory; their renames are
  // synchronous.
  if (status != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw Error(system_message("cannot write to stable storage", path, errno));
  }
}

void rename_synced(const Path& from, const Path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw Error(
        system_message(fmt::format("cannot rename '{}' to", from.string()), to, errno));
  }
  sync_directory(directory_of(to));
}

void swap_symlink(const Path& target, const Path& link) {
  const Path temporary = temporary_name(link);
  std::error_code error;
  std::filesystem::create_symlink(target, temporary, error);
  if (error) {
    throw Error(system_message("cannot make the symbolic link", link, error.value()));
  }
  try {
    rename_synced(temporary, link);
  } catch (const Error&) {
    std::filesystem::remove(temporary, error);
    throw;
  }
}

void require_writable(const Path& path) {
  const Path directory = path.parent_path();
  std::error_code ignored;  // then the probe says more
  TRIREME_REQUIRE_INPUT(
      directory.empty() || std::filesystem::exists(directory, ignored),
      "output '{}': there is no directory '{}'; make it, or name another", path.string(),
      directory.string());
  try {
    AtomicFile probe(path);
    probe.write(nullptr, 0);
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw InputError(fmt::format("output '{}': {}", path.string(), error.what()));
  }
}

}  // namespace trireme::io
