# tests/style/layers.py — the layered graph of the modules (src/<module>), lowest first in
# CMakeLists.txt's TRIREME_MODULES: an include may only go to a lower layer, and only to a
# module that the CMake target says it uses; what it says it uses, it includes. An order has
# no cycles, so no two modules can use each other.
import re
from pathlib import Path

import source_tree

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def module_order(root):
    text = (Path(root) / "CMakeLists.txt").read_text(encoding="utf-8")
    match = re.search(r"set\(TRIREME_MODULES\s+([^)]*)\)", text)
    return match.group(1).split() if match else []


def direct_uses(root, order):
    """module -> the modules that its CMakeLists.txt names under USES."""
    direct = {}
    for module in order:
        path = Path(root) / "src" / module / "CMakeLists.txt"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = re.sub(r"#[^\n]*", "", text)
        match = re.search(r"trireme_add_module\(([^)]*)\)", text)
        words = match.group(1).split() if match else []
        uses, keyword = set(), None
        for word in words[1:]:
            if word in ("SOURCES", "USES", "LIBRARIES", "PUBLIC_LIBRARIES"):
                keyword = word
            elif keyword == "USES":
                uses.add(word)
        direct[module] = uses
    return direct


def declared_uses(root, order):
    """module -> the modules its target links, directly or through others."""
    direct = direct_uses(root, order)
    closure = {}
    for module in order:  # lowest first, so what it uses is complete already
        closure[module] = set(direct[module])
        for used in direct[module]:
            closure[module] |= closure.get(used, set())
    return closure


def check(root):
    order = module_order(root)
    if not order:
        return ["CMakeLists.txt: no set(TRIREME_MODULES ...) to take the layers from"]
    uses = declared_uses(root, order)
    unused = {(module, low) for module, below in direct_uses(root, order).items() for low in below}
    found = []
    for name in source_tree.cpp_files(root, "src", "apps"):
        parts = name.split("/")
        module = "apps" if parts[0] == "apps" else parts[1]
        if module != "apps" and module not in order:
            found.append(f"{name}:1: src/{module} is not among TRIREME_MODULES ({order})")
            continue
        text = source_tree.text_of(root, name)
        for match in INCLUDE.finditer(source_tree.blank(text, literals=False)):
            where = f"{name}:{source_tree.line_of(text, match.start(2))}"
            target = match.group(2)
            first = target.split("/")[0]
            unused.discard((module, first))
            if match.group(1) == "<":
                if first in order and "/" in target and target.endswith(".hpp"):
                    found.append(f'{where}: own header in <>: write "{target}"')
                continue
            if first == "apps" or (module == "apps" and "/" not in target):
                if module != "apps":
                    found.append(f"{where}: {module} includes {target}: only apps may")
                continue
            if first not in order:
                found.append(f'{where}: "{target}" does not name its module '
                             "(write the path below src/)")
            elif not any((Path(root) / "src" / f"{target}{end}").exists() for end in ("", ".in")):
                found.append(f'{where}: "{target}" does not exist in src/')
            elif module == "apps" or first == module:
                continue
            elif order.index(first) > order.index(module):
                found.append(f"{where}: {module} includes {target}, of a higher layer "
                             f"({' < '.join(order)})")
            elif first not in uses[module]:
                found.append(f"{where}: {module} includes {target}, but "
                             f"src/{module}/CMakeLists.txt has no {first} under USES")
    for module, low in sorted(unused):
        found.append(f"src/{module}/CMakeLists.txt:1: USES names {low}, of which src/{module} "
                     "includes nothing")
    return found
