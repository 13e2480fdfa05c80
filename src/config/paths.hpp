// config/paths.hpp — paths as decks have them: a home directory and variables of the
// environment in them are filled in when the deck is read. Relative paths stay so:
// relative to the working directory.
#ifndef TRIREME_CONFIG_PATHS_HPP_
#define TRIREME_CONFIG_PATHS_HPP_

#include <string>

#include "config/text.hpp"

namespace trireme::config {

// "~" and "~user" at the beginning, "$NAME" and "${NAME}" anywhere; "$$" is a dollar
// sign. No value for an unknown user, and for a variable that is not set or empty: a path
// that is shorter by it would be another one.
Parsed<std::string> expand_path(const std::string& text);

// The text that stands for this path, wherever it is read: expand_path gives the same
// file.
std::string path_text(const std::string& path);

// The path that a resolved deck's text stands for. There is nothing to fill in: versions
// before variables were known wrote a dollar sign as itself.
std::string written_path(const std::string& text);

// The text with its variables that only jobs have (SLURM_TMPDIR, SLURM_JOB_ID), and this
// process has not, as literal words: outside of a job nobody can say which file is meant.
// `first`: the name of the first of them, empty where there is none.
struct TextBeforeJob {
  std::string text, first;
};
TextBeforeJob leave_job_variables(const std::string& text);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_PATHS_HPP_
