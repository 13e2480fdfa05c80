# tests/style/top_comments.py — a source of more than LONG lines says at its top why it is
# built as it is, in SENTENCES sentences at least. "See x.hpp." is none of them: that header
# tells users what they get, and the top of a source tells who changes it what to know first.
import re
from pathlib import Path

import source_tree

LONG = 150
SENTENCES = 3


def top_comment(text):
    """The comment that the file begins with, as one text without its file name."""
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    words = " ".join(lines)
    return re.sub(r"[\w/]+\.hpp\b\.?", "", words.split(" — ", 1)[-1])


def sentences(comment):
    return len(re.findall(r"[\w)`\]\"][.!?:](?=\s|$)", re.sub(r"\b(?:al|alg|Fig|e\.g|i\.e)\.",
                                                             "", comment)))


def check(root):
    found = []
    for name in source_tree.cpp_files(root, "src", "apps"):
        text = source_tree.text_of(root, name)
        says = sentences(top_comment(text))
        if text.count("\n") > LONG and says < SENTENCES:
            found.append(f"{name}:1: {text.count(chr(10))} lines, and {says} of {SENTENCES} "
                         "sentences at the top on why it is built so")
    return found
