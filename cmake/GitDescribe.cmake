# Run at every build (cmake -P), so that a commit needs no new configuration: writes OUTPUT, a
# source that says which state of SOURCE is being built. It is only touched where its text
# changes, so that nothing is compiled anew for an unchanged state.
cmake_minimum_required(VERSION 3.25)
set(description "unknown")
find_program(GIT git)
if(GIT)
  # Only where SOURCE itself is a clone: a source archive that is unpacked inside another
  # project's clone is not of that project's commit. Files of another owner are no danger here.
  set(git ${GIT} -C ${SOURCE} -c safe.directory=* --no-optional-locks)
  execute_process(COMMAND ${git} rev-parse --show-prefix RESULT_VARIABLE status
                  OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND prefix STREQUAL "")
    execute_process(COMMAND ${git} describe --always --dirty RESULT_VARIABLE status
                    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(status EQUAL 0 AND found MATCHES "^[-+./0-9A-Z_a-z]+$")
      set(description ${found})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"// Written at the build by cmake/GitDescribe.cmake.
#include \"base/version.hpp\"

namespace trireme {
const char* git_describe() {
  return \"${description}\";
}
}  // namespace trireme
")
