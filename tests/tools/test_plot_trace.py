# tests/tools/test_plot_trace.py — tools/plot_trace on a small trace: every event where it
# belongs, what is left out, and what it refuses.
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "plot_trace"
sys.path.insert(0, str(TOOL.parent))  # as where it is started as a program
loader = importlib.machinery.SourceFileLoader("plot_trace", str(TOOL))
plot_trace = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("plot_trace", loader))
loader.exec_module(plot_trace)


def event(rank, row, name, begin, duration, **arguments):
    return {"name": name, "ph": "X", "pid": rank, "tid": row, "ts": begin, "dur": duration,
            "args": arguments}


EVENTS = [
    event(0, 0, "forward 0", 0.0, 4000.0, microbatch=0, chunk=0),
    event(0, 1, "send", 4000.0, 1000.0, site="activations"),
    event(1, 0, "forward 0", 5000.0, 5000.0, microbatch=0, chunk=0),
    event(1, 0, "wait", 5000.0, 500.0, site="a < b"),
    event(1, 0, "attention", 5500.0, 2000.0),  # a part of the pass, which it would hide
    event(1, 2, "backward 0", 6000.0, 1000.0, microbatch=0),  # as the device was at it
    {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "kernels"}},
    {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0: stage 0"}},
    {"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "pipeline messages"}},
]


class PlotTrace(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)

    def draw(self, text, *arguments):
        """(status, boxes by what they say or None, what was said)"""
        trace, out, said = self.root / "trace.json", self.root / "trace.svg", io.StringIO()
        trace.write_text(text, encoding="utf-8")
        with contextlib.redirect_stderr(said):
            status = plot_trace.main([str(trace), "-o", str(out), *arguments])
        self.assertEqual([], list(self.root.glob("*.part")))
        if not out.exists():
            return status, None, said.getvalue()
        space = "{http://www.w3.org/2000/svg}"
        boxes = {}
        for box in ElementTree.fromstring(out.read_text(encoding="utf-8")).iter(space + "rect"):
            title = box.find(space + "title")
            if title is not None:
                boxes.setdefault(title.text, []).append(
                    (box.get("class"), float(box.get("x")), float(box.get("width"))))
        return status, boxes, said.getvalue()

    def test_events_lie_where_they_were(self):
        status, boxes, said = self.draw(json.dumps({"traceEvents": EVENTS}))
        self.assertEqual((status, said), (0, ""))
        scale = (plot_trace.WIDTH - plot_trace.LEFT - plot_trace.RIGHT) / 10.0  # per ms
        for what, kind, begin, duration in (
                ("forward 0, microbatch 0, chunk 0: 4.000 ms", "forward", 0, 4),
                ("forward 0, microbatch 0, chunk 0: 5.000 ms", "forward", 5, 5),
                ("send, site activations: 1.000 ms", "message", 4, 1),
                ("backward 0, microbatch 0: 1.000 ms", "backward", 6, 1),
                ("wait, site a < b: 0.500 ms", "wait", 5, 0.5)):
            ((got_kind, x, width),) = boxes[what]
            self.assertEqual(got_kind, kind)
            self.assertAlmostEqual(x, plot_trace.LEFT + scale * begin, delta=0.02)
            self.assertAlmostEqual(width, scale * duration, delta=0.02)
        self.assertEqual([], [what for what in boxes if what.startswith("attention")])

    def ticks(self):
        """[(what a tick says, its place)] of the last picture."""
        space, tree = "{http://www.w3.org/2000/svg}", ElementTree.parse(self.root / "trace.svg")
        elements = list(tree.iter())
        return [(text.text, float(line.get("x1"))) for line, text in zip(elements, elements[1:])
                if line.tag == space + "line" and text.tag == space + "text"]

    def test_ticks_are_round_numbers(self):
        def ticks_of(end, *arguments):
            events = [event(0, 0, "forward 0", 0.0, 1000.0 * end)]
            self.assertEqual(self.draw(json.dumps({"traceEvents": events}), *arguments)[0], 0)
            return self.ticks()
        width = plot_trace.WIDTH - plot_trace.LEFT - plot_trace.RIGHT
        for end, texts in ((492.07, ["0", "100", "200", "300", "400"]),
                           (10.0, ["0", "2", "4", "6", "8", "10"]),
                           (310.0, ["0", "50", "100", "150", "200", "250", "300"])):
            ticks = ticks_of(end)
            self.assertEqual([text for text, _ in ticks], texts)
            for text, x in ticks:
                self.assertAlmostEqual(x, plot_trace.LEFT + width * float(text) / end, delta=0.1)
        texts = [text for text, _ in ticks_of(50.0, "--from", "12.5", "--to", "40.1")]
        self.assertEqual(texts, ["15", "20", "25", "30", "35", "40"])
        texts = [text for text, _ in ticks_of(12000.0)]  # in seconds
        self.assertEqual(texts, ["0", "2", "4", "6", "8", "10", "12"])

    def test_parts_of_it(self):
        text = json.dumps({"traceEvents": EVENTS})
        _, boxes, _ = self.draw(text, "--ranks", "1")
        self.assertEqual(len(boxes), 3)
        _, boxes, _ = self.draw(text, "--from", "4.5", "--to", "4.9")
        self.assertEqual(list(boxes), ["send, site activations: 1.000 ms"])

    def test_what_it_refuses(self):
        for text in ("", "[]", "{}", '{"traceEvents": [{"ph": "X"}]}'):
            status, boxes, said = self.draw(text)
            self.assertEqual((status, boxes), (2, None))
            self.assertIn("is no trace", said)
        text = json.dumps({"traceEvents": EVENTS})
        self.assertIn("no events", self.draw('{"traceEvents": []}')[2])
        self.assertIn("no rank 7", self.draw(text, "--ranks", "0,7")[2])
        self.assertIn("nothing lies between", self.draw(text, "--from", "20")[2])
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(plot_trace.main(["/no/such", "-o", "x.svg"]), 2)
        self.assertIn("cannot read '/no/such'", said.getvalue())


if __name__ == "__main__":
    unittest.main()
