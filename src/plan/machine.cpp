// plan/machine.cpp — see machine.hpp.
//
// Like a deck, a machine file is read along one table of keys, which also says what each
// may be: reading, messages and the page of keys cannot differ. Its values are read by
// the readers of decks. The ranges are wide, as machines are; what they keep out is a
// number in another unit, a bandwidth in GB/s say. A file may have another as its `base`,
// whose keys are read first: then nothing that two machines share stands in two files.
// The same table says a machine as JSON, so that no key of it can be forgotten there.
#include "plan/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
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
using Json = nlohmann::ordered_json;

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
constexpr Quantity kAttentionShare{"share", 0.01, 4.0};
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

constexpr std::pair<std::string_view, double ByType::*> kTypes[] = {
    {"fp32", &ByType::fp32}, {"bf16", &ByType::bf16}, {"fp16", &ByType::fp16}};

// Access to a machine's members is for reading files, so that writing takes a machine
// that is not const, too.
using Read = std::function<std::optional<Problem>(const YamlValue&, Machine&)>;
using Write = std::function<Json(Machine&)>;
struct MachineKey {
  MachineKeyInfo info;
  Read read;
  Write write;
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
    if (!seen.insert(field->name).second) {
      return Problem{
          fmt::format("line {}: has '{}' a second time", entry.line, entry.key), ""};
    }
    if (auto problem = field->read(entry.value)) {
      const std::string fix =
          problem->fix.empty() ? "" : fmt::format("; nearest: {}", problem->fix);
      return Problem{fmt::format("line {}: {}: {} {} ({}{})", entry.line, entry.key,
                                 brief(entry.value), problem->what, field->allowed, fix),
                     ""};
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

// A number for all types, or a map with one for each of several.
std::optional<Problem> read_by_type(const YamlValue& value, const Quantity& quantity,
                                    ByType& out) {
  if (!value.is_map()) {
    double number = 0.0;
    auto problem = read_quantity(value, quantity, number);
    if (!problem) out = ByType::of_all(number);
    return problem;
  }
  constexpr std::string_view kWanted =
      "a number for all types, or a map of fp32, bf16 and fp16 is wanted";
  if (value.entries.empty()) {
    return Problem{fmt::format("is an empty map; {}", kWanted), ""};
  }
  out = {};
  std::set<std::string_view> seen;
  for (const YamlValue::Entry& entry : value.entries) {
    const auto type =
        std::ranges::find(kTypes, entry.key, [](const auto& t) { return t.first; });
    if (type == std::end(kTypes)) {
      return Problem{fmt::format("has a key '{}'; {}", entry.key, kWanted), ""};
    }
    if (!seen.insert(type->first).second) {
      return Problem{
          fmt::format("line {}: has '{}' a second time", entry.line, entry.key), ""};
    }
    if (auto problem = read_quantity(entry.value, quantity, out.*type->second)) {
      problem->what =
          fmt::format("{}: {} {}", entry.key, brief(entry.value), problem->what);
      problem->fix.clear();
      return problem;
    }
  }
  return std::nullopt;
}

Json write_tiles(const Machine& machine) {
  Json tiles = Json::array();
  for (const Tile& tile : machine.device.tiles) {
    tiles.push_back(
        {{"rows", tile.rows}, {"columns", tile.columns}, {"share", tile.share}});
  }
  return tiles;
}

// A device reaches another one through its own link, so that what is further away is
// never nearer to its rate.
std::string wrong_between(const NetworkLevel& inner, const NetworkLevel& outer) {
  if (outer.devices <= inner.devices || outer.devices % inner.devices != 0) {
    return fmt::format(
        "level '{}' has {}, the one inside it {}: levels go from the inside out, "
        "and each holds a whole number of those inside it",
        outer.name, format_plural(outer.devices, "device"), inner.devices);
  }
  if (inner.bandwidth < outer.bandwidth) {
    return fmt::format(
        "level '{}' has a bandwidth of {}, in bytes/s, the one outside it {}: devices "
        "that are nearer are not slower to reach",
        inner.name, config::number_text(inner.bandwidth),
        config::number_text(outer.bandwidth));
  }
  return "";
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
    const std::string what = wrong_between(levels[i - 1], levels[i]);
    if (!what.empty()) return Problem{what, ""};
  }
  return std::nullopt;
}

Json write_levels(const Machine& machine) {
  Json levels = Json::array();
  for (const NetworkLevel& level : machine.network) {
    levels.push_back({{"name", level.name},
                      {"devices", level.devices},
                      {"bandwidth", level.bandwidth},
                      {"latency", level.latency}});
  }
  return levels;
}

// The table while it is made: a function for each kind of value. A key without a default
// must be given.
class Table {
 public:
  std::vector<MachineKey> keys;

  void text(const char* path, std::string& (*of)(Machine&), const char* default_value,
            const char* description) {
    keys.push_back({{path, "", "text", default_value, description},
                    [of](const YamlValue& value, Machine& machine) {
                      return config::read_text(value, of(machine));
                    },
                    [of](Machine& machine) {
                      return of(machine).empty() ? Json() : Json(of(machine));
                    }});
  }
  // A 0 that no file may give was not given.
  void number(const char* path, double& (*of)(Machine&), const Quantity& quantity,
              const char* default_value, const char* description) {
    keys.push_back({{path, quantity.unit, allowed(quantity), default_value, description},
                    [of, quantity](const YamlValue& value, Machine& machine) {
                      return read_quantity(value, quantity, of(machine));
                    },
                    [of, quantity](Machine& machine) {
                      const double number = of(machine);
                      return number == 0.0 && quantity.least > 0.0 ? Json()
                                                                   : Json(number);
                    }});
  }
  void by_type(const char* path, ByType& (*of)(Machine&), const Quantity& quantity,
               const char* default_value, const char* description) {
    const std::string shown = allowed(quantity) + ", or {fp32, bf16, fp16} of these";
    keys.push_back({{path, quantity.unit, shown, default_value, description},
                    [of, quantity](const YamlValue& value, Machine& machine) {
                      return read_by_type(value, quantity, of(machine));
                    },
                    [of](Machine& machine) {
                      Json numbers;
                      for (const auto& [name, member] : kTypes) {
                        const double number = of(machine).*member;
                        numbers[std::string(name)] = number > 0.0 ? Json(number) : Json();
                      }
                      return numbers;
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
                    },
                    [of, words](Machine& machine) {
                      const auto index = static_cast<std::size_t>(of(machine));
                      return Json(std::string(words.at(index)));
                    }});
  }
  void other(MachineKeyInfo info, Read read, Write write) {
    keys.push_back({std::move(info), std::move(read), std::move(write)});
  }
};

#define TRIREME_OF(member)   \
  [](Machine & m) -> auto& { \
    return m.member;         \
  }

void add_device(Table& table) {
  table.text("device.name", TRIREME_OF(device.name), "", "Name of the device");
  table.number("device.memory", TRIREME_OF(device.memory), kMemory, "",
               "Memory that a rank has");
  table.number("device.reserved", TRIREME_OF(device.reserved), kReserved, "0",
               "Of it, what libraries keep: contexts, buffers of messages");
  table.other(
      {"device.multiprocessors", kMultiprocessors.unit, allowed(kMultiprocessors), "",
       "Units that compute a tile at a time; cores of a CPU"},
      [](const YamlValue& value, Machine& machine) {
        index_t number = 0;
        auto problem = read_count(value, kMultiprocessors, number);
        if (!problem) machine.device.multiprocessors = static_cast<int>(number);
        return problem;
      },
      [](Machine& machine) { return Json(machine.device.multiprocessors); });
  table.by_type("device.nominal_peak", TRIREME_OF(device.nominal_peak), kRate, "",
                "Peak by the maker, of the types that it has products of");
  table.by_type("device.gemm_peak", TRIREME_OF(device.gemm_peak), kRate, "",
                "Of the fastest product of matrices");
}

void add_shares(Table& table) {
  table.by_type("device.gemm_share", TRIREME_OF(device.gemm_share), kShare, "",
                "Of `gemm_peak`, that products of all shapes in turn reach");
  table.by_type("device.attention_share", TRIREME_OF(device.attention_share),
                kAttentionShare, "0.5",
                "Of the same rate, that fused attention reaches; more than 1 where it is "
                "measured as what a layer takes beside all else");
  table.other({"device.tiles", "", "[{rows, columns, share}, ...]", "",
               "Tiles of the products' kernels, and their rates beside the fastest's"},
              read_tiles, write_tiles);
  table.number("device.wave", TRIREME_OF(device.wave), kOverhead, "",
               "What a wave of tiles takes beside its products");
  table.number("device.launch", TRIREME_OF(device.launch), kOverhead, "",
               "From one kernel to the next");
  table.number("device.bandwidth", TRIREME_OF(device.bandwidth), kMemoryBandwidth, "",
               "Of the device's memory");
  table.by_type("device.row_share", TRIREME_OF(device.row_share), kRowShare, "",
                "Of it, that kernels which pass over memory in a micro-batch reach; more "
                "than 1 where what they pass over lies in caches");
  table.by_type("device.update_share", TRIREME_OF(device.update_share), kRowShare,
                "row_share", "The same of kernels that a step has once, its update");
}

void add_software(Table& table) {
  table.text("software.name", TRIREME_OF(software.name), "Trireme",
             "Of the program whose steps are predicted, where it is another one");
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
    made.text("name", TRIREME_OF(name), "", "Name of the machine");
    add_device(made);
    add_shares(made);
    made.other({"network.levels", "", "[{name, devices, bandwidth, latency}, ...]", "",
                "From the inside out: devices that share a level, bytes/s of a device "
                "in one direction, seconds of a message"},
               read_levels, write_levels);
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
    if (read_file(text, 0)) {
      find_missing();
      check_types();
      check_memory();
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

  // What stands in a file goes before what stands in its base. Whether all could be read.
  bool read_file(const std::string& text, int bases) {
    const std::size_t before = errors_.size();
    const YamlValue root = config::read_yaml(text, file_, errors_);
    if (errors_.size() > before) return false;
    if (!root.is_map()) {
      add("", file_, brief(root), root.is_null() ? "is empty" : "is not a map of keys",
          "see inputs/machines/", "");
      return false;
    }
    const auto base = std::ranges::find(root.entries, kBase, &YamlValue::Entry::key);
    const bool has_base = base == root.entries.end() || read_base(*base, bases);
    std::set<std::string> seen;
    walk(root, "", seen);
    return has_base;
  }

  bool read_base(const YamlValue::Entry& entry, int bases) {
    constexpr int kMostBases = 8;
    std::string name;
    if (auto problem = config::read_text(entry.value, name)) {
      add(std::string(kBase), place_of(entry.line), brief(entry.value), problem->what,
          "a file beside this one", "");
      return false;
    }
    if (bases == kMostBases) {
      add(std::string(kBase), place_of(entry.line), name,
          "is the base of a base of a base ...: files go round in a ring",
          fmt::format("{} at most", format_plural(kMostBases, "base")), "");
      return false;
    }
    const std::string own = file_;
    file_ = (std::filesystem::path(own).parent_path() / name).string();
    bool is_read = false;
    try {
      is_read = read_file(io::read_file(file_, "machine file"), bases + 1);
    } catch (const InputError& error) {
      add(std::string(kBase), fmt::format("{}:{}", own, entry.line), name, error.what(),
          "a file beside this one", "");
    }
    file_ = own;
    return is_read;
  }

  static bool is_section(const std::string& path) {
    return std::ranges::any_of(table(), [&](const MachineKey& key) {
      return key.info.path.starts_with(path + ".");
    });
  }

  void walk(const YamlValue& map, const std::string& prefix,
            std::set<std::string>& seen) {
    for (const YamlValue::Entry& entry : map.entries) {
      const std::string path = prefix + entry.key;
      const auto key = std::ranges::find(table(), path,
                                         [](const MachineKey& k) { return k.info.path; });
      if (!seen.insert(path).second) {
        add(path, place_of(entry.line), brief(entry.value), "stands here a second time",
            "each key once", "");
      } else if (key != table().end()) {
        read_key(*key, entry);
      } else if (is_section(path) && entry.value.is_map()) {
        walk(entry.value, path + ".", seen);
      } else if (is_section(path)) {
        add(path, place_of(entry.line), brief(entry.value),
            "is a section; its keys are wanted below it", "", "");
      } else if (path != kBase) {
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
    const std::string& path = key.info.path;
    places_[path] = place_of(entry.line);
    bad_.erase(path);
    const auto problem = key.read(entry.value, machine_);
    if (!problem) return;
    bad_.insert(path);
    const std::string fix = problem->fix.empty() ? "" : path + ": " + problem->fix;
    add(path, place_of(entry.line), brief(entry.value), problem->what, key.info.allowed,
        fix);
  }

  void find_missing() {
    for (const MachineKey& key : table()) {
      if (!key.is_required() || places_.contains(key.info.path)) continue;
      add(key.info.path, file_, "", "is missing", key.info.allowed, "");
    }
    if (!places_.contains(kUpdateShare)) {
      machine_.device.update_share = machine_.device.row_share;
    }
  }

  // What no device reaches; and what a type of products lacks.
  void check_types() {
    const Device& device = machine_.device;
    const std::string peak = "device.gemm_peak";
    for (const auto& [name, of] : kTypes) {
      const double gemm = device.gemm_peak.*of, nominal = device.nominal_peak.*of;
      if (gemm <= 0.0 || bad_.contains(peak)) continue;
      if (nominal > 0.0 && gemm > nominal) {
        add(peak, places_[peak], fmt::format("{}: {}", name, config::number_text(gemm)),
            fmt::format("is more than the nominal peak, {} FLOP/s",
                        config::number_text(nominal)),
            "a rate that was measured", "");
      }
      for (const auto& [key, shares] :
           {std::pair{"device.nominal_peak", &device.nominal_peak},
            {"device.gemm_share", &device.gemm_share},
            {"device.attention_share", &device.attention_share},
            {"device.row_share", &device.row_share},
            {kUpdateShare, &device.update_share}}) {
        if (shares->*of > 0.0 || bad_.contains(key)) continue;
        add(key, places_.contains(key) ? places_[key] : file_, "",
            fmt::format("has none of {}, of which device.gemm_peak has products", name),
            "one for each of its types", "");
      }
    }
  }

  void check_memory() {
    const Device& device = machine_.device;
    if (device.reserved < device.memory || bad_.contains("device.memory")) return;
    add("device.reserved", places_["device.reserved"],
        config::number_text(device.reserved),
        fmt::format("is all of device.memory, which is {}, in bytes, or more",
                    config::number_text(device.memory)),
        "less than device.memory", "");
  }

  static constexpr std::string_view kBase = "base";
  static constexpr const char* kUpdateShare = "device.update_share";

  std::string file_;
  Machine machine_;
  std::map<std::string, std::string> places_;  // of the keys that were given
  std::set<std::string> bad_;
  std::vector<DeckError> errors_;
};

}  // namespace

double ByType::of(DType type) const {
  const std::string_view key = key_of(type);
  return key == "bf16" ? bf16 : key == "fp16" ? fp16 : fp32;
}

std::string_view ByType::key_of(DType type) {
  const std::string_view name = name_of(type);
  return name == "bfloat16" ? "bf16" : name == "float16" ? "fp16" : "fp32";
}

Machine parse_machine(const std::string& text, const std::string& file) {
  return Reader(file).read(text);
}

Machine load_machine(const std::string& path) {
  return parse_machine(io::read_file(path, "machine file"), path);
}

Machine with_network(Machine machine, const Machine& other) {
  machine.network = other.network;
  machine.network_of = other.name;
  return machine;
}

std::string title_of(const Machine& machine) {
  if (machine.network_of.empty()) return machine.name;
  return fmt::format("{} with the network of {}", machine.name, machine.network_of);
}

std::vector<MachineKeyInfo> machine_keys() {
  std::vector<MachineKeyInfo> infos;
  for (const MachineKey& key : table()) infos.push_back(key.info);
  return infos;
}

Json machine_json(const Machine& machine) {
  Machine copy = machine;
  Json json;
  for (const MachineKey& key : table()) json[key.info.path] = key.write(copy);
  return json;
}

}  // namespace trireme::plan
