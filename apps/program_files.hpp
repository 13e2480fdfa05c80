// apps/program_files.hpp — where the program is, and what comes with it: bin/trireme and
// share/trireme/, in a build tree as in an installed one.
#ifndef TRIREME_APPS_PROGRAM_FILES_HPP_
#define TRIREME_APPS_PROGRAM_FILES_HPP_

#include <filesystem>

namespace trireme::apps {

// The executable; empty where the system does not say.
std::filesystem::path program_path();
// share/trireme beside its directory.
std::filesystem::path shared_files();

}  // namespace trireme::apps

#endif  // TRIREME_APPS_PROGRAM_FILES_HPP_
