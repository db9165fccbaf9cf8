"""What `unmetal bench` writes; the figures themselves are no matter of tests."""

import json
import unittest

from harness import ProgramTest, run

ROW = {"direction", "format", "shape", "batch", "device", "ms", "spread", "bytes", "flops", "floor_ms", "fraction_of_floor"}
MACHINE = {"name", "device", "threads", "copy_GBps", "matmul_GFLOPs"}


class Bench(ProgramTest):
    def rows(self, words, *options):
        path = self.folder / "rows.json"
        done = run("bench", "--filter", words, "--json", path, *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        machine, *rows = json.loads(path.read_text())
        self.assertEqual(set(machine), MACHINE)
        for number in ("threads", "copy_GBps", "matmul_GFLOPs"):
            self.assertGreater(machine[number], 0)
        self.assertTrue(rows)
        return rows

    def check(self, row, kind, more):
        self.assertEqual(set(row), ROW | {kind} | more)
        for number in {"batch", "ms", "bytes", "floor_ms", "fraction_of_floor"} | more:
            self.assertGreater(row[number], 0, number)
        self.assertAlmostEqual(row["fraction_of_floor"], row["floor_ms"] / row["ms"])

    def test_a_kernel(self):
        for row in self.rows("CNNNeuron forward float16"):
            self.check(row, "kernel", set())
            self.assertEqual((row["direction"], row["format"], row["device"]), ("forward", "float16", "cpu"))

    def test_a_kernel_whose_images_stay_in_the_caches(self):
        row, = self.rows("CNNNeuron forward float16 56x56x64 TanH", "--megabytes", 2)
        image = 2 * 2 * 56 * 56 * 64
        self.assertEqual(row["batch"], -(-2_000_000 // image))

    def test_a_training_step(self):
        row, = self.rows("lenet step float32 28x28x1 batch 64")
        self.check(row, "net", {"images_per_s", "peak_bytes", "first_step_ms"})
        self.assertAlmostEqual(row["images_per_s"], 1000 * 64 / row["ms"], delta=0.01)
        # Both convolutions and the three dense layers; the first has no data gradient.
        multiplications = [28 * 28 * 25 * 6, 10 * 10 * 25 * 6 * 16, 5 * 5 * 16 * 120, 120 * 84, 84 * 10]
        self.assertEqual(row["flops"], 64 * 2 * (3 * sum(multiplications) - multiplications[0]))
        self.assertGreater(row["first_step_ms"], row["ms"] / 10)


if __name__ == "__main__":
    unittest.main()
