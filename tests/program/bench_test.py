"""What `unmetal bench` writes; the figures themselves are no matter of tests."""

import json
import os
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
        for number in {"batch", "ms", "bytes", "floor_ms", "fraction_of_floor"} | more - {"implementation"}:
            self.assertGreater(row[number], 0, number)
        self.assertAlmostEqual(row["fraction_of_floor"], row["floor_ms"] / row["ms"])

    def test_the_loader_of_pictures(self):
        path = self.folder / "loading.json"
        done = run("bench", "--data", "synthetic:16x16x3", "--augment", "flip", "--batch", 16, "--threads", 2, "--json", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^loading synthetic:16x16x3, flip: [0-9]+ images/s with 2 threads\n$")
        row = json.loads(path.read_text())
        self.assertEqual((row["data"], row["augmentation"], row["threads"]), ("synthetic:16x16x3", "flip", 2))
        self.assertGreater(row["images_per_s"], 0)
        for options in (["--filter", "x"], ["--megabytes", 2]):
            done = run("bench", "--data", "synthetic", *options)
            self.assertEqual((done.returncode, done.stderr), (2, f"unmetal: bench: {options[0]} is about kernels, --data about the "
                                                                 "loader; give one of them\n"))
        several = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                   "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        for options in (["--data", "synthetic"], ["--json", path], ["--megabytes", 2], ["--implementation", "all"],
                        ["--allow-reduced-precision"]):
            done = run("bench", *options, env=several)
            self.assertEqual((done.returncode, done.stderr), (2, f"unmetal: bench: {options[0]} is not for several ranks\n"))
        done = run("bench", "--data", "synthetic", "--allow-reduced-precision")
        self.assertEqual((done.returncode, done.stderr), (2, "unmetal: bench: --allow-reduced-precision is about nets, --data about "
                                                             "the loader; give one of them\n"))
        done = run("bench", "--augment", "flip")
        self.assertIn("--augment", done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def test_where_the_time_of_a_step_goes(self):
        trace = self.folder / "trace.json"
        done = run("bench", "--profile", "lenet", "--batch", 4, "--trace", trace)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("lenet, float32, 28x28x1, batch 4: ", " ms in a training", "\nby kind\n", "\n  convolution ", "\n  pooling ",
                      "\n  between commands ", "\nby layer\n", "\n  conv1 ", "opens in Perfetto"):
            self.assertIn(words, done.stdout)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual(len(events) % 9, 0)  # of nine steps
        for event in events:
            self.assertEqual(event["ph"], "X")
            self.assertGreaterEqual(event["dur"], 0)
        starts = [event["ts"] for event in events]
        self.assertEqual(starts, sorted(starts))
        self.assertGreater(sum(event["args"]["operations"] for event in events), 0)
        for options, sentence in ((["--profile", "lenet", "--filter", "x"], "bench: --filter is about kernels, --profile about one net; "
                                                                             "give one of them"),
                                  (["--profile", "lenet", "--json", trace], "bench: --json does not go with --profile"),
                                  (["--batch", 4], "bench: --batch is about --data or --profile, or several ranks; give one of them")):
            done = run("bench", *options)
            self.assertEqual((done.returncode, done.stderr), (2, f"unmetal: {sentence}\n"))
        self.assertNotEqual(run("bench", "--profile", "no-net").returncode, 0)
        self.assertNotEqual(run("bench", "--trace", trace).returncode, 0)

    def test_a_kernel(self):
        for row in self.rows("CNNNeuron forward float16 56x56x64 ReLU"):
            self.check(row, "kernel", {"implementation"})
            self.assertEqual((row["direction"], row["format"], row["device"]), ("forward", "float16", "cpu"))

    def test_a_kernel_whose_images_stay_in_the_caches(self):
        row, = self.rows("CNNNeuron forward float16 56x56x64 TanH", "--megabytes", 2)
        image = 2 * 2 * 56 * 56 * 64
        self.assertEqual(row["batch"], -(-2_000_000 // image))

    def test_every_implementation_in_turns(self):
        words = "CNNConvolution forward float32 28x28x1 to 32, kernel 5x5"
        rows = self.rows(words, "--implementation", "all", "--megabytes", 1)
        timed = [row for row in rows if "ms" in row]
        self.assertIn("onednn", [row["implementation"] for row in timed])
        self.assertGreater(len(timed), 1)
        for row in timed[:-1]:
            self.assertGreater(row["next_over_this"], 0)
        for row in rows:
            if row not in timed:
                self.assertTrue(row["refused"].startswith(row["implementation"] + ": "), row)

    def test_one_implementation_runs(self):
        """What is forced is what the dispatch log says ran."""
        words = "CNNConvolution forward float32 28x28x1 to 32, kernel 5x5"
        done = run("bench", "--filter", words, "--implementation", "onednn", "--megabytes", 1,
                   env={**os.environ, "UNMETAL_VERBOSE": "dispatch"})
        self.assertEqual(done.returncode, 0)
        convolutions = [line for line in done.stderr.split("\n") if line.startswith("unmetal: convolution forward")]
        # Where it is chosen, those before it have refused; where it is forced, nobody has been asked.
        self.assertTrue(any(": onednn " in line and "refused by" not in line for line in convolutions), convolutions)
        self.assertIn("  by onednn", done.stdout)

    def test_conform_runs_the_implementation_that_is_forced(self):
        """Not the one that is chosen: the dispatch log names it, and so does each row."""
        words = "CNNPoolingMax forward float32"
        path = self.folder / "rows.json"
        for forced in ("direct", "vectors"):
            done = run("conform", "--filter", words, "--implementation", forced, "--cases", 3, "--json", path,
                       env={**os.environ, "UNMETAL_VERBOSE": "dispatch"})
            self.assertEqual(done.returncode, 0)
            self.assertIn(" passed, 0 failed\n", done.stdout)
            self.assertEqual({row["implementation"] for row in json.loads(path.read_text())}, {forced})
            poolings = [line for line in done.stderr.split("\n") if line.startswith("unmetal: Max pooling")]
            self.assertTrue(poolings)
            for line in poolings:
                self.assertRegex(line, f": {forced} [^;]*$")

    def test_an_unknown_implementation_is_an_error_with_those_that_exist(self):
        for command in ("bench", "conform"):
            done = run(command, "--implementation", "onednm")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("did you mean onednn?", done.stderr)
            self.assertIn("there are ", done.stderr)

    def test_an_implementation_that_refuses_is_said_to(self):
        done = run("bench", "--filter", "CNNConvolution forward float32 28x28x1 to 32, kernel 5x5", "--implementation", "depthwise")
        self.assertEqual(done.returncode, 0)
        self.assertIn("refused by depthwise: ", done.stdout)

    def test_a_training_step_with_and_without(self):
        row, = self.rows("lenet step float32 28x28x1 batch 16", "--implementation", "matmul")
        self.check(row, "net", {"images_per_s", "peak_bytes", "implementation", "without_over_with"})

    def test_a_training_step(self):
        row, = self.rows("Lenet batch 64 float32")
        self.check(row, "net", {"images_per_s", "peak_bytes", "first_step_ms"})
        self.assertAlmostEqual(row["images_per_s"], 1000 * 64 / row["ms"], delta=0.01)
        # Both convolutions and the three dense layers; the first has no data gradient.
        multiplications = [28 * 28 * 25 * 6, 10 * 10 * 25 * 6 * 16, 5 * 5 * 16 * 120, 120 * 84, 84 * 10]
        self.assertEqual(row["flops"], 64 * 2 * (3 * sum(multiplications) - multiplications[0]))
        self.assertGreater(row["first_step_ms"], row["ms"] / 10)


if __name__ == "__main__":
    unittest.main()
