// kernels/load_products_host.cpp — libraries of a host take their memory as they need it,
// and their code is a part of the program. See load_products.hpp.
#include "kernels/load_products.hpp"

#include "base/exec.hpp"

namespace trireme::kernels {

void load_products(const Exec&, DType) {}

}  // namespace trireme::kernels
