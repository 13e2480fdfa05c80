"""What is known of the tree, of a repository that is made for the test."""
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import gpu_modules  # noqa: F401  (finds perf/gpu)
import bundle
import history


class History(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        patch = mock.patch.object(history, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)

    def git(self, *words, seconds=0):
        date = f"@{seconds} +0000"
        done = subprocess.run(
            ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
            stdout=subprocess.PIPE, encoding="utf-8", check=True,
            env={**os.environ, "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date})
        return done.stdout.strip()

    def commit(self, path, seconds, text="text"):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "a message", seconds=seconds)

    def test_a_commit_and_what_differs_from_it(self):
        self.assertEqual(history.commit_of_tree(), "unknown")
        self.git("init", "-q")
        self.commit("a", 2000000000)
        head = self.git("rev-parse", "HEAD")
        self.assertEqual(history.commit_of_tree(), head)
        (self.root / "new").write_text("a file that is not packed by its being there")
        self.assertEqual(history.commit_of_tree(), head)
        (self.root / "a").write_text("another text")
        self.assertEqual(history.commit_of_tree(), f"{head} with changes")

    def test_when_predictions_were_changed(self):
        self.assertIsNone(history.predictions_changed())
        self.git("init", "-q")
        self.commit(history.PREDICTIONS, 2000000000)
        self.commit("another", 2000000100)
        self.assertEqual(history.predictions_changed(), 2000000000)
        (self.root / history.PREDICTIONS).write_text("not committed yet")
        with mock.patch("time.time", lambda: 2100000000.5):
            self.assertEqual(history.predictions_changed(), 2100000000)

    def test_which_kernels_were_changed(self):
        self.assertIsNone(history.kernels_changed(0))
        self.git("init", "-q")
        self.commit("src/kernels/old.cpp", 2000000000)
        for at, name in enumerate(("a.cpp", "cuda/b.cu", "gone.cpp", "CMakeLists.txt")):
            self.commit(f"src/kernels/{name}", 2000000100 + at)
        self.commit("src/base/c.cpp", 2000000200)
        (self.root / "src/kernels/gone.cpp").unlink()
        self.commit("another", 2000000300)
        self.assertEqual(history.kernels_changed(2000000050), ["cuda/b.cu", "a.cpp"])
        self.assertEqual(history.kernels_changed(2000000400), [])

    def test_an_archive_knows_what_was_known_when_it_was_packed(self):
        manifest = self.root / "manifest.json"
        manifest.touch()
        with mock.patch.object(bundle, "MANIFEST", manifest), \
                mock.patch.object(bundle, "manifest", lambda: {"predictions_changed": 7}):
            self.assertEqual(history.predictions_changed(), 7)
            self.assertIsNone(history.kernels_changed(0))


if __name__ == "__main__":
    unittest.main()
