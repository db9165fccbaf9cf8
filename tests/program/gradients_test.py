"""`unmetal check-gradients` as the README shows it, over every network."""

import re
import unittest

from harness import ProgramTest, run

NETWORKS = ["mnist-cnn", "small-cnn", "lenet", "resnet18", "resnet50", "unet-small", "alexnet-lrn", "style"]


class Gradients(ProgramTest):
    def test_every_network_passes(self):
        done = run("check-gradients")
        *rows, count = done.stdout.splitlines()
        self.assertEqual((done.returncode, done.stderr), (0, ""), count)
        self.assertEqual(count, f"{len(rows)} passed, 0 failed")
        found = {re.match(r"[\w-]+", row).group() for row in rows}
        self.assertEqual(found, set(NETWORKS))


if __name__ == "__main__":
    unittest.main()
