// tests/fuzz/targets.hpp — the readers of files that come from elsewhere, each as a
// function of an input's bytes.
//
// A target may throw InputError, which is how such a file is refused; anything else that
// ends it is a fault: another exception, a signal, a sanitizer's report, or no end.
#ifndef TRIREME_TESTS_FUZZ_TARGETS_HPP_
#define TRIREME_TESTS_FUZZ_TARGETS_HPP_

#include <string>
#include <vector>

namespace trireme::fuzz {

struct Target {
  std::string name;
  void (*read)(const std::string& input);
  // Files or directories below tests/ with inputs to begin with.
  std::vector<std::string> seeds;
  // What the format is made of.
  std::vector<std::string> words;
};

// Where targets put files: a directory of this process's own.
const std::string& scratch_directory();

void read_json(const std::string& input);
void read_deck(const std::string& input);
void read_tokenizer(const std::string& input);
void read_word_list(const std::string& input);
void read_sentence_piece(const std::string& input);
void read_vocabulary_size(const std::string& input);
void read_safetensors(const std::string& input);
void read_safetensors_index(const std::string& input);
void read_model_config(const std::string& input);
void read_megatron(const std::string& input);
void read_llm_c(const std::string& input);
void read_corpus(const std::string& input);
void read_manifest(const std::string& input);

// All of them.
const std::vector<Target>& targets();

}  // namespace trireme::fuzz

#endif  // TRIREME_TESTS_FUZZ_TARGETS_HPP_
