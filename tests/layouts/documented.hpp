// tests/layouts/documented.hpp — what the scripts of docs make of something, which know
// nothing of the program.
#ifndef TRIREME_TESTS_LAYOUTS_DOCUMENTED_HPP_
#define TRIREME_TESTS_LAYOUTS_DOCUMENTED_HPP_

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/run_binary.hpp"

namespace trireme::test {

inline std::string docs() {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return std::string(source != nullptr ? source : ".") + "/docs";
}

// What the scripts' functions make of it: `expression` is Python.
inline nlohmann::json computed(const std::string& expression) {
  const RunResult result = run({"python3", "-B", "-c",
                                "import sys, json; sys.path.insert(0, sys.argv[1])\n"
                                "from random_numbers import *\n"
                                "from dropout_mask import mask\n"
                                "import samples\n"
                                "print(json.dumps(" +
                                    expression + "))",
                                docs()});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? nlohmann::json::parse(result.out) : nlohmann::json();
}

// What a script prints when it is called as its first lines say.
inline std::string printed(std::vector<std::string> arguments,
                           const std::string& script = "random_numbers.py") {
  arguments.insert(arguments.begin(), {"python3", "-B", docs() + "/" + script});
  const RunResult result = run(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_DOCUMENTED_HPP_
