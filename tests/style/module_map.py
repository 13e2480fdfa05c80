# tests/style/module_map.py — the picture of the modules in docs/developer/modules.svg shows
# what CMake says. A module stands one row above the highest that it uses; a line is drawn
# only where no chain of other lines says the same (transitive reduction), so that 20 modules
# with some 150 uses stay readable.
#
#   python3 tests/style/module_map.py    # draws it anew
from pathlib import Path

import layers

PICTURE = "docs/developer/modules.svg"
# What the modules are about, lowest first: class in the picture, title, modules.
KINDS = (
    ("machine", "machine, ranks, files", ("base", "config", "comm", "io")),
    ("model", "the model and its step", ("kernels", "tensor", "parallel", "nn", "model",
                                         "schedule", "optim", "step")),
    ("data", "corpora and checkpoints", ("data", "ckpt")),
    ("run", "runs and what is said of them", ("report", "check", "inference", "plan", "job",
                                              "run", "apps")),
)
BOX, HEIGHT, GAP, ROW, MARGIN, WIDTH = 92, 30, 40, 62, 24, 820
STYLE = """<style>
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #222; }
  .name { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
  .page { fill: #fdfdfb; } .use { stroke: #888; fill: none; stroke-width: 1.2; }
  .machine { fill: #eef0f2; stroke: #8a939c; } .model { fill: #eef6ef; stroke: #7da587; }
  .data { fill: #fbf3e4; stroke: #bd9a5a; } .run { fill: #eef3f8; stroke: #7d93ab; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e2e2e2; } .page { fill: #16181c; } .use { stroke: #888; }
    .machine { fill: #26292d; stroke: #707780; } .model { fill: #1f2d23; stroke: #5b8a68; }
    .data { fill: #322a1b; stroke: #96783f; } .run { fill: #202a35; stroke: #5d7894; }
  }
</style>"""


def reduced(uses):
    """module -> the modules below it that no other module below it uses."""
    return {module: sorted(low for low in below
                           if not any(low in uses[other] for other in below if other != low))
            for module, below in uses.items()}


def rows_of(order, lines):
    """The rows, lowest first. A line that passes through a row has a place in it, (module,
    low), so that it goes past the boxes and not behind them; each thing stands near what it
    uses."""
    level = {}
    for module in order:
        level[module] = 1 + max((level[low] for low in lines[module]), default=-1)
    rows = [[] for _ in range(max(level.values()) + 1)]
    below = {module: list(lines[module]) for module in order}  # in the next row
    for module in order:
        rows[level[module]].append(module)
        for low in lines[module]:
            for row in range(level[low] + 1, level[module]):
                rows[row].append((module, low, row))
                below[(module, low, row)] = [(module, low, row - 1)
                                             if row > level[low] + 1 else low]
            if level[module] > level[low] + 1:
                below[module][below[module].index(low)] = (module, low, level[module] - 1)
    x_of = {}
    for row in rows:
        row.sort(key=lambda item: (sum(x_of[low] for low in below[item]) /
                                   max(len(below[item]), 1), str(item)))
        widths = [BOX + GAP if isinstance(item, str) else GAP for item in row]
        left = (WIDTH - sum(widths)) / 2
        for i, item in enumerate(row):
            x_of[item] = left + sum(widths[:i]) + widths[i] / 2
    return rows, below, x_of


def line_of(at, item, low):
    """From the lower edge of a box, or of a place that a line passes, to the next below."""
    (x, y), (to_x, to_y) = at[item], at[low]
    y += HEIGHT
    bend = (to_y - y) / 2
    past = f" V{to_y + HEIGHT}" if isinstance(low, tuple) else ""
    return (f'<path class="use" d="M{x:.0f} {y} C{x:.0f} {y + bend:.0f} {to_x:.0f} '
            f'{to_y - bend:.0f} {to_x:.0f} {to_y}{past}"/>')


def picture(root):
    order = layers.module_order(root)
    lines = reduced(layers.declared_uses(root, order))
    used = {low for below in lines.values() for low in below}
    lines["apps"] = [module for module in order if module not in used]
    rows, below, x_of = rows_of(order + ["apps"], lines)
    kind = {module: name for name, _, modules in KINDS for module in modules}
    height = MARGIN * 2 + ROW * (len(rows) - 1) + HEIGHT + 34
    at = {item: (x_of[item], height - 34 - MARGIN - HEIGHT - level * ROW)
          for level, row in enumerate(rows) for item in row}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" role="img">',
             "<title>The modules of src/, each above those that it uses</title>", STYLE,
             f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>']
    parts += [line_of(at, item, low) for row in rows for item in row for low in below[item]]
    for module in order + ["apps"]:
        x, y = at[module]
        parts.append(f'<rect class="{kind[module]}" x="{x - BOX / 2:.0f}" y="{y}" '
                     f'width="{BOX}" height="{HEIGHT}" rx="4"/>'
                     f'<text class="name" x="{x:.0f}" y="{y + 20}" text-anchor="middle">'
                     f"{module}</text>")
    for i, (name, title, _) in enumerate(KINDS):
        x = MARGIN + i * (WIDTH - 2 * MARGIN) / len(KINDS)
        parts.append(f'<rect class="{name}" x="{x:.0f}" y="{height - 28}" width="14" height="14" '
                     f'rx="3"/><text x="{x + 20:.0f}" y="{height - 16}">{title}</text>')
    return "\n".join(parts + ["</svg>", ""])


def check(root):
    order = layers.module_order(root)
    kinds = [module for _, _, modules in KINDS for module in modules]
    found = [f"tests/style/module_map.py:1: KINDS does not name the module {module}"
             for module in order if module not in kinds]
    path = Path(root) / PICTURE
    if not found and (not path.exists()
                      or path.read_text(encoding="utf-8") != picture(root)):
        found.append(f"{PICTURE}:1: does not show what CMake says: run "
                     "python3 tests/style/module_map.py")
    return found


if __name__ == "__main__":
    tree = Path(__file__).resolve().parents[2]
    (tree / PICTURE).write_text(picture(tree), encoding="utf-8")
