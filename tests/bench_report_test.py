"""bench/report joins the rows of `unmetal bench` and of bench/peers/pytorch."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "bench" / "report"
loader = importlib.machinery.SourceFileLoader("bench_report", str(PROGRAM))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_report", loader))
loader.exec_module(module)

MACHINE = {"name": "Machine", "device": "cpu", "threads": 2, "copy_GBps": 40.0, "matmul_GFLOPs": 200.0}
TORCH = {"torch": "2.0", "device": "cpu"}


def ours(kernel, direction, shape, ms, format="float32"):
    return {"kernel": kernel, "direction": direction, "format": format, "shape": shape, "batch": 4, "ms": ms, "floor_ms": 1.0}


def pair(kernel, direction, shape, ratio):
    return {"kernel": kernel, "direction": direction, "format": "float32", "shape": shape, "ms": 3.0, "pytorch_ms": 3.0 / ratio,
            "ratio": ratio}


def net(**more):
    return {"net": "net", "format": "float32", "shape": "28x28x1", "batch": 64, "ms": 2.0, "peak_bytes": 5e6, **more}


class BenchReport(unittest.TestCase):
    def test_a_line_for_each_kernel_with_its_gradient(self):
        text = module.report([[MACHINE, ours("Max", "forward", "8x8x1", 2.0), ours("MaxGradient", "gradient", "8x8x1", 4.0),
                               ours("Max", "forward", "4x4x1", 0.5), ours("Max", "forward", "8x8x1", 9.0, "float16")]])
        self.assertIn("Machine, threads: 2, copy 40.0 GB/s, matrix product 200 GFLOP/s", text)
        self.assertIn("| Max | 8x8x1 | 2.00 | 50 % | - | 4.00 | 25 % | - |", text)
        self.assertNotIn("4x4x1", text)
        self.assertNotIn("9.00", text)

    def test_all_shapes_and_the_other_format(self):
        rows = [[MACHINE, ours("Max", "forward", "8x8x1", 2.0), ours("Max", "forward", "4x4x1", 0.5),
                 ours("Max", "forward", "8x8x1", 9.0, "float16")]]
        self.assertIn("| Max | 4x4x1 | 0.500 | 200 % | - | - | - | - |", module.report(rows, every_shape=True))
        self.assertIn("| Max | 8x8x1 | 9.00 | 11 % | - | - | - | - |", module.report(rows, format="float16"))

    def test_beside_pytorch_only_what_it_was_timed_beside(self):
        text = module.report([[MACHINE, ours("Other", "forward", "8x8x1", 2.0), ours("A", "forward", "8x8x1", 1.0),
                               ours("B", "forward", "8x8x1", 3.0), ours("AGradient", "gradient", "8x8x1", 2.0),
                               ours("BGradient", "gradient", "8x8x1", 2.0)],
                              [TORCH, pair("A + B", "forward", "8x8x1", 0.8), pair("AGradient + BGradient", "gradient", "8x8x1", 1.25)]])
        self.assertIn("; PyTorch 2.0", text)
        self.assertIn("| A + B | 8x8x1 | 4.00 | 50 % | 0.80 | 4.00 | 50 % | 1.25 |", text)
        self.assertNotIn("Other", text)

    def test_a_gradient_of_one_of_two_operands(self):
        text = module.report([[ours("Add", "forward", "8x8x1", 2.0), ours("AddGradient", "gradient", "8x8x1 of x", 4.0)]])
        self.assertIn("| Add | 8x8x1 | 2.00 | 50 % | - | 4.00 | 25 % | - |", text)

    def test_steps_with_and_without_pytorch(self):
        other = net(batch=128)
        beside = net(ms=2.5, pytorch_ms=5.0, ratio=0.5, pytorch_peak_bytes=7e6)
        text = module.report([[MACHINE, net(), other], [TORCH, beside]])
        self.assertIn("| net | 28x28x1, 64 | float32 | 2.50 | 5.00 | 0.50 | 5 | 7 |", text)
        self.assertIn("| net | 28x28x1, 128 | float32 | 2.00 | - | - | 5 | - |", text)

    def test_the_middle_of_several_runs(self):
        runs = [[ours("Max", "forward", "8x8x1", ms)] for ms in (9.0, 2.0, 3.0)]
        self.assertIn("| Max | 8x8x1 | 3.00 |", module.report(runs))

    def test_refused_implementations_are_no_rows(self):
        refused = {"kernel": "Max", "direction": "forward", "format": "float32", "shape": "8x8x1", "batch": 4,
                   "implementation": "wide", "refused": "too few channels"}
        self.assertIn("| Max | 8x8x1 | 2.00 |", module.report([[refused, ours("Max", "forward", "8x8x1", 2.0)]]))


if __name__ == "__main__":
    unittest.main()
