"""check_snippets.py finds code in a document that no program has."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class CheckSnippets(unittest.TestCase):
    def run_on(self, change):
        """The exit status over a copy of the documents, after change(text) of docs/data-sources.md."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("docs", "examples"):
                shutil.copytree(ROOT / name, root / name)
            document = root / "docs" / "data-sources.md"
            document.write_text(change(document.read_text()))
            return subprocess.run([sys.executable, ROOT / "tests" / "check_snippets.py", root], capture_output=True,
                                  check=False).returncode

    def test_the_documents_as_they_are(self):
        self.assertEqual(self.run_on(lambda text: text), 0)

    def test_a_line_that_no_program_has(self):
        self.assertEqual(self.run_on(lambda text: text.replace("if (isFrozen) return nullptr;", "return nullptr;")), 1)

    def test_a_document_that_names_no_program(self):
        self.assertEqual(self.run_on(lambda text: text.replace("`examples/", "`samples/")), 1)


if __name__ == "__main__":
    unittest.main()
