"""`unmetal check-gradients` as the README shows it, over every network."""

import re
import unittest

from harness import ProgramTest, run

NETWORKS = ["mnist-cnn", "small-cnn", "lenet", "resnet18", "resnet50", "unet-small", "alexnet-lrn", "style"]
PASSES = ["fuseNeurons", "fuseNeuronGradients", "forgetNeuronSources", "shareGradients", "accumulateGradients",
          "addInNeuronGradients", "addSecondSources", "splitInPairs", "workInPlace"]


class Gradients(ProgramTest):
    def test_every_network_passes(self):
        done = run("check-gradients")
        *rows, count = done.stdout.splitlines()
        self.assertEqual((done.returncode, done.stderr), (0, ""), count)
        self.assertEqual(count, f"{len(rows)} passed, 0 failed")
        found = {re.match(r"[\w-]+", row).group() for row in rows}
        self.assertEqual(found, set(NETWORKS))

    def test_a_residual_net_passes_without_each_pass(self):
        done = run("check-gradients", "--net", "resnet18:2", "--without", "each")
        *rows, count = done.stdout.splitlines()
        self.assertEqual((done.returncode, done.stderr), (0, ""), count)
        self.assertEqual(count, f"{len(rows)} passed, 0 failed")
        without = [re.match(r"resnet18:2(?: without (\w+))?", row).group(1) for row in rows]
        self.assertEqual(list(dict.fromkeys(without)), [None, *PASSES, "all"])


if __name__ == "__main__":
    unittest.main()
