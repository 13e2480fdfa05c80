// config/schema.cpp — the schema without its code, and as a page.
#include "config/schema.hpp"

#include <fmt/format.h>

#include "config/key_table.hpp"

namespace trireme::config {
namespace {

// Text in a table: a bar would end the cell.
std::string cell(const std::string& text) {
  if (text.empty()) return "–";
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

const char* const kIntroduction = R"(# The deck: every key

<!-- Written by the program from its own table of keys (src/config/key_table.cpp). After a
     change there: TRIREME_UPDATE_DOCS=1 ctest --test-dir build/release -R unit.config.schema -->

A run is described by one YAML file. All keys are listed here with type, unit, default and what
is allowed; `inputs/` has commented decks. The whole deck is checked before any work, with its corpora
and the checkpoint it goes on from, and everything that is wrong is shown at once. Keys that are not
listed are errors.

- **`--set key=value`** on the command line replaces a value: `--set model.layers=2`,
  `--set optimizer.lr=1e-4 --set run.steps="2e9 tokens"`. Lists and maps are written as in YAML:
  `--set 'batch.ramp_up={start: 8, increment: 8, samples: 10000}'`.
- **Lengths** are a whole number (steps) or carry a unit: `100 steps`, `51200 samples`,
  `2e9 tokens`. They are rounded up to whole steps.
- **Times** carry a unit: `90s`, `10m`, `1h30m`, `2d`.
- **Paths** (corpora, `run.dir`, `checkpoint.dir`) are relative to the working directory, not to the
  deck. `~`, `~user`, `$NAME` and `${NAME}` (in quotes) are filled in when the deck is read, also those
  of `--set`; a variable that is not set is an error. `$$` is a dollar sign. What `--run-dir` says is
  taken as it is: the shell has filled it in. Variables of a job (`$SLURM_TMPDIR`, `$SLURM_JOB_ID`, all
  that begin with `SLURM_`) may be missing outside of one: `--dry-run` and `trireme jobscript` do not
  check such a path, and say so.
- **Not yet**: a deck may have such a value, and `--dry-run` tells of it what it can; this version
  cannot train it. `trireme train` and `trireme jobscript` refuse it.
- **The resolved deck**, with every default written out, is stored in the run directory
  (`deck.yaml`) and in each checkpoint, with paths as they were filled in. Given back, it makes the
  same run, in whatever environment.
- **Between starts** of a run `parallel`, `batch.micro`, `memory`, `checkpoint`, `run.steps` and
  the rest of `run` except `run.seed` may change; the learning rate and its schedule with
  `--set`; paths of corpora, where those of training have the same content. Everything else must
  stay as the checkpoint has it.
- **`parallel`**: [Many ranks](parallelism.md) says what each axis does and costs, and which to choose.
)";

}  // namespace

const std::vector<KeyInfo>& schema() {
  static const std::vector<KeyInfo> infos = [] {
    std::vector<KeyInfo> all;
    for (const Key& key : key_table()) all.push_back(key.info);
    return all;
  }();
  return infos;
}

std::string schema_markdown() {
  std::string page = kIntroduction;
  std::string section;
  for (const KeyInfo& info : schema()) {
    const std::string first = info.path.substr(0, info.path.find('.'));
    if (first != section) {
      section = first;
      page += fmt::format(
          "\n## {}\n\n| Key | Type | Unit | Default | Allowed | Meaning |\n", first);
      page += "|---|---|---|---|---|---|\n";
    }
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", info.path, cell(info.type),
                        cell(info.unit), cell(info.default_value), cell(info.allowed),
                        cell(info.description));
  }
  return page;
}

}  // namespace trireme::config
