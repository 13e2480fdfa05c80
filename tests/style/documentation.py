# tests/style/documentation.py — what the pages (*.md) say about the tree is so: links lead
# to a file and a heading, paths in `code` exist, commands have the options they are shown
# with, keys are in the deck, and functions and types that the developer's pages name are
# in the code.
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

import source_tree

FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n(.*?)^\1\2[^\n]*$", re.M | re.S)
INLINE_CODE = re.compile(r"(`+)(.+?)\1", re.S)
COMMENT = re.compile(r"<!--.*?-->", re.S)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\](?:\([^()]*\))?)*\]\(\s*<?([^()\s<>]+)>?[^()]*\)")
HTML_LINK = re.compile(r'<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)="([^"]+)"')
HEADING = re.compile(r"^(?:#{1,6})[ \t]+(.+?)[ \t]*#*$", re.M)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SECTIONS = "model|data|batch|parallel|precision|memory|optimizer|run|checkpoint"
KEY = re.compile(rf"(?:{SECTIONS})\.[a-z_]+(?:\.[a-z_]+)*")
FILE_SUFFIXES = (".h5", ".safetensors", ".txt", ".json", ".yaml", ".bin", ".cpp", ".hpp")
# Pages that speak of functions and files of the code.
CODE_PAGES = ("docs/developer/", "docs/math/")
CALL = re.compile(r"(?:\w+(?:<\w+>)?::)*(~?\w+)(?:<\w+>)?\(\)")
CPP_BLOCK = re.compile(r"^( *)```cpp\n(.*?)^\1```", re.M | re.S)
TYPE = re.compile(r"\b[A-Z]\w*[a-z]\w*")
# What a page's example declares: a class, or a test's suite and name.
DECLARED = re.compile(r"\b(?:class|struct)\s+(\w+)|\b(?:TYPED_)?TEST(?:_F)?\((\w+),\s*(\w+)")


def blanked(text, pattern):
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def anchors(text):
    seen, found = {}, set()
    for match in HEADING.finditer(blanked(text, FENCE)):
        name = slug(match.group(1))
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def check_links(root, names, page, text):
    prose = blanked(blanked(blanked(text, FENCE), COMMENT), INLINE_CODE)
    for match in list(LINK.finditer(prose)) + list(HTML_LINK.finditer(prose)):
        target = match.group(1)
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = normpath(str(PurePosixPath(page).parent / path)) if path else page
        if file not in names and not any(name.startswith(file + "/") for name in names):
            yield match.start(1), f"link to '{target}': there is no {file}"
        elif anchor and file.endswith(".md"):
            if anchor not in anchors(source_tree.text_of(root, file)):
                yield match.start(1), f"link to '{target}': {file} has no heading #{anchor}"


def code_pieces(text):
    """(offset, text, whether it is a line of a block): lines are joined where they go on."""
    for match in FENCE.finditer(text):
        body = match.group(3).replace("\\\n", "  ")
        offset = match.start(3)
        for line in body.split("\n"):
            yield offset, line, True
            offset += len(line) + 1
    for match in INLINE_CODE.finditer(blanked(blanked(text, FENCE), COMMENT)):
        yield match.start(2), match.group(2).replace("\n", " "), False


def options_of_commands(root, names):
    """'trireme train' -> its options, read off the sources of the commands and scripts."""
    known, shared = {}, set()  # shared: those that several commands add by a helper
    for name in names:
        if name.startswith("apps/") and name.endswith(".cpp"):
            text = source_tree.blank(source_tree.text_of(root, name), literals=False)
            command = re.search(r'\.add_command\(\s*"([a-z-]+)"', text)
            found = re.findall(r'\badd_(?:option|flag|unsigned)\((?:command,)?\s*"([^"]+)"', text)
            options = set(OPTION.findall(" ".join(found)))
            if command:
                known["trireme " + command.group(1)] = options
            else:
                shared |= options
    for options in known.values():
        options |= shared
    for name in ("quickstart", "tools/bootstrap", "tools/scaling"):
        if name in names:
            cases = re.findall(r"^ +(-[^()\n]*)\)", source_tree.text_of(root, name), re.M)
            known[name] = set(OPTION.findall(" ".join(cases)))
    for tool, source in (("tools/plot_curve", "tools/plot_curve"),
                         ("tools/plot_trace", "tools/plot_trace"),
                         ("tools/report", "tools/report_page/command.py")):
        if source in names:
            text = source_tree.text_of(root, source)
            known[tool] = set(re.findall(r'"(--[a-z-]+)"', text))
    return known


def check_commands(known, piece):
    commands = [name for name in known if name.startswith("trireme ")]
    for match in re.finditer(r"(?:^|[\s/])(trireme +[a-z]+|quickstart|tools/[a-z_]+)"
                             r"(?=\s|$)([^|;&#]*)", piece):
        name = re.sub(" +", " ", match.group(1))
        if name in known:
            for option in OPTION.findall(match.group(2)):
                if option not in known[name] | {"--help"}:
                    yield f"{name} has no option {option}"
        elif commands and match.group(0).lstrip().startswith(name) and \
                name.startswith("trireme "):
            yield f"trireme has no command '{name.split()[1]}'"


def check_paths(names, tops, piece):
    word = re.sub(r":\d+$", "", (piece.split() or [""])[0]).rstrip(",;")
    if "/" not in word or word.split("/")[0] not in tops or re.search(r"[<$*…]|\.\.\.", word):
        return
    alternatives = re.search(r"\{([^}]*)\}", word)
    for part in alternatives.group(1).split(",") if alternatives else [None]:
        path = word if part is None else word.replace(alternatives.group(0), part)
        path = path.rstrip("/")
        if path not in names and not any(name.startswith(path + "/") for name in names):
            yield f"there is no {path}"


def deck_keys(root, names):
    keys = set()
    for name in names:
        if name.startswith("src/config/") and name.endswith(".cpp"):
            text = source_tree.text_of(root, name)
            keys |= set(re.findall(rf'(?:"|TRIREME_AT\()((?:{SECTIONS})\.[a-z_.]+)[")]', text))
    return keys


def check_keys(keys, piece):
    words = re.findall(r"--set +'?([a-z_.]+)=", piece)
    if KEY.fullmatch(piece.strip()):
        words.append(piece.strip())
    for word in words:
        if word == "key" or word.endswith(FILE_SUFFIXES):
            continue
        if word not in keys and not any(key.startswith(word + ".") for key in keys):
            yield f"the deck has no key {word}"


def check_types(words, text):
    """Types in blocks of C++ that are neither in the code nor declared on the page."""
    blocks = [(match.start(2), source_tree.blank(match.group(2)))
              for match in CPP_BLOCK.finditer(text)]
    declared = {name for _, block in blocks for names in DECLARED.findall(block)
                for name in names}
    for offset, block in blocks:
        for match in TYPE.finditer(block):
            if match.group(0) not in words | declared:
                yield offset + match.start(), f"no {match.group(0)} in the code"


def check(root):
    names = set(source_tree.files(root))
    tops = {name.split("/")[0] for name in names if "/" in name}
    known, keys = options_of_commands(root, names), deck_keys(root, names)
    words = set()
    for name in names:
        if name.split("/")[0] in ("src", "apps", "tests", "perf", "cmake") and \
                name.endswith((".hpp", ".cpp", ".cmake", ".txt", ".py")):
            words |= set(re.findall(r"\w+", source_tree.text_of(root, name) or ""))
    found = []
    for page in sorted(name for name in names if name.endswith(".md")):
        text = source_tree.text_of(root, page)
        problems = list(check_links(root, names, page, text))
        problems += check_types(words, text) if page.startswith(CODE_PAGES) else []
        for offset, piece, is_block in code_pieces(text):
            said = list(check_commands(known, piece))
            said += check_paths(names, tops, piece)
            said += check_keys(keys, piece) if keys else []
            if page.startswith(CODE_PAGES) and not is_block:  # blocks show what may be written
                said += [f"no {match.group(1)}() in the code"
                         for match in CALL.finditer(piece) if match.group(1) not in words]
            problems += [(offset, what) for what in said]
        found += [f"{page}:{source_tree.line_of(text, offset)}: {what}"
                  for offset, what in sorted(problems)]
    return found
