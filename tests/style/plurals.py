# tests/style/plurals.py — numbers with what they count go through format_plural()
# (base/plural.hpp): "{} ranks" in a message is "1 ranks" one day.
import re

import source_tree

# A whole number, as a placeholder without a precision, and a word that ends in s. Words of
# which none is the plural of a thing:
NO_PLURALS = {"is", "as", "this", "has", "was", "does", "axis", "loss", "begins", "claims", "ends",
              "expects", "holds", "keeps", "lacks", "lists", "makes", "needs", "receives", "says",
              "sends", "suits", "takes", "times"}
COUNT = re.compile(r"(?<!\{)\{(?:\d+|:[,d]*)?\} ([a-z][a-z-]*s)\b")
CHOICE = re.compile(r'\? *"" *: *"e?s"|\? *"e?s" *: *""')
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def texts(code):
    """String literals, those that the compiler joins as one: (place, text)."""
    text, place, end = "", 0, -1
    for match in LITERAL.finditer(code):
        if end < 0 or code[end:match.start()].strip():
            if text:
                yield place, text
            text, place = "", match.start()
        text += match.group(1)
        end = match.end()
    if text:
        yield place, text


def check(root):
    found = []
    for name in source_tree.cpp_files(root, "src", "apps"):
        if name == "src/base/plural.cpp":
            continue
        code = source_tree.blank(source_tree.text_of(root, name), literals=False)
        problems = [(place, f"'{match.group(0)}'") for place, text in texts(code)
                    for match in COUNT.finditer(text) if match.group(1) not in NO_PLURALS]
        problems += [(match.start(), match.group(0)) for match in CHOICE.finditer(code)]
        found += [f"{name}:{source_tree.line_of(code, place)}: {what}: format_plural()"
                  for place, what in sorted(problems)]
    return found
