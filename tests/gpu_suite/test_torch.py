"""The scripts that need PyTorch and a GPU, run through with a module that pretends to be it: no
number means anything here, but every line has been run before a GPU is there."""
import contextlib
import importlib.util
import io
import json
import re
import sys
import tempfile
import types
import unittest
from unittest import mock

from gpu_modules import ROOT
import predict

PERF = ROOT / "perf"


class Tensor:
    """What comes of every operation, and has every method."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: self

    def __len__(self):
        return 8

    def numel(self):
        return 1 << 30

    def item(self):
        return 1.0

    def __truediv__(self, other):
        return self

    __iadd__ = __add__ = __getitem__ = __truediv__


class Field(Tensor):
    """One field of four samples."""
    shape = (4, 2)

    def nonzero(self, as_tuple):
        return self, self

    def __setitem__(self, place, value):
        pass

    def __int__(self):
        return 1

    def __gt__(self, other):
        return self

    __lt__ = __mul__ = __rmul__ = __add__ = __getitem__ = __gt__


class Module:
    def compile(self):
        pass

    def __call__(self, *arguments):
        return Tensor()

    def named_parameters(self):
        return []

    def parameters(self):
        return []

    def train(self):
        return self


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    synchronize = record

    def elapsed_time(self, end):
        return 1.0  # milliseconds


def fake_torch():
    """Everything else is a Mock, of which nothing is asked but to be called."""
    torch = mock.MagicMock(name="torch")
    torch.__version__ = "0"
    torch.cuda.Event = Event
    torch.cuda.max_memory_allocated = lambda: 1
    torch.nn = types.SimpleNamespace(
        Module=Module, LayerNorm=mock.Mock(), Linear=mock.Mock(), Embedding=mock.Mock(),
        ModuleList=list, functional=mock.MagicMock(), utils=mock.MagicMock(), init=mock.Mock(),
        attention=mock.MagicMock())
    torch.compile = lambda model: model
    for name in ("zeros", "randn", "randint", "empty_like", "mm"):
        setattr(torch, name, lambda *arguments, **options: Tensor())
    return torch


# Of a sample, as trireme_samples prints them.
FIELDS = {"bert": ("tokens", "token_types", "lengths", "masked_positions", "masked_labels",
                   "masked_weights", "pair_labels", "pair_weights"),
          "t5": ("source", "source_lengths", "target", "target_lengths", "labels", "loss_mask")}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Scripts(unittest.TestCase):
    def setUp(self):
        torch = fake_torch()
        self.enterContext(mock.patch.dict(sys.modules, {
            "torch": torch, "torch.nn": torch.nn, "torch.nn.attention": torch.nn.attention}))
        self.enterContext(mock.patch.object(sys, "path", [*sys.path]))

    def printed(self, function, *arguments, stdin=""):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "stdin", io.StringIO(stdin)):
            function(*arguments)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_peaks(self):
        records = self.printed(load(PERF / "gpu" / "torch_peaks.py").peaks)
        peaks = {one["what"]: one["value"] for one in records if one["kind"] == "peak"}
        self.assertEqual(peaks.keys(), {"copy_bandwidth", "gemm_peak"})
        self.assertGreater(peaks["copy_bandwidth"], 0)

    def test_products_have_the_names_of_the_predictions(self):
        case = "gpt2-124m, dropout 0"
        records = self.printed(load(PERF / "gpu" / "torch_peaks.py").products,
                               str(predict.TALLY), case)
        names = {one["what"].removeprefix("torch: ") for one in records
                 if one["kind"] == "measured"}
        predictions, _ = predict.predict_all()
        self.assertEqual(names, {row.name for row in predictions["H200"][case]["rows"]
                                 if row.group in ("products", "head")})

    def test_attention(self):
        module = load(PERF / "gpu" / "torch_peaks.py")
        records = self.printed(module.attention)
        self.assertEqual([tuple(one["shape"]) for one in records], list(module.SHAPES))
        # Own kernels are timed in the same shapes.
        source = (PERF / "micro" / "attention.cpp").read_text(encoding="utf-8")
        heads = re.search(r"heads, head_size\] :\s+\{std::pair\((\d+), (\d+)\), (.*?)\}\)", source)
        pairs = {(int(heads[1]), int(heads[2])),
                 *((int(a), int(b)) for a, b in re.findall(r"\{(\d+), (\d+)\}", heads[3] + "}"))}
        lengths = re.search(r"const int sequence : \{([0-9, ]+)\}", source)[1].split(", ")
        self.assertEqual({shape[1::2] for shape in module.SHAPES}, pairs)
        self.assertEqual({shape[2] for shape in module.SHAPES}, set(map(int, lengths)))
        self.assertEqual({shape[0] * shape[2] for shape in module.SHAPES}, {16384})
        self.assertIn("kTokens = 16384;", source)

    def test_the_peer_that_is_but_compiled(self):
        script = load(PERF / "peers" / "gpt2_step_gpu.py")
        with mock.patch.object(sys, "argv", ["gpt2_step_gpu.py", "--layers", "2", "--warmup",
                                             "1", "--steps", "0"]):
            records = self.printed(script.main)
        self.assertEqual([("setup" in one, "summary" in one) for one in records],
                         [(True, False), (False, True)])

    def test_the_peer_of_whole_steps(self):
        script = load(PERF / "peers" / "gpt2_step_gpu.py")
        for layers in ("2", "40"):  # compiled as a whole, and one by one
            with mock.patch.object(sys, "argv", ["gpt2_step_gpu.py", "--serve", "--layers",
                                                 layers, "--accumulate", "3"]):
                records = self.printed(script.main, stdin="2\n\n1\n")
            self.assertTrue(records[0]["setup"])
            self.assertEqual([("seconds" in one, "summary" in one) for one in records[1:]],
                             [(True, False)] * 2 + [(False, True)]
                             + [(True, False)] + [(False, True)])


    def test_the_peers_of_bert_and_t5(self):
        for name in ("tensor", "arange", "full_like"):
            setattr(sys.modules["torch"], name, lambda *arguments, **options: Field())
        with mock.patch.dict(sys.modules, {"transformers": mock.MagicMock()}), \
                tempfile.NamedTemporaryFile("w", suffix=".jsonl") as samples:
            for kind in ("bert", "t5"):
                script = load(PERF / "peers" / "hugging_face_gpu.py")
                samples.seek(0)
                samples.truncate()
                samples.write(8 * (json.dumps({name: [1, 1] for name in FIELDS[kind]}) + "\n"))
                samples.flush()
                with mock.patch.object(sys, "argv", [
                        "hugging_face_gpu.py", kind, "--samples", samples.name, "--micro", "4",
                        "--accumulate", "2", "--layers", "2", "--steps", "2"]):
                    records = self.printed(script.main)
                self.assertEqual([("setup" in one, "seconds" in one, "summary" in one)
                                  for one in records],
                                 [(True, False, False), *[(False, True, False)] * 2,
                                  (False, False, True)])


if __name__ == "__main__":
    unittest.main()
