# SPDX-License-Identifier: Apache-2.0
"""Each rule of check_texts.py is broken once."""

from pathlib import Path
import tempfile
import unittest

import check_texts

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
UNFINISHED = "TO" + "DO"


class CheckTextsTest(unittest.TestCase):
    def messages(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_text(text, encoding="utf-8")
            Path(folder, "there.md").write_text("## Part\n```\n# No\n```\n", encoding="utf-8")
            return [message for _, message in check_texts.check_file(path, ["docs/there.md"])]

    def assert_message(self, name, text, message):
        messages = self.messages(name, text)
        self.assertEqual(len(messages), 1, messages)
        self.assertIn(message, messages[0])

    # Links, citations and scripts that are in order have no message.
    def test_good_files(self):
        self.assertEqual(self.messages("a.cc", LICENCE + "int a;\n"), [])
        self.assertEqual(self.messages("a.md", "[x](there.md#part) [y](https://example.com)\n```\n[z](no.md)\n```\n"),
                         [])
        cites = "// see there.md and docs/there.md\n// and https://example.com/no.md\n"
        self.assertEqual(self.messages("a.cc", LICENCE + cites), [])
        self.assertEqual(self.messages("a", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\necho\n"), [])

    # One message for each rule, which names what is wrong.
    def test_bad_files(self):
        self.assert_message("a.cc", "int a;\n", "SPDX")
        self.assert_message("a.cc", LICENCE + f"// {UNFINISHED}: x\n", UNFINISHED)
        self.assert_message("a.cc", LICENCE + "int a;  // as paper.md 3 says\n", "cites paper.md")
        self.assert_message("a.h", LICENCE + "\n" * 1000, "ask for a split")
        self.assert_message("a.cc", LICENCE + "int a;", "the last line does not end")
        self.assert_message("a.md", "see [x](missing.md)\n", "link to missing.md")
        self.assert_message("a.md", "see [x\ny](missing.md)\n", "link to missing.md")
        self.assert_message("a.md", "[x](there.md#no)\n", "a heading that does not exist")
        self.assert_message("a.md", "# A, b\n[x](#a-b) [y](#b)\n", "link to #b")
        self.assert_message("a.md", "x" * 121 + "\n", "121 characters")
        self.assert_message("a.py", "# SPDX-License-Identifier: Apache-2.0\n#" + "x" * 120 + "\n", "121 characters")
        self.assert_message("a.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\nif\n", "syntax error")
        self.assert_message("a.py", "# SPDX-License-Identifier: Apache-2.0\ndef\n", "invalid syntax")


if __name__ == "__main__":
    unittest.main()
