// data/vector_file.cpp — see vector_file.hpp.
#include "data/vector_file.hpp"

namespace trireme::data {

VectorFile::VectorFile(const io::Path& path, index_t columns,
                       const std::vector<std::int64_t>& offsets)
    : path_(path), file_(io::H5File::create(path_.temporary())) {
  const index_t n = std::ssize(offsets);
  vectors_ = file_.make_dataset("embeddings", DType::float32, {n, columns});
  tokens_ = file_.make_dataset("tokens", DType::int32, {n});
  file_.make_dataset("offsets", DType::int64, {n}).write(offsets);
}

void VectorFile::write(index_t first, const std::vector<float>& vectors,
                       const std::vector<std::int32_t>& tokens) {
  const index_t rows = std::ssize(tokens);
  vectors_->write_rows(first, rows, vectors.data(), vectors.size() * sizeof(float));
  tokens_->write_rows(first, rows, tokens.data(), tokens.size() * sizeof(std::int32_t));
}

void VectorFile::commit() {
  vectors_.reset();
  tokens_.reset();
  file_.close();
  path_.commit();
}

}  // namespace trireme::data
