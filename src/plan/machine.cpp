// plan/machine.cpp — see machine.hpp.
//
// Like a deck, a machine file is read along one table of keys, which also says what each
// may be: reading, messages and the page of keys cannot differ. Its values are read by
// the readers of decks. The ranges are wide, as machines are; what they keep out is a
// number in another unit, a bandwidth in GB/s say.
#include "plan/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "base/plural.hpp"
#include "base/words.hpp"
#include "config/deck_error.hpp"
#include "config/key_readers.hpp"
#include "config/text.hpp"
#include "config/yaml_reader.hpp"
#include "io/files.hpp"

namespace trireme::plan {

namespace {

using config::DeckError;
using config::NumberRange;
using config::Problem;
using config::YamlValue;

constexpr double kMostDevices = 1 << 24;

// What a number counts, and between which bounds every machine lies.
struct Quantity {
  const char* unit;
  double least, most;
};
constexpr Quantity kRate{"FLOP/s", 1e9, 1e17};
constexpr Quantity kMemoryBandwidth{"bytes/s", 1e9, 1e15};
constexpr Quantity kNetworkBandwidth{"bytes/s", 1e6, 1e14};
constexpr Quantity kStorageBandwidth{"bytes/s", 1e6, 1e15};
constexpr Quantity kMemory{"bytes", 1e8, 1e14};
constexpr Quantity kReserved{"bytes", 0.0, 1e13};
constexpr Quantity kLatency{"seconds", 0.0, 0.1};
constexpr Quantity kOverhead{"seconds", 0.0, 0.01};
constexpr Quantity kOfStep{"seconds", 0.0, 1e4};
constexpr Quantity kShare{"share", 0.01, 1.0};
constexpr Quantity kRowShare{"share", 0.01, 20.0};  // more than 1: rows in caches
constexpr Quantity kOverlap{"share", 0.0, 1.0};
constexpr Quantity kElement{"bytes", 1.0, 8.0};
constexpr Quantity kCount{"devices", 1.0, kMostDevices};
constexpr Quantity kMultiprocessors{"multiprocessors", 1.0, 1e5};
constexpr Quantity kExtent{"elements", 1.0, 65536.0};

std::string allowed(const Quantity& quantity) {
  return fmt::format("{} to {} {}", config::number_text(quantity.least),
                     config::number_text(quantity.most), quantity.unit);
}

std::optional<Problem> read_quantity(const YamlValue& value, const Quantity& quantity,
                                     double& out) {
  return config::read_number(value, {.least = quantity.least, .most = quantity.most},
                             out);
}

std::optional<Problem> read_count(const YamlValue& value, const Quantity& quantity,
                                  index_t& out) {
  return config::read_integer(value, static_cast<index_t>(quantity.least),
                              static_cast<index_t>(quantity.most), out);
}

using Read = std::function<std::optional<Problem>(const YamlValue&, Machine&)>;
struct MachineKey {
  MachineKeyInfo info;
  Read read;
  bool is_required() const { return info.default_value.empty(); }
};

// An entry of a list: a map of these names, all of which must be there.
struct Field {
  const char* name;
  std::string allowed;
  std::function<std::optional<Problem>(const YamlValue&)> read;
};

std::optional<Problem> read_fields(const YamlValue& item,
                                   const std::vector<Field>& fields) {
  if (!item.is_map()) {
    return Problem{fmt::format("has {} where a map is wanted", config::kind_of(item)),
                   ""};
  }
  std::set<std::string_view> seen;
  for (const YamlValue::Entry& entry : item.entries) {
    const auto field = std::ranges::find(fields, std::string_view(entry.key),
                                         [](const Field& f) { return f.name; });
    if (field == fields.end()) {
      return Problem{fmt::format("has a key '{}' that is not known here", entry.key), ""};
    }
    seen.insert(field->name);
    if (auto problem = field->read(entry.value)) {
      problem->what = fmt::format("{}: {} {} ({})", entry.key, brief(entry.value),
                                  problem->what, field->allowed);
      return problem;
    }
  }
  for (const Field& field : fields) {
    if (seen.contains(field.name)) continue;
    return Problem{
        fmt::format("has an entry without '{}' ({})", field.name, field.allowed), ""};
  }
  return std::nullopt;
}

Field number_field(const char* name, const Quantity& quantity, double& out) {
  return {name, allowed(quantity), [quantity, &out](const YamlValue& value) {
            return read_quantity(value, quantity, out);
          }};
}

template <class T>
Field count_field(const char* name, const Quantity& quantity, T& out) {
  return {name, allowed(quantity), [quantity, &out](const YamlValue& value) {
            index_t number = 0;
            auto problem = read_count(value, quantity, number);
            if (!problem) out = static_cast<T>(number);
            return problem;
          }};
}

// A list with one entry at least, each read into a new element.
template <class T, class ReadItem>
std::optional<Problem> read_list(const YamlValue& value, std::vector<T>& out,
                                 const ReadItem& read_item) {
  if (!value.is_list()) {
    return Problem{fmt::format("is {}; a list is wanted", config::kind_of(value)), ""};
  }
  if (value.items.empty()) return Problem{"is an empty list", ""};
  out.clear();
  for (const YamlValue& item : value.items) {
    if (auto problem = read_item(item, out.emplace_back())) return problem;
  }
  return std::nullopt;
}

std::optional<Problem> read_tiles(const YamlValue& value, Machine& machine) {
  return read_list(value, machine.device.tiles, [](const YamlValue& item, Tile& tile) {
    return read_fields(item, {count_field("rows", kExtent, tile.rows),
                              count_field("columns", kExtent, tile.columns),
                              number_field("share", kShare, tile.share)});
  });
}

std::optional<Problem> read_levels(const YamlValue& value, Machine& machine) {
  std::vector<NetworkLevel>& levels = machine.network;
  auto problem = read_list(value, levels, [](const YamlValue& item, NetworkLevel& level) {
    const Field name{"name", "text", [&level](const YamlValue& text) {
                       return config::read_text(text, level.name);
                     }};
    return read_fields(item,
                       {name, count_field("devices", kCount, level.devices),
                        number_field("bandwidth", kNetworkBandwidth, level.bandwidth),
                        number_field("latency", kLatency, level.latency)});
  });
  if (problem) return problem;
  for (std::size_t i = 1; i < levels.size(); ++i) {
    if (levels[i].devices > levels[i - 1].devices) continue;
    return Problem{fmt::format("level '{}' has {}, the one inside it {}: levels "
                               "go from the inside out",
                               levels[i].name, format_plural(levels[i].devices, "device"),
                               levels[i - 1].devices),
                   ""};
  }
  return std::nullopt;
}

// The table while it is made: a function for each kind of value. A key without a default
// must be given.
class Table {
 public:
  std::vector<MachineKey> keys;

  void text(const char* path, std::string& (*of)(Machine&), const char* description) {
    keys.push_back({{path, "", "text", "", description},
                    [of](const YamlValue& value, Machine& machine) {
                      return config::read_text(value, of(machine));
                    }});
  }
  void number(const char* path, double& (*of)(Machine&), const Quantity& quantity,
              const char* default_value, const char* description) {
    keys.push_back({{path, quantity.unit, allowed(quantity), default_value, description},
                    [of, quantity](const YamlValue& value, Machine& machine) {
                      return read_quantity(value, quantity, of(machine));
                    }});
  }
  template <class Of>  // a lambda: a reference to the enum in a Machine
  void choice(const char* path, Of of, std::vector<std::string_view> words,
              const char* default_value, const char* description) {
    using E = std::remove_reference_t<decltype(of(std::declval<Machine&>()))>;
    keys.push_back({{path, "", config::join_words(words), default_value, description},
                    [of, words](const YamlValue& value, Machine& machine) {
                      std::size_t index = 0;
                      auto problem = config::read_word(value, words, index);
                      if (!problem) of(machine) = static_cast<E>(index);
                      return problem;
                    }});
  }
  void other(MachineKeyInfo info, Read read) {
    keys.push_back({std::move(info), std::move(read)});
  }
};

#define TRIREME_OF(member)   \
  [](Machine & m) -> auto& { \
    return m.member;         \
  }

void add_peaks(Table& table) {
  const char* nominal = "Peak by the maker; none: no such products";
  const char* gemm = "Of the fastest product of matrices";
  table.number("device.nominal_peak.fp32", TRIREME_OF(device.nominal_peak.fp32), kRate,
               "none", nominal);
  table.number("device.nominal_peak.bf16", TRIREME_OF(device.nominal_peak.bf16), kRate,
               "none", nominal);
  table.number("device.nominal_peak.fp16", TRIREME_OF(device.nominal_peak.fp16), kRate,
               "none", nominal);
  table.number("device.gemm_peak.fp32", TRIREME_OF(device.gemm_peak.fp32), kRate, "none",
               gemm);
  table.number("device.gemm_peak.bf16", TRIREME_OF(device.gemm_peak.bf16), kRate, "none",
               gemm);
  table.number("device.gemm_peak.fp16", TRIREME_OF(device.gemm_peak.fp16), kRate, "none",
               gemm);
}

void add_device(Table& table) {
  table.text("device.name", TRIREME_OF(device.name), "Name of the device");
  table.number("device.memory", TRIREME_OF(device.memory), kMemory, "",
               "Memory that a rank has");
  table.number("device.reserved", TRIREME_OF(device.reserved), kReserved, "0",
               "Of it, what libraries keep: contexts, buffers of messages");
  table.other({"device.multiprocessors", kMultiprocessors.unit, allowed(kMultiprocessors),
               "", "Units that compute a tile at a time; cores of a CPU"},
              [](const YamlValue& value, Machine& machine) {
                index_t number = 0;
                auto problem = read_count(value, kMultiprocessors, number);
                if (!problem) machine.device.multiprocessors = static_cast<int>(number);
                return problem;
              });
  add_peaks(table);
  table.number("device.gemm_share", TRIREME_OF(device.gemm_share), kShare, "",
               "Of `gemm_peak`, that products of all shapes in turn reach");
  table.number("device.attention_share", TRIREME_OF(device.attention_share), kShare,
               "0.5", "Of the same rate, that fused attention reaches");
  table.other({"device.tiles", "", "[{rows, columns, share}, ...]", "",
               "Tiles of the products' kernels, and their rates beside the fastest's"},
              read_tiles);
  table.number("device.wave", TRIREME_OF(device.wave), kOverhead, "",
               "What a wave of tiles takes beside its products");
  table.number("device.launch", TRIREME_OF(device.launch), kOverhead, "",
               "From one kernel to the next");
  table.number("device.bandwidth", TRIREME_OF(device.bandwidth), kMemoryBandwidth, "",
               "Of the device's memory");
  table.number("device.row_share", TRIREME_OF(device.row_share), kRowShare, "",
               "Of it, that kernels which pass over memory reach; more than 1 where what "
               "they pass over lies in caches");
}

void add_software(Table& table) {
  table.choice("software.attention", TRIREME_OF(software.attention),
               {"fused", "materialised"}, "fused",
               "Whether scores stay on the chip, or are written and read");
  table.choice("software.stage_messages", TRIREME_OF(software.stage_messages),
               {"beside", "waited_for"}, "beside",
               "Whether messages between stages travel beside passes");
  table.number("software.gradient_bytes", TRIREME_OF(software.gradient_bytes), kElement,
               "the deck's", "Of an element of gradients in messages");
  table.number("software.data_overlap", TRIREME_OF(software.data_overlap), kOverlap, "0",
               "Of gradients' messages, that travels beside passes");
  table.number("software.zero3_share", TRIREME_OF(software.zero3_share), kShare, "1",
               "Of the network's bandwidth, that the messages of ZeRO 3 reach");
  table.number("software.tensor_overlap", TRIREME_OF(software.tensor_overlap), kOverlap,
               "0", "Of tensor messages, that travels beside products");
  table.number("software.step_seconds", TRIREME_OF(software.step_seconds), kOfStep, "0",
               "Of each step, that nothing else explains");
  table.number("software.microbatch_seconds", TRIREME_OF(software.microbatch_seconds),
               kOfStep, "0", "Of each micro-batch on each stage, likewise");
}

const std::vector<MachineKey>& table() {
  static const std::vector<MachineKey> keys = [] {
    Table made;
    made.text("name", TRIREME_OF(name), "Name of the machine");
    add_device(made);
    made.other({"network.levels", "", "[{name, devices, bandwidth, latency}, ...]", "",
                "From the inside out: devices that share a level, bytes/s of a device "
                "in one direction, seconds of a message"},
               read_levels);
    add_software(made);
    made.number("storage.write_bandwidth", TRIREME_OF(storage_bandwidth),
                kStorageBandwidth, "not known", "Of all ranks together");
    return made.keys;
  }();
  return keys;
}

#undef TRIREME_OF

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Machine read(const std::string& text) {
    const YamlValue root = config::read_yaml(text, file_, errors_);
    if (errors_.empty() && !root.is_map()) {
      add("", file_, brief(root), root.is_null() ? "is empty" : "is not a map of keys",
          "see inputs/machines/", "");
    }
    if (errors_.empty()) {
      walk(root, "");
      find_missing();
      check_peaks();
    }
    if (!errors_.empty()) {
      throw config::DeckErrors(std::move(errors_), "machine file");
    }
    return std::move(machine_);
  }

 private:
  void add(const std::string& key, const std::string& place, const std::string& value,
           const std::string& what, const std::string& allowed_text,
           const std::string& fix) {
    errors_.push_back({key, place, value, what, allowed_text, fix});
  }
  std::string place_of(int line) const { return fmt::format("{}:{}", file_, line); }

  static bool is_section(const std::string& path) {
    return std::ranges::any_of(table(), [&](const MachineKey& key) {
      return key.info.path.starts_with(path + ".");
    });
  }

  void walk(const YamlValue& map, const std::string& prefix) {
    for (const YamlValue::Entry& entry : map.entries) {
      const std::string path = prefix + entry.key;
      const auto key = std::ranges::find(table(), path,
                                         [](const MachineKey& k) { return k.info.path; });
      if (!lines_.emplace(path, entry.line).second) {
        add(path, place_of(entry.line), brief(entry.value), "stands here a second time",
            "each key once", "");
      } else if (key != table().end()) {
        read_key(*key, entry);
      } else if (is_section(path) && entry.value.is_map()) {
        walk(entry.value, path + ".");
      } else if (is_section(path)) {
        add(path, place_of(entry.line), brief(entry.value),
            "is a section; its keys are wanted below it", "", "");
      } else {
        add(path, place_of(entry.line), brief(entry.value),
            "is not a key of a machine file", "the keys of inputs/machines/",
            nearest(path));
      }
    }
  }

  static std::string nearest(const std::string& path) {
    std::vector<std::string_view> paths;
    for (const MachineKey& key : table()) paths.emplace_back(key.info.path);
    return config::nearest_word(path, paths);
  }

  void read_key(const MachineKey& key, const YamlValue::Entry& entry) {
    const auto problem = key.read(entry.value, machine_);
    if (!problem) return;
    bad_.insert(key.info.path);
    const std::string fix =
        problem->fix.empty() ? "" : key.info.path + ": " + problem->fix;
    add(key.info.path, place_of(entry.line), brief(entry.value), problem->what,
        key.info.allowed, fix);
  }

  void find_missing() {
    for (const MachineKey& key : table()) {
      if (!key.is_required() || lines_.contains(key.info.path)) continue;
      add(key.info.path, file_, "", "is missing", key.info.allowed, "");
    }
  }

  // What no device reaches; and a device without any rate computes nothing.
  void check_peaks() {
    bool has_any = false;
    for (const auto& [name, of] : {std::pair{"fp32", &Peaks::fp32},
                                   {"bf16", &Peaks::bf16},
                                   {"fp16", &Peaks::fp16}}) {
      const double gemm = machine_.device.gemm_peak.*of;
      const double nominal = machine_.device.nominal_peak.*of;
      const std::string key = fmt::format("device.gemm_peak.{}", name);
      has_any = has_any || gemm > 0.0 || bad_.contains(key);
      if (gemm <= nominal || bad_.contains(fmt::format("device.nominal_peak.{}", name))) {
        continue;
      }
      add(key, place_of(lines_[key]), config::number_text(gemm),
          fmt::format("is more than the nominal peak, {} FLOP/s",
                      config::number_text(nominal)),
          "a rate that was measured", "");
    }
    if (has_any) return;
    add("device.gemm_peak", file_, "", "has no type with a rate",
        "fp32, bf16 or fp16 with FLOP/s", "");
  }

  std::string file_;
  Machine machine_;
  std::map<std::string, int> lines_;
  std::set<std::string> bad_;
  std::vector<DeckError> errors_;
};

}  // namespace

double Peaks::of(DType type) const {
  const std::string_view key = key_of(type);
  return key == "bf16" ? bf16 : key == "fp16" ? fp16 : fp32;
}

std::string_view Peaks::key_of(DType type) {
  const std::string_view name = name_of(type);
  return name == "bfloat16" ? "bf16" : name == "float16" ? "fp16" : "fp32";
}

const NetworkLevel& Machine::level_of(int distance) const {
  for (const NetworkLevel& level : network) {
    if (distance < level.devices) return level;
  }
  return network.back();
}

Machine parse_machine(const std::string& text, const std::string& file) {
  return Reader(file).read(text);
}

Machine load_machine(const std::string& path) {
  return parse_machine(io::read_file(path, "machine file"), path);
}

std::vector<MachineKeyInfo> machine_keys() {
  std::vector<MachineKeyInfo> infos;
  for (const MachineKey& key : table()) infos.push_back(key.info);
  return infos;
}

}  // namespace trireme::plan
