# tests/tools/test_git_describe.py — cmake/GitDescribe.cmake: which commit a build says it is
# of, and when that compiles anything.
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "GitDescribe.cmake"
# Neither the user's settings nor a commit's time and author matter.
ENVIRONMENT = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null",
                   GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a",
                   GIT_COMMITTER_EMAIL="a@b")


@unittest.skipIf(shutil.which("git") is None, "there is no git")
class GitDescribe(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.output = self.root / "out put.cpp"

    def git(self, *arguments, where):
        done = subprocess.run(["git", "-C", where, *arguments], check=True, text=True,
                              env=ENVIRONMENT, stdout=subprocess.PIPE)
        return done.stdout.strip()

    def clone(self, name):
        """With one commit; returns its directory."""
        directory = self.root / name
        directory.mkdir()
        (directory / "file").write_text("1\n", "utf-8")
        self.git("init", "-q", where=directory)
        self.git("add", "file", where=directory)
        self.git("commit", "-q", "-m", "one", where=directory)
        return directory

    def described(self, source, **environment):
        done = subprocess.run(
            ["cmake", f"-DSOURCE={source}", f"-DOUTPUT={self.output}", "-P", SCRIPT],
            env=dict(ENVIRONMENT, **environment), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        return re.search(r'return "(.*)";', self.output.read_text("utf-8")).group(1)

    def test_commit_tag_and_changes(self):
        clone = self.clone("clo ne")
        commit = self.git("rev-parse", "--short", "HEAD", where=clone)
        self.assertEqual(self.described(clone), commit)
        (clone / "file").write_text("2\n", "utf-8")
        self.assertEqual(self.described(clone), commit + "-dirty")
        self.git("commit", "-q", "-a", "-m", "two", where=clone)
        self.assertNotEqual(self.described(clone), commit)
        self.git("tag", "-a", "v1.2", "-m", "two", where=clone)
        (clone / "another").write_text("not known to git\n", "utf-8")
        self.assertEqual(self.described(clone), "v1.2")

    def test_an_unchanged_state_compiles_nothing(self):
        clone = self.clone("clone")
        self.described(clone)
        os.utime(self.output, (1000, 1000))
        self.described(clone)
        self.assertEqual(self.output.stat().st_mtime, 1000)
        self.assertEqual(self.git("status", "--porcelain", where=clone), "")

    def test_an_archive_is_unknown(self):
        plain = self.root / "plain"
        plain.mkdir()
        self.assertEqual(self.described(plain, GIT_CEILING_DIRECTORIES=str(self.root)), "unknown")
        # In a clone of something else it is not of that one's commit.
        inside = self.clone("other") / "trireme-0.1.0"
        inside.mkdir()
        self.assertEqual(self.described(inside), "unknown")

    def test_a_clone_without_commits_is_unknown(self):
        empty = self.root / "empty"
        empty.mkdir()
        self.git("init", "-q", where=empty)
        self.assertEqual(self.described(empty), "unknown")


if __name__ == "__main__":
    unittest.main()
