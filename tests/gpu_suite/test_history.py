"""What is known of the tree, of a repository that is made for the test."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import gpu_modules  # noqa: F401  (finds perf/gpu)
import bundle
import history


@unittest.skipUnless(shutil.which("git"), "no git here")
class History(unittest.TestCase):
    def setUp(self):
        # Neither what the user has set nor a repository around the temporary directory counts.
        directory_of_all = tempfile.gettempdir()
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_CEILING_DIRECTORIES": directory_of_all}
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            settings.setdefault(name, None)
        kept = {name: value for name, value in os.environ.items() if name not in settings}
        kept |= {name: value for name, value in settings.items() if value is not None}
        environment = mock.patch.dict(os.environ, kept, clear=True)
        environment.start()
        self.addCleanup(environment.stop)
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
        os.utime(self.root / history.PREDICTIONS, (2100000000, 2100000000))
        self.assertEqual(history.predictions_changed(), 2100000000)

    def test_which_kernels_were_changed(self):
        self.assertIsNone(history.kernels_changed("unknown", 0))
        self.git("init", "-q")
        self.commit("src/kernels/old.cpp", 2000000000)
        old = self.git("rev-parse", "HEAD")
        for at, name in enumerate(("a.cpp", "cuda/b.cu", "gone.cpp", "CMakeLists.txt")):
            self.commit(f"src/kernels/{name}", 2000000100 + at)
        self.commit("src/base/c.cpp", 2000000200)
        (self.root / "src/kernels/gone.cpp").unlink()
        self.commit("another", 2000000300)
        changed = history.kernels_changed
        # By time, where the commit is not named or not known.
        self.assertEqual(changed("unknown", 2000000050), ["cuda/b.cu", "a.cpp"])
        self.assertEqual(changed("unknown", 2000000400), [])
        # By the commit, whenever it was measured, and with what is not committed yet.
        self.assertEqual(changed(old, 2000000400), ["cuda/b.cu", "a.cpp"])
        (self.root / "src/kernels/old.cpp").write_text("another text")
        self.assertEqual(changed(f"{old} with changes", 0), ["cuda/b.cu", "a.cpp", "old.cpp"])

    def test_a_folder_in_another_repository_is_none_of_its(self):
        self.git("init", "-q")
        self.commit("a", 2000000000)
        inner = self.root / "inner"
        inner.mkdir()
        with mock.patch.object(history, "ROOT", inner):
            self.assertEqual(history.commit_of_tree(), "unknown")
            self.assertIsNone(history.kernels_changed("unknown", 0))
            self.assertIsNone(history.predictions_changed())

    def test_variables_of_another_repository_do_not_count(self):
        self.git("init", "-q")
        self.commit("a", 2000000000)
        with mock.patch.dict(os.environ, {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere"}):
            self.assertEqual(len(history.commit_of_tree()), 40)

    def test_an_archive_knows_what_was_known_when_it_was_packed(self):
        manifest = self.root / "manifest.json"
        manifest.touch()
        with mock.patch.object(bundle, "MANIFEST", manifest), \
                mock.patch.object(bundle, "manifest", lambda: {"predictions_changed": 7}):
            self.assertEqual(history.predictions_changed(), 7)
            self.assertIsNone(history.kernels_changed("unknown", 0))


if __name__ == "__main__":
    unittest.main()
