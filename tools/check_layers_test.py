# SPDX-License-Identifier: Apache-2.0
"""Each rule of check_layers.py is broken once in a small tree and must be reported at its place."""

from pathlib import Path
import tempfile
import unittest

import check_layers

TREE = {
    "include/longspec/status.h": "#pragma once\n",
    "include/longspec/engine.h": '#include "longspec/status.h"\n',
    "examples/minimal.cc": '#include "longspec/engine.h"\n',
    "src/base/CMakeLists.txt": "longspec_module(base SOURCES a.cc DEPS LIBS Threads::Threads)\n",
    "src/base/check.h": '#include "longspec/status.h"\n',
    "src/tensor/CMakeLists.txt": "longspec_module(tensor SOURCES a.cc DEPS base)\n",
    "src/tensor/view.h": '#include "base/check.h"\n',
    "src/kernels/CMakeLists.txt": "# kernels\nlongspec_module(kernels\n  SOURCES a.cc\n  DEPS tensor TEST_DEPS base)\n",
    "src/kernels/ops.h": '#include "tensor/view.h"\n',
    "src/kernels/ops_test.cc": '#include "base/check.h"\n#include "kernels/ops.h"\n',
    "src/kernels/testing/fake.h": '#include "base/check.h"\n',
}


class CheckLayersTest(unittest.TestCase):
    def errors(self, changes):
        with tempfile.TemporaryDirectory() as name:
            for path, text in {**TREE, **changes}.items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check_layers.Checker(Path(name).resolve()).run()

    def assert_error(self, changes, place, message):
        errors = self.errors(changes)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith(place + ": "), errors[0])
        self.assertIn(message, errors[0])

    def test_a_clean_tree_has_no_errors(self):
        self.assertEqual(self.errors({}), [])

    def test_a_higher_floor_is_caught(self):
        self.assert_error({"src/tensor/bad.cc": '\n#include "kernels/ops.h"\n'}, "src/tensor/bad.cc:2",
                          "tensor (floor 1) must not include kernels (floor 2)")

    def test_an_equal_floor_is_caught(self):
        self.assert_error({"src/tree/a.h": '#include "tensor/view.h"\n'}, "src/tree/a.h:1", "only lower floors")

    def test_the_engine_knows_no_api(self):
        self.assert_error({"src/engine/a.cc": '#include "api/fields.h"\n', "src/api/fields.h": ""},
                          "src/engine/a.cc:1", "engine (floor 10) must not include api (floor 11)")

    def test_an_include_without_deps_is_caught(self):
        self.assert_error({"src/formats/CMakeLists.txt": "longspec_module(formats SOURCES a.cc DEPS base)\n",
                           "src/formats/a.cc": '#include "base/check.h"\n#include "tensor/view.h"\n'},
                          "src/formats/a.cc:2", "its DEPS do not reach")

    def test_transitive_deps_suffice(self):
        self.assertEqual(self.errors({"src/kernels/more.cc": '#include "base/check.h"\n'}), [])

    def test_unused_deps_are_caught(self):
        self.assert_error({"src/tensor/view.h": "\n"}, "src/tensor/CMakeLists.txt:1", "DEPS base is not included")

    def test_unused_test_deps_are_caught(self):
        self.assert_error({"src/kernels/ops_test.cc": "\n", "src/kernels/testing/fake.h": "\n"},
                          "src/kernels/CMakeLists.txt:2", "TEST_DEPS base is not included")

    def test_deps_on_a_higher_floor_are_caught(self):
        self.assert_error({"src/base/CMakeLists.txt": "longspec_module(base SOURCES a.cc DEPS tensor)\n"},
                          "src/base/CMakeLists.txt:1", "DEPS tensor is not on a lower floor")

    def test_unknown_deps_are_caught(self):
        self.assert_error({"src/base/CMakeLists.txt": "longspec_module(base SOURCES a.cc DEPS bose)\n"},
                          "src/base/CMakeLists.txt:1", "there is no module bose")

    def test_tests_may_look_up_but_need_deps(self):
        up = {"src/tensor/view_test.cc": '#include "kernels/ops.h"\n'}
        self.assert_error(up, "src/tensor/view_test.cc:1", "its TEST_DEPS do not reach")
        self.assertEqual(self.errors({**up, "src/tensor/CMakeLists.txt":
                                      "longspec_module(tensor SOURCES a.cc DEPS base TEST_DEPS kernels)\n"}), [])

    def test_relative_names_are_caught(self):
        self.assert_error({"src/tensor/a.cc": '#include "view.h"\n'}, "src/tensor/a.cc:1", "must be named from src/")

    def test_the_facade_is_for_the_engine_and_above(self):
        self.assert_error({"src/base/a.cc": '#include "longspec/engine.h"\n'}, "src/base/a.cc:1",
                          "base (floor 0) must not include engine (floor ")

    def test_the_facade_counts_as_the_engine(self):
        above = {"src/engine/CMakeLists.txt": "longspec_module(engine SOURCES a.cc)\n",
                 "src/cli/CMakeLists.txt": "longspec_module(cli SOURCES a.cc DEPS engine)\n",
                 "src/cli/a.cc": '#include "longspec/engine.h"\n'}
        self.assertEqual(self.errors(above), [])
        self.assert_error({**above, "src/cli/CMakeLists.txt": "longspec_module(cli SOURCES a.cc)\n"}, "src/cli/a.cc:1",
                          "cli includes engine, which its DEPS do not reach")

    def test_a_public_header_without_a_module_is_caught(self):
        self.assert_error({"src/base/a.cc": '#include "longspec/new.h"\n'}, "src/base/a.cc:1", "belongs to no module")

    def test_public_headers_include_only_public_ones(self):
        self.assert_error({"include/longspec/engine.h": '#include "base/check.h"\n'}, "include/longspec/engine.h:1",
                          "not a public header")

    def test_a_module_without_a_floor_is_caught(self):
        self.assert_error({"src/misc/a.h": "\n"}, "src/misc:0", "has no floor")


if __name__ == "__main__":
    unittest.main()
