"""The archive: what goes into it, and that --check sees what is wrong with one.

The programs for the GPU are small ones, compiled here, that need a library of their own; the
CPU's values are of the trireme in TRIREME_BINARY.
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import gpu_modules
import bundle
import check
import history
import loader
import pack

LIBRARY = "int answer(void) { return 42; }\n"
PROGRAM = "int answer(void);\nint main(void) { return answer() - 42; }\n"


def compile_c(text, out, *more):
    subprocess.run([os.environ.get("CC", "cc"), "-x", "c", "-", "-x", "none", "-o",
                    str(out), *more],
                   input=text, encoding="utf-8", check=True)


def build_programs(build, names=pack.PROGRAMS):
    """As pack.build_programs() leaves them: linked to look beside themselves first."""
    (build / "bin").mkdir(parents=True)
    (build / "lib").mkdir()
    compile_c(LIBRARY, build / "lib" / "libanswer.so.1", "-shared", "-fPIC",
              "-Wl,-soname,libanswer.so.1")
    for name in names:
        compile_c(PROGRAM, build / "bin" / name, str(build / "lib" / "libanswer.so.1"),
                  "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib")


class Ldd(unittest.TestCase):
    def test_what_it_prints_is_sorted_out(self):
        ours, nvidia, missing = loader.sort_out(loader.read_ldd("""\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibcublasLt.so.13 => not found
\tlibcuda.so.1 => not found
\tlibmpich.so.12 => /lib/x86_64-linux-gnu/libmpich.so.12 (0x00007f01)
\tlibyaml-cpp.so.0.7 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f02)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f03)
"""))
        self.assertEqual(ours, {"libmpich.so.12": "/lib/x86_64-linux-gnu/libmpich.so.12"})
        self.assertEqual((nvidia, missing), (["libcublasLt.so.13"], ["libyaml-cpp.so.0.7"]))


class Sources(unittest.TestCase):
    def test_kernels_can_be_compiled_from_what_is_taken_along(self):
        found = [str(path) for path in pack.kernel_sources()]
        for name in ("kernels/cuda/attention_forward.cu", "kernels/cuda/launch.cuh",
                     "kernels/cuda/warp.hpp"):
            self.assertIn(name, found)
        # All of them are linked together.
        self.assertEqual([name for name in found if "_none" in name], [])
        # Nothing that is no header of the tree is asked for by quotes.
        for name in found:
            text = (pack.ROOT / "src" / name).read_text(encoding="utf-8")
            for one in pack.INCLUDE.findall(text):
                self.assertIn(one, found, name)


class Archive(unittest.TestCase):
    """One archive, made once."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.scratch = pathlib.Path(cls.directory.name)
        host = cls.scratch / "host"
        host.mkdir()
        (host / "trireme").symlink_to(os.environ["TRIREME_BINARY"])
        masks = host / "trireme_gpu_masks"
        masks.write_text('#!/bin/sh\necho \'{"mask": "residual bf16", "digest": "0123"}\'\n')
        masks.chmod(0o755)
        gpu_modules.write_samples_program(host / "trireme_samples")
        build_programs(cls.scratch / "build")
        cls.addClassCleanup(setattr, pack, "WORDS_OF_TEXT", pack.WORDS_OF_TEXT)
        pack.WORDS_OF_TEXT = 20_000
        cls.addClassCleanup(setattr, pack, "PRESET", pack.PRESET)
        pack.PRESET = 1  # a tenth of the time, which is most of the test's
        cls.stage = cls.scratch / pack.NAME
        cls.stage.mkdir()
        pack.fill(cls.stage, cls.scratch / "build", host)
        cls.archive = cls.scratch / "archive.tar.gz"
        cls.size = pack.write_archive(cls.stage, cls.archive)

    def check(self, archive):
        """Status, and what was printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = check.check(archive)
        return status, printed.getvalue()

    def changed(self, change):
        """An archive of a copy that was spoilt."""
        stage = self.scratch / "spoilt" / pack.NAME
        shutil.copytree(self.stage, stage, symlinks=True)
        self.addCleanup(shutil.rmtree, stage.parent)
        change(stage)
        archive = stage.parent / "archive.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as file:
            file.add(stage, arcname=pack.NAME)
        return archive

    def test_it_has_what_is_needed_and_is_small(self):
        self.assertLess(self.size, pack.MOST_BYTES)
        with tarfile.open(self.archive) as file:
            names = set(file.getnames())
        for name in check.NEEDED:
            self.assertIn(f"{pack.NAME}/{name}", names)
        self.assertIn(f"{pack.NAME}/lib/libanswer.so.1", names)
        self.assertNotIn(f"{pack.NAME}/lib/libc.so.6", names)

    def test_it_has_what_the_cpu_says(self):
        losses = json.loads((self.stage / "expected" / "losses.json").read_text())
        self.assertEqual(sorted(map(int, losses)), [1, 2, 3, 4, 5, 6])
        self.assertLess(losses["6"], losses["1"])
        weights = json.loads((self.stage / "expected" / "weights.json").read_text())
        self.assertIn("model/embedding/word/weight", weights)
        weights = json.loads((self.stage / "expected" / "weights-tiny-t5.json").read_text())
        self.assertIn("model/decoder/relative_bias/weight", weights)
        losses = json.loads((self.stage / "expected" / "losses-tiny-bert.json").read_text())
        self.assertEqual(sorted(map(int, losses)), [1, 2, 3, 4, 5, 6])
        samples = (self.stage / "expected" / "samples-t5-small.jsonl").read_text()
        self.assertEqual(len(samples.splitlines()), 128)
        self.assertEqual(json.loads((self.stage / "expected" / "masks.json").read_text()),
                         {"residual bf16": "0123"})

    def test_it_names_libraries_that_the_loader_does_not(self):
        manifest = json.loads((self.stage / "manifest.json").read_text())
        self.assertEqual(manifest["optional_libraries"], ["libcudnn.so.9"])

    def test_it_says_what_it_is_of(self):
        manifest = json.loads((self.stage / "manifest.json").read_text())
        self.assertEqual(manifest["commit"], history.commit_of_tree())
        self.assertEqual(manifest["predictions_changed"], history.predictions_changed())
        self.assertIsNone(manifest["kernels"])  # these programs need no such library
        library = self.scratch / "lib" / pack.KERNEL_LIBRARY
        library.parent.mkdir()
        library.write_bytes(b"kernels")
        self.assertEqual(len(bundle.digest_of_kernels(self.scratch)), 64)

    def test_it_starts(self):
        status, printed = self.check(self.archive)
        self.assertEqual(status, 0, printed)

    def test_a_library_that_is_not_taken_along_is_seen(self):
        status, printed = self.check(self.changed(
            lambda stage: (stage / "lib" / "libanswer.so.1").unlink()))
        self.assertEqual(status, 1)
        self.assertIn("libanswer.so.1 is not found", printed)
        self.assertIn("bin/trireme does not start", printed)

    def test_a_library_of_this_machine_is_seen(self):
        def change(stage):
            (stage / "bin" / "trireme").unlink()
            compile_c(PROGRAM, stage / "bin" / "trireme",
                      str(self.scratch / "build" / "lib" / "libanswer.so.1"),
                      f"-Wl,--disable-new-dtags,-rpath,{self.scratch / 'build' / 'lib'}")
        status, printed = self.check(self.changed(change))
        self.assertEqual(status, 1)
        self.assertIn("bin/trireme: libanswer.so.1 is this machine's", printed)

    def test_a_file_that_is_missing_is_seen(self):
        status, printed = self.check(self.changed(
            lambda stage: (stage / "corpora" / "gpt2.h5").unlink()))
        self.assertEqual(status, 1)
        self.assertIn("corpora/gpt2.h5", printed)

    def test_a_part_that_does_not_know_status_77_is_seen(self):
        def change(stage):
            text = (stage / "gpu" / "steps.py").read_text()
            (stage / "gpu" / "steps.py").write_text(text.replace("NO_GPU = 77", "NO_GPU = 1"))
        status, printed = self.check(self.changed(change))
        self.assertEqual(status, 1)
        self.assertIn("gpu_suite truth ended with status 1", printed)

    def test_files_outside_are_refused(self):
        archive = self.scratch / "outside.tar.gz"
        with tarfile.open(archive, "w:gz") as file:
            entry = tarfile.TarInfo(f"{pack.NAME}/../../evil")
            file.addfile(entry, io.BytesIO())
        status, printed = self.check(archive)
        self.assertEqual(status, 1)
        self.assertIn("is no file or directory of", printed)

    def test_too_large_is_an_error_that_names_the_largest(self):
        stage = self.scratch / "large"
        stage.mkdir()
        (stage / "noise").write_bytes(os.urandom(1 << 16))
        self.addCleanup(setattr, pack, "MOST_BYTES", pack.MOST_BYTES)
        pack.MOST_BYTES = 1 << 15
        with self.assertRaisesRegex(pack.Failed, "noise"):
            pack.write_archive(stage, self.scratch / "large.tar.gz")


class Programs(unittest.TestCase):
    def test_a_program_that_was_not_built_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory) / "build"
            build_programs(build, pack.PROGRAMS[:1])
            stage = pathlib.Path(directory) / "stage"
            stage.mkdir()
            with self.assertRaisesRegex(pack.Failed, pack.PROGRAMS[1]):
                pack.stage_programs(build, stage)

    def test_kokkos_is_asked_for(self):
        if shutil.which("nvcc"):
            with self.assertRaisesRegex(pack.Failed, "--kokkos"):
                pack.build_programs(None, pathlib.Path("build"), 1)
        else:
            with self.assertRaisesRegex(pack.Failed, "nvcc"):
                pack.build_programs(None, pathlib.Path("build"), 1)


if __name__ == "__main__":
    unittest.main()
