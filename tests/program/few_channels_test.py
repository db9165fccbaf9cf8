"""Networks of few channels, whose projections are 1x1 convolutions with strides: oneDNN has a kernel for these that overruns
its memory, which changed gradients from run to run. With each of the instruction sets for which it has such kernels."""

import os
import unittest

from harness import ProgramTest, run

INSTRUCTION_SETS = [{}, {"DNNL_MAX_CPU_ISA": "AVX2"}]


class FewChannels(ProgramTest):
    def test_two_trainings_of_one_seed_write_the_same_bytes(self):
        for instructions in INSTRUCTION_SETS:
            with self.subTest(**instructions):
                for data, net, batch in (("synthetic:16x16x1", "resnet18:2", 128), ("synthetic:20x20x3", "resnet18:3", 37)):
                    written = []
                    for name in ("first", "second"):
                        out = self.folder / f"{net}-{name}-{len(instructions)}"
                        done = run("train", "--data", data, "--net", net, "--batch", batch, "--steps", 6, "--seed", 1, "--threads",
                                   2, "--out", out, env={**os.environ, **instructions})
                        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                        written.append((out / "checkpoint.safetensors").read_bytes())
                    self.assertTrue(written[0] == written[1], f"{net}: other bytes")

    def test_gradients_are_right_on_several_threads(self):
        for instructions in INSTRUCTION_SETS:
            with self.subTest(**instructions):
                done = run("check-gradients", "--net", "resnet18:2", "--threads", 3, env={**os.environ, **instructions})
                failed = [line for line in done.stdout.splitlines() if not line.endswith("passed")]
                self.assertEqual((done.returncode, done.stderr), (0, ""), "\n".join(failed))


if __name__ == "__main__":
    unittest.main()
