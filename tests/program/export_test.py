"""`unmetal export`. What is in its files is judged by python/tests/onnx/test_onnx_program.py."""

import os
import unittest

from harness import CLASSES, ProgramTest, SIDE, run


class Export(ProgramTest):
    def setUp(self):
        super().setUp()
        self.train("run", epochs=1)
        self.checkpoint = self.folder / "run" / "best.safetensors"
        self.file = self.folder / "network.onnx"

    def export(self, *more):
        done = run("export", self.checkpoint, self.file, *more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_says_what_it_wrote(self):
        self.assertEqual(self.export(), f"wrote {self.file}: lenet for pictures of {SIDE}x{SIDE}x1, {CLASSES} classes\n")
        content = self.file.read_bytes()
        self.assertTrue(content.startswith(b"\x08\x08\x12\x07unmetal"))  # the format's version, the producer
        self.assertIn(b"Softmax", content)
        self.assertIn(b"conv1.weight", content)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["data", "network.onnx", "run"])

    def test_options_may_have_names(self):
        self.export()
        content = self.file.read_bytes()
        done = run("export", "--onnx", self.file, "--checkpoint", self.checkpoint)
        self.assertEqual((done.returncode, self.file.read_bytes()), (0, content))

    def test_scores_have_no_softmax(self):
        self.export("--scores")
        self.assertNotIn(b"Softmax", self.file.read_bytes())

    def test_a_file_that_cannot_be_written_is_named(self):
        self.file.write_bytes(b"before")
        for name in ("none/network.onnx", "data"):
            self.expect_error(["export", self.checkpoint, self.folder / name], self.folder / name)
        if os.geteuid() != 0:  # who may write everywhere
            self.folder.chmod(0o500)
            self.addCleanup(self.folder.chmod, 0o700)
            self.expect_error(["export", self.checkpoint, self.file], self.file)
        self.assertEqual(self.file.read_bytes(), b"before")

    def test_what_is_no_checkpoint_is_named(self):
        wrong = self.folder / "wrong.safetensors"
        wrong.write_bytes(b"no checkpoint")
        for path in (wrong, self.folder / "none.safetensors"):
            self.expect_error(["export", path, self.file], path)
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    unittest.main()
