# SPDX-License-Identifier: Apache-2.0
"""get_xgrammar installs the right sources or nothing. Runs without a network: the archive is made here."""

import contextlib
import hashlib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
import io
from pathlib import Path
import re
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
LOADER = SourceFileLoader("get_xgrammar", str(Path(__file__).parent / "get_xgrammar"))
get_xgrammar = module_from_spec(spec_from_loader("get_xgrammar", LOADER))
LOADER.exec_module(get_xgrammar)

KEPT = ["cpp/fsm.cc", "cpp/support/logging.h", "include/xgrammar/grammar.h", "3rdparty/picojson/picojson.h", "LICENSE"]
LEFT_OUT = ["cpp/tvm_ffi/tvm_ffi.cc", "python/xgrammar/base.py", "3rdparty/googletest/LICENSE", "../outside.h"]


class GetXgrammarTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.target = self.folder / "third_party"
        self.make(KEPT + LEFT_OUT)

    def make(self, paths):
        self.sdist = self.folder / "a.tar.gz"
        with tarfile.open(self.sdist, "w:gz") as archive:
            for path in paths:
                member = tarfile.TarInfo(f"{get_xgrammar.FOLDER}/{path}")
                member.size = len(path)
                archive.addfile(member, io.BytesIO(path.encode()))
        get_xgrammar.SDIST_SHA256 = hashlib.sha256(self.sdist.read_bytes()).hexdigest()

    def fetch(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = get_xgrammar.main(["--dir", str(self.target), "--sdist", str(self.sdist)])
        return status, said.getvalue()

    def test_installs_what_is_compiled_and_then_does_nothing(self):
        self.assertEqual(self.fetch()[0], 0)
        root = self.target / get_xgrammar.FOLDER
        files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        self.assertEqual(files, sorted(KEPT))
        self.assertEqual([path.name for path in self.target.iterdir()], [get_xgrammar.FOLDER])
        self.assertFalse((self.folder / "outside.h").exists())
        self.sdist.unlink()
        self.assertEqual(self.fetch(), (0, ""))

    def test_another_archive_is_refused(self):
        get_xgrammar.SDIST_SHA256 = "0" * 64
        status, said = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn("nothing was installed", said)
        self.assertEqual(list(self.target.iterdir()), [])

    def test_an_archive_without_the_sources_is_refused(self):
        self.make(LEFT_OUT)
        status, said = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn("does not hold", said)

    def test_cmake_wants_the_same_version(self):
        cmake = (Path(__file__).parent.parent / "cmake" / "xgrammar.cmake").read_text(encoding="utf-8")
        self.assertEqual(re.search(r"LONGSPEC_XGRAMMAR_VERSION ([0-9.]+)\)", cmake)[1], get_xgrammar.VERSION)

    def test_make_installs_what_fetches_it_first(self):
        makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
        recipes = [block for block in makefile.split("\n\n") if "\n\t" in block]
        fetching = [recipe for recipe in recipes if "tools/get_" in recipe]
        self.assertGreaterEqual(len(fetching), 3)
        for recipe in fetching:
            self.assertIn("tools/setup.sh model", recipe[:recipe.index("tools/get_")], recipe)


if __name__ == "__main__":
    unittest.main()
