# tests/style/source_tree.py — the files that the style checks read, and C++ text with its
# comments or literals blanked out.
import re
import subprocess
from pathlib import Path

SKIPPED_DIRECTORIES = {".git", ".deps", "build", "runs", "install", "__pycache__"}
BINARY_SUFFIXES = {".png", ".h5", ".bin", ".safetensors", ".gz", ".npy", ".npz", ".pyc"}


def files(root):
    """All files of the tree, tracked or new, as paths relative to it; build outputs not."""
    root = Path(root)
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode().split("\0")
        names = [name for name in listed if name and (root / name).is_file()]
        if not (root / ".git").exists():  # inside some other repository
            raise ValueError
    except (OSError, ValueError, subprocess.CalledProcessError):
        names = [str(path.relative_to(root)) for path in root.rglob("*")
                 if path.is_file() and not SKIPPED_DIRECTORIES & set(path.relative_to(root).parts)]
    return sorted(names)


def text_of(root, name):
    """The text of a file; None where it is not text."""
    if Path(name).suffix in BINARY_SUFFIXES:
        return None
    try:
        return (Path(root) / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def cpp_files(root, *directories):
    return [name for name in files(root)
            if name.endswith((".hpp", ".cpp")) and name.split("/")[0] in directories]


_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)


def blank(text, comments=True, literals=True):
    """The same text, line for line, with comments and literals turned into blanks."""
    def replace(match):
        token = match.group(0)
        if token.startswith("/") and not comments:
            return token
        if not token.startswith("/") and not literals:
            return token
        return re.sub(r"[^\n]", " ", token)
    return _TOKENS.sub(replace, text)


def lines_in_raw_strings(text):
    """The numbers of the lines that R"(...)" literals lie on."""
    numbers = set()
    for match in _TOKENS.finditer(text):
        if match.group(0).startswith("R"):
            numbers.update(range(line_of(text, match.start()), line_of(text, match.end()) + 1))
    return numbers


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
