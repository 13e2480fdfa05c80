// ckpt/hugging_face_check.cpp — whether a directory's tensors are those of its
// config.json.
//
// Everything is found before the first tensor is read and said together, because files of
// another model differ in much at once; at most a few of one kind are named, since a
// wrong number of layers would miss hundreds. A tensor is believed to be what its name
// and shape say: its values are looked at here only where they must equal another's.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/hugging_face.hpp"
#include "config/deck.hpp"
#include "io/element_types.hpp"

namespace trireme::ckpt {

namespace {

// More of one kind than this say nothing new (a wrong n_layer misses hundreds).
constexpr std::size_t kMostListed = 100;

std::string listed(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("\n  {} ({}):", title, lines.size());
  for (std::size_t i = 0; i < std::min(lines.size(), kMostListed); ++i) {
    text += "\n    " + lines[i];
  }
  if (lines.size() > kMostListed) {
    text += fmt::format("\n    ... and {} more", lines.size() - kMostListed);
  }
  return text;
}

std::string dimensions(const config::ModelConfig& c) {
  std::string layers = format_plural(c.layers, "layer");
  if (c.decoder_layers > 0) {
    layers = fmt::format("{} + {}", c.layers, format_plural(c.decoder_layers, "layer"));
  }
  return fmt::format("{}, hidden {}, {}, MLP {}, sequence {}, vocabulary {}", layers,
                     c.hidden, format_plural(c.heads, "head"), c.ffn_hidden, c.sequence,
                     c.vocab);
}

bool is_readable(const io::SafeTensor& tensor) {
  return tensor.dtype && io::is_real(*tensor.dtype);
}

std::string shown(const io::SafeTensor& tensor) {
  return fmt::format("{} {}", tensor.name, to_string(tensor.shape));
}

// NaN equals NaN here: reading says that it is none of a model's numbers.
bool are_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

class HuggingFaceModel::TensorCheck {
 public:
  explicit TensorCheck(const HuggingFaceModel& model) : model_(model) {
    for (const ForeignTensor& tensor : model.tensors_) {
      if (tensor.if_missing && !has_any_part(tensor)) {
        left_out_.push_back(tensor.name);
      } else {
        check_parts(tensor);
        check_aliases(tensor);
      }
    }
    look_for_extra();
  }

  void require_right(const io::Path& directory) const {
    if (missing_.empty() && wrong_.empty() && unequal_.empty() && extra_.empty()) return;
    throw InputError(
        fmt::format("'{}': the tensors are not those of its config.json ({} with {}):",
                    directory.string(), model_.dialect_.name,
                    dimensions(model_.config_)) +
        listed("missing", missing_) + listed("wrong", wrong_) +
        listed("not equal, while Trireme ties them and has one for both", unequal_) +
        listed("not part of the model", extra_) +
        "\nTake config.json and the weights as one save_pretrained() wrote them");
  }

  void warn(const io::Path& directory, Log& log) const {
    if (narrows_) {
      log.warning("'{}' holds fp64 weights; they are rounded to fp32",
                  directory.string());
    }
    if (!left_out_.empty()) {
      log.warning("'{}' has not all weights of the model; these are a new model's:{}",
                  directory.string(), listed("drawn anew", left_out_));
    }
  }

 private:
  bool has_any_part(const ForeignTensor& tensor) const {
    for (std::size_t part = 0; part < tensor.theirs.size(); ++part) {
      if (model_.find_part(tensor, part) != nullptr) return true;
    }
    return false;
  }

  void check_parts(const ForeignTensor& tensor) {
    const Shape expected = tensor.stored_shape();
    for (std::size_t part = 0; part < tensor.theirs.size(); ++part) {
      const io::SafeTensor* found = model_.find_part(tensor, part);
      if (found == nullptr) {
        missing_.push_back(
            fmt::format("{} {}", tensor.theirs[part], to_string(expected)));
        continue;
      }
      used_.insert(found->name);
      if (found->shape != expected) {
        wrong_.push_back(fmt::format("{}: expected {}, found {}", found->name,
                                     to_string(expected), to_string(found->shape)));
      } else if (!is_readable(*found)) {
        wrong_.push_back(fmt::format("{}: expected F32, F64, F16 or BF16, found {}",
                                     found->name, found->format));
      }
      narrows_ = narrows_ || found->dtype == DType::float64;
    }
  }

  // Where a tensor stands under several of its names, all are equal to the first.
  void check_aliases(const ForeignTensor& tensor) {
    const io::SafeTensor* once = model_.find_part(tensor, 0);
    for (const std::string& alias : tensor.aliases) {
      const io::SafeTensor* again = model_.find(alias);
      if (once == nullptr || again == nullptr || again == once) continue;
      used_.insert(again->name);
      if (!is_readable(*once)) continue;  // that is said already
      const bool is_equal = again->shape == once->shape && is_readable(*again) &&
                            are_equal(model_.reader_.read_float(again->name),
                                      model_.reader_.read_float(once->name));
      if (!is_equal) {
        unequal_.push_back(fmt::format("{} and {}", shown(*again), shown(*once)));
      }
    }
  }

  // What is neither a weight nor a buffer, or a weight a second time.
  void look_for_extra() {
    for (const auto& [name, tensor] : model_.reader_.tensors()) {
      if (used_.contains(name)) continue;
      const std::string bare = model_.dialect_.without_prefix(name);
      if (bare != name && used_.contains(bare)) {
        extra_.push_back(fmt::format("{}: stored as {} too", name, bare));
      } else if (!model_.dialect_.is_buffer(bare)) {
        extra_.push_back(shown(tensor));
      }
    }
  }

  const HuggingFaceModel& model_;
  std::vector<std::string> missing_, wrong_, unequal_, extra_;
  std::vector<std::string> left_out_;  // ours
  std::set<std::string> used_;         // of the names in the files
  bool narrows_ = false;
};

void HuggingFaceModel::check_tensors(const io::Path& directory, Log& log) const {
  const TensorCheck check(*this);
  check.require_right(directory);
  check.warn(directory, log);
}

}  // namespace trireme::ckpt
