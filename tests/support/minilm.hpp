// tests/support/minilm.hpp — all-MiniLM-L6-v2, a trained BERT of 6 layers, where
// tools/bootstrap --tests has put it, and what the oracle of tests/parity says of it.
#ifndef TRIREME_TESTS_SUPPORT_MINILM_HPP_
#define TRIREME_TESTS_SUPPORT_MINILM_HPP_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace trireme::test {

inline constexpr const char* kNoMiniLm =
    "NO all-MiniLM-L6-v2: run tools/bootstrap --tests, or set TRIREME_DEPS";

inline std::filesystem::path minilm_source() {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return source != nullptr ? source : ".";
}
// Empty where it is not there.
inline std::filesystem::path minilm_directory() {
  const char* deps = std::getenv("TRIREME_DEPS");
  const std::filesystem::path directory =
      (deps != nullptr ? std::filesystem::path(deps) : minilm_source() / ".deps") /
      "minilm";
  return std::filesystem::exists(directory / "model.safetensors")
             ? directory
             : std::filesystem::path();
}
// oracle.safetensors and texts.txt (tests/parity/make_minilm_fixtures.py).
inline std::filesystem::path minilm_fixture(const std::string& name) {
  return minilm_source() / "tests/parity/fixtures/minilm" / name;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_MINILM_HPP_
