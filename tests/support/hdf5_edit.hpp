// tests/support/hdf5_edit.hpp — puts into HDF5 files what none of our writers would:
// links that lead elsewhere, data in other files, objects that are gone.
#ifndef TRIREME_TESTS_SUPPORT_HDF5_EDIT_HPP_
#define TRIREME_TESTS_SUPPORT_HDF5_EDIT_HPP_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::test {

// Each opens the file, changes it and closes it; std::runtime_error where it cannot. What
// has the name already is replaced.
void make_soft_link(const std::filesystem::path& file, const std::string& name,
                    const std::string& target);
void make_external_link(const std::filesystem::path& file, const std::string& name,
                        const std::string& other_file, const std::string& target);
// Of so many floats, whose bytes are those of another file from its beginning.
void make_external_dataset(const std::filesystem::path& file, const std::string& name,
                           const std::string& other_file, std::uint64_t count);
// Of so many bytes, in chunks of which none is stored.
void make_hollow_dataset(const std::filesystem::path& file, const std::string& name,
                         std::uint64_t bytes);
// Several texts where one is expected.
void make_texts(const std::filesystem::path& file, const std::string& name,
                std::uint64_t count);
// An attribute of the file, or a dataset, of unsigned 64-bit numbers.
void make_attribute(const std::filesystem::path& file, const std::string& name,
                    std::uint64_t value);
void make_integers(const std::filesystem::path& file, const std::string& name,
                   const std::vector<std::uint64_t>& values);
// Of the file, or of the group `of`.
void remove_attribute(const std::filesystem::path& file, const std::string& name,
                      const std::string& of = "/");
void remove_object(const std::filesystem::path& file, const std::string& name);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_HDF5_EDIT_HPP_
