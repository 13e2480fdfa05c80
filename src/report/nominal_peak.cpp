// report/nominal_peak.cpp — see nominal_peak.hpp.
//
// Numbers of 16 bits with sums in fp32, without sparsity; fp32 is the plain one, not
// TF32. The H100 and H200 are those in SXM boards unless their name says otherwise.
#include "report/nominal_peak.hpp"

#include <algorithm>
#include <iterator>

namespace trireme::report {

namespace {

struct DataSheet {
  std::string_view name;              // that the device's contains
  double float32, float16, bfloat16;  // 10^12 FLOP/s; 0: has none
};
// The first that fits.
constexpr DataSheet kDataSheets[] = {
    {"H100 PCIe", 51.2, 756.0, 756.0}, {"H100 NVL", 60.0, 835.0, 835.0},
    {"H200 NVL", 60.0, 835.0, 835.0},  {"H100", 66.9, 989.4, 989.4},
    {"H200", 66.9, 989.4, 989.4},      {"GH200", 66.9, 989.4, 989.4},
    {"A100", 19.5, 312.0, 312.0},      {"V100", 15.7, 125.0, 0.0},
};

}  // namespace

double nominal_peak(std::string_view device, DType type) {
  constexpr double kTera = 1e12;
  const auto fits = [device](const DataSheet& sheet) {
    return device.find(sheet.name) != std::string_view::npos;
  };
  const auto* const sheet = std::ranges::find_if(kDataSheets, fits);
  if (sheet == std::end(kDataSheets)) return 0.0;
  switch (type) {
    case DType::float32:
      return kTera * sheet->float32;
    case DType::float16:
      return kTera * sheet->float16;
    case DType::bfloat16:
      return kTera * sheet->bfloat16;
    default:
      return 0.0;
  }
}

}  // namespace trireme::report
