# tests/tools/test_plot_curve.py — tools/plot_curve on small logs: every point where it
# belongs, nice ticks, torn lines, and what it refuses.
import contextlib
import importlib.machinery
import importlib.util
import io
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "plot_curve"
sys.path.insert(0, str(TOOL.parent))  # as where it is started as a program
loader = importlib.machinery.SourceFileLoader("plot_curve", str(TOOL))
plot_curve = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("plot_curve", loader))
loader.exec_module(plot_curve)
import plot_axes  # noqa: E402

LOG = ('{"step": 10, "loss": 8.5, "tokens": 1000}\n{"step": 20, "loss": 6, "tokens": 2000}\n'
       '{"validation": {"step": 20, "name": "held out", "loss": 6.25}}\n')


class PlotCurve(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def run_of(self, name, text):
        (self.root / name).mkdir()
        (self.root / name / "train.jsonl").write_text(text, encoding="utf-8")
        return str(self.root / name)

    def draw(self, *arguments):
        """(status, picture or None, what was said)"""
        out, said = self.root / "curve.svg", io.StringIO()
        with contextlib.redirect_stderr(said):
            status = plot_curve.main([*arguments, "-o", str(out)])
        self.assertEqual([], list(self.root.glob("*.part")))
        picture = out.read_text(encoding="utf-8") if out.exists() else None
        return status, picture, said.getvalue()

    def test_points_lie_on_the_axes_they_are_read_by(self):
        status, picture, said = self.draw(self.run_of("a", LOG), "--reference", "7.5:entropy")
        self.assertEqual((status, said), (0, ""))
        tree = ElementTree.fromstring(picture)
        space = "{http://www.w3.org/2000/svg}"
        at = {}  # tick text -> place, of the y axis
        for text in tree.iter(space + "text"):
            if text.get("text-anchor") == "end" and re.fullmatch(r"[\d.]+", text.text or ""):
                at[float(text.text)] = float(text.get("y")) - 4.5
        low, high = min(at), max(at)
        self.assertLessEqual(low, 6)
        self.assertGreaterEqual(high, 8.5)

        def loss_at(y):
            return low + (float(y) - at[low]) / (at[high] - at[low]) * (high - low)

        curves = [line.get("points").split() for line in tree.iter(space + "polyline")]
        drawn = [[loss_at(point.split(",")[1]) for point in curve] for curve in curves]
        for got, wanted in zip(drawn, ([8.5, 6], [6.25]), strict=True):
            for a, b in zip(got, wanted, strict=True):
                self.assertAlmostEqual(a, b, delta=0.02)
        # The second point of the loss and the validation are of the same step.
        self.assertEqual(curves[0][1].split(",")[0], curves[1][0].split(",")[0])
        self.assertIn("entropy (7.5)", picture)

    def test_ticks(self):
        self.assertEqual(plot_axes.nice_ticks(0, 1000, 6), [0, 200, 400, 600, 800, 1000])
        self.assertEqual(plot_axes.nice_ticks(2.2, 8.9, 6), [2, 3, 4, 5, 6, 7, 8, 9])
        ticks = plot_axes.nice_ticks(3, 3, 6)
        self.assertTrue(ticks[0] < 3 < ticks[-1])
        self.assertEqual(plot_axes.tick_text(2.5e6, 5e5), "2500k")
        self.assertEqual(plot_axes.tick_text(20e6, 5e6), "20M")
        self.assertEqual(plot_axes.tick_text(0.30000000000000004, 0.1), "0.3")

    def lines_of(self, picture):
        """{what the legend says: (colour, dashes)}, each as one drawn curve has them."""
        space = "{http://www.w3.org/2000/svg}"
        tree = ElementTree.fromstring(picture)
        style = tree.find(space + "style").text  # light colours first
        colours = dict(re.findall(r"\.(r\d+) \{ stroke: ([^;]+);", style)[::-1])

        def look(element):
            number = re.search(r"\br\d+\b", element.get("class"))
            return (colours[number.group()], element.get("stroke-dasharray")) if number else None
        elements = list(tree.iter())
        legend = {text.text: look(line) for line, text in zip(elements, elements[1:])
                  if line.tag == space + "line" and text.tag == space + "text"
                  and look(line) is not None}
        curves = [look(curve) for curve in tree.iter(space + "polyline")]
        self.assertEqual(list(legend.values()), curves)
        return legend

    def test_validation_sets_can_be_told_apart(self):
        more = "".join('{"validation": {"step": %d, "name": "%s", "loss": %g}}\n'
                       % (step, name, loss) for step in (10, 20)
                       for name, loss in (("training text", 5), ("code", 7), ("a<b", 8)))
        _, picture, _ = self.draw(self.run_of("a", LOG + more))
        lines = self.lines_of(picture)
        self.assertEqual(list(lines), ["training loss"] + [
            f"validation loss ({name})" for name in ("held out", "training text", "code", "a<b")])
        self.assertEqual(len({colour for colour, _ in lines.values()}), 5)
        self.assertEqual(len({dashes for _, dashes in list(lines.values())[1:]}), 4)

        # Of several runs each line has a colour of its own, a set the same dashes everywhere.
        names = ("b", "c", "d")
        _, picture, _ = self.draw(*(self.run_of(name, LOG + more) for name in names))
        lines = self.lines_of(picture)
        self.assertEqual(len({colour for colour, _ in lines.values()}), 15)
        for text in ("held out", "training text", "code"):
            dashes = {lines[f"{name}: validation loss ({text})"][1] for name in names}
            self.assertEqual(len(dashes), 1)

    def test_one_validation_set_has_its_runs_colour(self):
        lines = self.lines_of(self.draw(self.run_of("a", LOG), self.run_of("b", LOG))[1])
        self.assertEqual(lines["a: training loss"], lines["a: validation loss"])
        self.assertNotEqual(lines["a: training loss"], lines["b: training loss"])

    def test_several_runs_and_tokens(self):
        runs = self.run_of("a", LOG), self.run_of("b<&", LOG)
        status, picture, _ = self.draw(*runs, "--x", "tokens")
        self.assertEqual(status, 0)
        ElementTree.fromstring(picture)
        for words in ("a: training loss", "b&lt;&amp;: validation loss", ">tokens<"):
            self.assertIn(words, picture)

    def test_torn_and_empty_values(self):
        text = LOG + '{"step": 30, "loss": null, "tokens": 3000}\n{"step": 40, "lo'
        status, picture, said = self.draw(self.run_of("a", text))
        self.assertEqual(status, 0)
        self.assertIn("1 unreadable line", said)
        self.assertNotIn("nan", picture)

    def test_what_cannot_be_drawn(self):
        for argument in (str(self.root / "nowhere"), self.run_of("empty", "")):
            status, picture, said = self.draw(argument)
            self.assertEqual((status, picture), (2, None))
            self.assertIn("train.jsonl", said)


if __name__ == "__main__":
    unittest.main()
