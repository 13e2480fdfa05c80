// step/gemm_table_text.cpp — see gemm_table_text.hpp.
//
// Example of a line, of y = x W^T by the first of the library's five proposals:
//   {"type":"bfloat16","type_c":"bfloat16","transposes":"NT","m":8192,"n":768,"k":768,
//    "lda":768,"ldb":768,"ldc":768,"alignment":16,"algorithm":["0000000000000042", ...],
//    "about":"algorithm 66, ...","workspace_bytes":0,"proposal":0,"proposals":5,
//    "seconds":2.1e-05,"untimed_seconds":2.1e-05}
// What is read is trusted no further than it can be checked here. An algorithm is words
// that only its library can judge, which is asked before it computes by them. Times and
// what is there for people are carried along: nothing is decided by them again.
#include "step/gemm_table_text.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/checksum.hpp"
#include "io/json.hpp"

namespace trireme::step {

namespace {

using Json = nlohmann::ordered_json;
using kernels::GemmChoice;
using kernels::GemmLibrary;
using kernels::GemmTable;

constexpr int kFormat = 1;
constexpr const char* kKind = "trireme gemm table";
// Above any extent of a product; bytes of two of them multiplied are no overflow.
constexpr index_t kMostElements = index_t{1} << 30;
constexpr std::size_t kMostWorkspace = std::size_t{1} << 40;

template <class T>
void require_value(bool holds, const char* key, const T& value, const char* expected) {
  TRIREME_REQUIRE_INPUT(holds, "'{}' is {}; expected {}", key, value, expected);
}

DType product_type(const Json& json, const char* key) {
  const auto name = io::json_value<std::string>(json, key);
  for (const DType type :
       {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    if (name == name_of(type)) return type;
  }
  throw InputError(fmt::format(
      "'{}' is '{}'; expected float32, float64, bfloat16 or float16", key, name));
}

Json json_of(const ProductShape& shape) {
  Json json = {{"type", name_of(shape.type)},
               {"type_c", name_of(shape.type_c)},
               {"transposes", fmt::format("{}{}", shape.transpose_a ? 'T' : 'N',
                                          shape.transpose_b ? 'T' : 'N')},
               {"m", shape.m},
               {"n", shape.n},
               {"k", shape.k},
               {"lda", shape.lda},
               {"ldb", shape.ldb},
               {"ldc", shape.ldc},
               {"alignment", shape.alignment}};
  if (shape.has_epilogue()) {
    json["epilogue"] = {{"bias", shape.has_bias},
                        {"gelu", shape.has_gelu},
                        {"ld_kept", shape.ld_kept},
                        {"ld_residual", shape.ld_residual}};
  }
  return json;
}

// The distance between rows that are so many elements wide.
index_t leading_from(const Json& json, const char* key, index_t width) {
  const auto leading = io::json_value<index_t>(json, key);
  require_value(leading >= width && leading <= kMostElements, key, leading,
                fmt::format("{} or more, the width of a row", width).c_str());
  return leading;
}

void read_epilogue(const Json& json, ProductShape& shape) {
  shape.has_bias = io::json_value<bool>(json, "bias");
  shape.has_gelu = io::json_value<bool>(json, "gelu");
  const auto optional_leading = [&](const char* key) {
    const auto leading = io::json_value<index_t>(json, key);
    return leading == 0 ? 0 : leading_from(json, key, shape.n);
  };
  shape.ld_kept = optional_leading("ld_kept");
  shape.ld_residual = optional_leading("ld_residual");
  TRIREME_REQUIRE_INPUT(shape.has_epilogue(), "'epilogue' has nothing to do");
  TRIREME_REQUIRE_INPUT(shape.ld_kept == 0 || shape.has_gelu,
                        "'epilogue' keeps what no activation takes");
  TRIREME_REQUIRE_INPUT(shape.ld_residual == 0 || !shape.has_gelu,
                        "'epilogue' has an activation and a residual");
}

ProductShape shape_from(const Json& json) {
  ProductShape shape{.type = product_type(json, "type"),
                     .type_c = product_type(json, "type_c")};
  const auto transposes = io::json_value<std::string>(json, "transposes");
  const auto is_code = [](char c) { return c == 'N' || c == 'T'; };
  require_value(
      transposes.size() == 2 && is_code(transposes[0]) && is_code(transposes[1]),
      "transposes", transposes, "NN, NT, TN or TT");
  shape.transpose_a = transposes[0] == 'T';
  shape.transpose_b = transposes[1] == 'T';
  const auto extent_from = [&](const char* key) {
    const auto count = io::json_value<index_t>(json, key);
    require_value(count > 0 && count <= kMostElements, key, count, "a count from 1 on");
    return count;
  };
  shape.m = extent_from("m");
  shape.n = extent_from("n");
  shape.k = extent_from("k");
  shape.lda = leading_from(json, "lda", shape.transpose_a ? shape.m : shape.k);
  shape.ldb = leading_from(json, "ldb", shape.transpose_b ? shape.k : shape.n);
  shape.ldc = leading_from(json, "ldc", shape.n);
  shape.alignment = io::json_value<index_t>(json, "alignment");
  require_value(shape.alignment == 1 || shape.alignment == 2 || shape.alignment == 4 ||
                    shape.alignment == 8 || shape.alignment == 16,
                "alignment", shape.alignment, "1, 2, 4, 8 or 16");
  if (json.contains("epilogue")) read_epilogue(json["epilogue"], shape);
  return shape;
}

Json json_of(const ProductShape& shape, const GemmChoice& choice) {
  Json json = json_of(shape);
  if (choice.in_two_passes) {
    json["two_passes"] = true;
  } else {
    Json words = Json::array();
    for (const std::uint64_t word : choice.algorithm) words.push_back(io::to_hex(word));
    json["algorithm"] = std::move(words);
    json["about"] = choice.about;
    json["workspace_bytes"] = choice.workspace_bytes;
    json["proposal"] = choice.proposal;
  }
  json["proposals"] = choice.proposals;
  json["seconds"] = choice.seconds;
  json["untimed_seconds"] = choice.untimed_seconds;
  return json;
}

void read_algorithm(const Json& json, GemmChoice& choice) {
  const auto words = io::json_value<std::vector<std::string>>(json, "algorithm");
  TRIREME_REQUIRE_INPUT(words.size() == choice.algorithm.size(),
                        "'algorithm' has {}; expected {}",
                        format_plural(static_cast<std::int64_t>(words.size()), "word"),
                        choice.algorithm.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    try {
      choice.algorithm[i] = io::from_hex(words[i]);
    } catch (const InputError&) {
      throw InputError(fmt::format(
          "'algorithm' has a word '{}'; expected 16 hexadecimal digits", words[i]));
    }
  }
  choice.about = io::json_value<std::string>(json, "about");
  choice.workspace_bytes = io::json_value<std::uint64_t>(json, "workspace_bytes");
  require_value(choice.workspace_bytes <= kMostWorkspace, "workspace_bytes",
                choice.workspace_bytes, "what fits into a device");
  choice.proposal = io::json_value<int>(json, "proposal");
}

GemmChoice choice_from(const Json& json, const ProductShape& shape) {
  GemmChoice choice;
  choice.in_two_passes = json.contains("two_passes");
  if (choice.in_two_passes) {
    TRIREME_REQUIRE_INPUT(io::json_value<bool>(json, "two_passes") &&
                              shape.has_epilogue() && !json.contains("algorithm"),
                          "'two_passes' is of a product with an epilogue, in place of an "
                          "algorithm");
  } else {
    read_algorithm(json, choice);
  }
  choice.proposals = io::json_value<int>(json, "proposals");
  require_value(choice.proposal >= 0 && choice.proposal < choice.proposals, "proposal",
                choice.proposal, "one of the proposals");
  const auto time_from = [&](const char* key) {
    const auto seconds = io::json_value<double>(json, key);
    require_value(std::isfinite(seconds) && seconds >= 0.0, key, seconds,
                  "0 or more seconds");
    return seconds;
  };
  choice.seconds = time_from("seconds");
  choice.untimed_seconds = time_from("untimed_seconds");
  return choice;
}

template <class Entry>
std::string list_text(const std::vector<Entry>& entries) {
  std::string text = "[";
  const char* separator = "\n  ";
  for (const Entry& entry : entries) {
    text += separator + io::exact_json_text(entry);
    separator = ",\n  ";
  }
  return text + "\n]";
}

GemmLibrary library_from(const Json& json) {
  GemmLibrary library{.name = io::json_value<std::string>(json, "library"),
                      .device = io::json_value<std::string>(json, "device"),
                      .capability = io::json_value<std::string>(json, "capability"),
                      .multiprocessors = io::json_value<int>(json, "multiprocessors")};
  TRIREME_REQUIRE_INPUT(!library.is_empty(), "'library' is empty");
  return library;
}

GemmTable table_from(const Json& json) {
  TRIREME_REQUIRE_INPUT(json.is_object() && json.value("kind", Json()) == kKind,
                        "it is no table of products");
  const int format = io::json_value<int>(json, "format");
  TRIREME_REQUIRE_INPUT(format == kFormat,
                        "it is of format {}, and this program knows format {}", format,
                        kFormat);
  GemmTable table{.library = library_from(json), .products = {}};
  std::size_t number = 0;
  for (const Json& entry : io::json_list(json, "products")) {
    try {
      const ProductShape shape = shape_from(entry);
      const bool is_new = table.products.emplace(shape, choice_from(entry, shape)).second;
      TRIREME_REQUIRE_INPUT(is_new, "the product stands there twice");
    } catch (const InputError& error) {
      throw InputError(fmt::format("products[{}]: {}", number, error.what()));
    }
    ++number;
  }
  return table;
}

}  // namespace

std::string text_of(const GemmTable& table) {
  if (table.library.is_empty()) return {};
  const Json head = {{"kind", kKind},
                     {"format", kFormat},
                     {"library", table.library.name},
                     {"device", table.library.device},
                     {"capability", table.library.capability},
                     {"multiprocessors", table.library.multiprocessors}};
  std::string text = io::exact_json_text(head);
  text.pop_back();  // the object goes on
  std::vector<Json> products;
  for (const auto& [shape, choice] : table.products) {
    products.push_back(json_of(shape, choice));
  }
  return text + ",\n\"products\": " + list_text(products) + "}\n";
}

GemmTable gemm_table_from(std::string_view text, const std::string& what) {
  if (text.empty()) return {};
  try {
    return table_from(io::parse_json<Json>(text));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", what, error.what()));
  }
}

std::string text_of(const std::vector<ProductShape>& shapes) {
  std::vector<Json> all;
  for (const ProductShape& shape : shapes) all.push_back(json_of(shape));
  return list_text(all);
}

std::vector<ProductShape> product_shapes_from(std::string_view text) {
  std::vector<ProductShape> shapes;
  const auto json = io::parse_json<Json>(text);
  for (const Json& entry : json) shapes.push_back(shape_from(entry));
  return shapes;
}

}  // namespace trireme::step
