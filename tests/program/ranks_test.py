"""Several ranks train as one does: the same numbers, whatever their number; and what happens when one is gone."""

import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import PROGRAM, ProgramTest, SECONDS, contents, header, metrics, position, run, with_tensor, write_data

MPIRUN = [*shlex.split(os.environ["UNMETAL_MPIRUN"]), "--oversubscribe", "--allow-run-as-root"]
KILLS = int(os.environ.get("UNMETAL_RANK_KILLS", 1))  # at random moments
TIMES = ("images_per_s", "seconds")
# An environment of a test that itself runs under a launcher is none.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not re.match("OMPI_(?!MCA_)|PMIX_|PMI_", name)}
NETWORK = """{"layers": [{"kind": "convolution", "channels": 4, "kernelSize": 5, "stride": 2, "biases": false},
 {"kind": "batchNormalization"}, {"kind": "relu"}, {"kind": "dense", "channels": "classes"}]}"""


def without_times(folder):
    return [{key: row[key] for key in row if key not in TIMES} for row in metrics(folder)]


class Ranks(ProgramTest):
    def mpirun(self, count, arguments, **options):
        words = [*MPIRUN, "-np", count, PROGRAM, *arguments]
        return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=SECONDS, env=ENVIRONMENT, **options)

    def mpirun_each(self, lists):
        """Each rank with arguments of its own."""
        words = [*MPIRUN]
        for arguments in lists:
            words += [":"] * (len(words) > len(MPIRUN)) + ["-np", 1, PROGRAM, *arguments]
        return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=SECONDS, env=ENVIRONMENT)

    def train_together(self, count, out, *more, **options):
        done = self.mpirun(count, self.train_arguments(out, *more, **options))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def expect_close(self, found, expected, first=0):
        ours, theirs = metrics(self.folder / found)[first:], metrics(self.folder / expected)[first:]
        self.assertEqual([row["step"] for row in ours], [row["step"] for row in theirs])
        for own, other in zip(ours, theirs):
            loss = float(other["train_loss"])
            self.assertLessEqual(abs(float(own["train_loss"]) - loss), 1e-5 * max(loss, 1), own["step"])
            for key in ("epoch", "train_accuracy", "validation_accuracy", "learning_rate"):
                self.assertEqual(own[key], other[key], (key, own["step"]))

    def network(self):
        path = self.folder / "network.json"
        path.write_text(NETWORK)
        return path

    def test_each_may_normalise_its_own_pictures(self):
        options = ["--seed", 4, "--steps", 3]
        for out, more in (("whole", []), ("own", ["--no-sync-batch-norm"])):
            self.train_together(2, out, *options, *more, net=self.network(), batch=22)
        first, second = ([float(row["train_loss"]) for row in metrics(self.folder / out)] for out in ("whole", "own"))
        self.assertTrue(all(abs(own - whole) > 1e-5 * whole for whole, own in zip(first, second)), (first, second))
        # As the checkpoint says, which goes on without the option.
        self.train_together(2, "five", *options[:2], "--steps", 5, "--no-sync-batch-norm", net=self.network(), batch=22)
        done = self.mpirun(2, ["train", "--resume", "--out", self.folder / "own", "--steps", 5])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((self.folder / "own" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "five" / "checkpoint.safetensors").read_bytes())

    def test_several_follow_one(self):
        # 20 steps; 22 pictures do not divide, and with 3 there are ranks without any.
        cases = [("mnist-cnn", 22, "momentum", [2, 3, 4]), ("mnist-cnn", 22, "adam", [3]),
                 (self.network(), 22, "momentum", [2, 3, 4]), (self.network(), 3, "momentum", [4]),
                 (self.network(), 22, "adam", [2])]
        for number, (net, batch, optimizer, counts) in enumerate(cases):
            # A value within rounding of the kink of a ReLU would move the losses apart by more than rounding: here is none.
            options = ["--optimizer", optimizer, "--seed", 5, "--steps", 20]
            self.train(f"one{number}", *options, net=net, batch=batch)
            for count in counts:
                with self.subTest(net=net, batch=batch, optimizer=optimizer, count=count):
                    out = f"ranks{number}-{count}"
                    output = self.train_together(count, out, *options, net=net, batch=batch)
                    self.assertIn(f"ranks: {count}, joined by MPI\n", output)
                    self.assertEqual(output.count("data: "), 1)
                    self.expect_close(out, f"one{number}")
                    self.assertEqual(contents(self.folder / out).keys(), contents(self.folder / f"one{number}").keys())

    def test_the_same_number_gives_the_same_bytes(self):
        for out in ("first", "second"):
            self.train_together(3, out, "--augment", "crop+mixup:0.2", net=self.network(), batch=32)
        first, second = contents(self.folder / "first"), contents(self.folder / "second")
        self.assertEqual(without_times(self.folder / "first"), without_times(self.folder / "second"))
        for name in ("checkpoint.safetensors", "best.safetensors", "confusion.svg", "worst.svg"):
            self.assertTrue(first[name] == second[name], name)

    def test_another_number_goes_on(self):
        options = ["--optimizer", "adam"]
        steps = 12
        self.train_together(2, "whole", *options, "--steps", steps + 20, net=self.network())
        self.train_together(2, "half", *options, "--steps", steps, net=self.network())
        self.assertEqual(position(self.folder / "half" / "checkpoint.safetensors"), steps)
        for count in (1, 3, 4):
            with self.subTest(count=count):
                shutil.copytree(self.folder / "half", self.folder / str(count))
                more = [*options, "--resume", "--steps", steps + 20]
                self.train(str(count), *more, net=self.network()) if count == 1 else \
                    self.train_together(count, str(count), *more, net=self.network())
                self.expect_close(str(count), "whole", first=steps)

    def test_an_evaluation_is_shared(self):
        self.train("run", "--steps", 5)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        alone = run("eval", checkpoint)
        done = self.mpirun(3, ["eval", checkpoint])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, alone.stdout)

    def expect_refused(self, done, *words):
        self.assertEqual(done.returncode, 2, done.stderr)
        sentences = [line for line in done.stderr.splitlines() if line.startswith("unmetal: ")]
        self.assertEqual(len(sentences), 1, done.stderr)
        for word in words:
            self.assertIn(word, sentences[0])

    def test_ranks_that_disagree_are_refused_before_the_first_step(self):
        usual = self.train_arguments("run")
        other_data = write_data(self.folder / "other", training=200)
        for option, value, sentence in (("--seed", 7, "--seed is 0 on rank 0, but 7 on rank 1"),
                                        ("--batch", 8, "--batch is 16 on rank 0, but 8 on rank 1"),
                                        ("--net", "mnist-cnn", "--net is lenet on rank 0, but mnist-cnn on rank 1"),
                                        ("--data", other_data, "--data is ")):
            with self.subTest(option=option):
                self.expect_refused(self.mpirun_each([usual, self.with_option(usual, option, value)]), sentence)
                self.assertFalse((self.folder / "run").exists())
        # The same name, but not the same data.
        hidden = self.folder / "hidden"
        hidden.mkdir()
        write_data(hidden / "data", training=200)
        write_data(hidden / "there" / "data")
        relative = [str(word).replace(str(self.folder / "data"), "data") for word in usual]
        words = [*MPIRUN, "-np", 1, "-wdir", hidden, PROGRAM, *relative, ":", "-np", 1, "-wdir", hidden / "there", PROGRAM, *relative]
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=SECONDS, env=ENVIRONMENT)
        self.expect_refused(done, "the number of training pictures is 200 on rank 0, but 256 on rank 1")

    def test_one_that_cannot_begin_ends_all(self):
        usual = self.train_arguments("run")
        done = self.mpirun_each([usual, self.with_option(usual, "--data", f"fashion-mnist:{self.folder / 'nothing'}")])
        self.expect_refused(done, "rank 1: ", str(self.folder / "nothing"))
        self.expect_refused(self.mpirun(2, self.with_option(usual, "--batch", 1000)), "unmetal: --batch 1000: ")
        self.assertFalse((self.folder / "run").exists())

    def test_drift_is_named(self):
        self.train("a", "--steps", 3)
        shutil.copytree(self.folder / "a", self.folder / "b")
        with_tensor(self.folder / "b" / "checkpoint.safetensors", "dense5.bias", b"\0\0\0\0")
        resume = ["--resume", "--steps", 6]
        done = self.mpirun_each([self.train_arguments("a", *resume), self.train_arguments("b", *resume)])
        self.expect_refused(done, '"dense5": biases differs between ranks 0 and 1')

    def start(self, count, out, *more, steps=20):
        words = [*MPIRUN, "-np", count, PROGRAM, *self.train_arguments(out, *more, epochs=400)]
        program = subprocess.Popen([*map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(program.kill)
        deadline = time.monotonic() + SECONDS
        path = self.folder / out / "metrics.csv"
        while time.monotonic() < deadline and program.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < steps):
            time.sleep(0.02)
        self.assertIsNone(program.poll())
        return program, self.ranks_of(out)

    def ranks_of(self, out):
        """Processes by rank."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == PROGRAM.encode() and str(self.folder / out).encode() in words:
                rank = [word[21:] for word in variables if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
                found.update({int(word): int(entry.name) for word in rank})
        return found

    def expect_goes_on(self, out, step):
        done = self.mpirun(2, self.train_arguments(out, "--resume", "--steps", step + 5, epochs=400))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(position(self.folder / out / "checkpoint.safetensors"), step + 5)

    def test_a_rank_that_stops_ends_the_others_with_a_sentence(self):
        for stopped, first in ((1, 0), (0, 1)):
            with self.subTest(stopped=stopped):
                out = f"run{stopped}"
                program, ranks = self.start(3, out, "--collective-timeout", 2)
                self.assertEqual(sorted(ranks), [0, 1, 2])
                os.kill(ranks[stopped], signal.SIGSTOP)
                begin = time.monotonic()
                _, errors = program.communicate(timeout=SECONDS)
                self.expect_end(ranks, begin)
                self.assertEqual(program.returncode, 3, errors)
                sentences = [line for line in errors.splitlines() if line.startswith("unmetal: ")]
                self.assertEqual(len(sentences), 1, errors)
                self.assertRegex(sentences[0], rf"unmetal: step \d+: Communicator: all-reduce of \d+ float32.*: rank {stopped} \(\S+, cpu\) of 3 "
                                               rf"did not come to it within 2000 ms; to go on .*--resume --out {self.folder / out}$")
                self.expect_goes_on(out, position(self.folder / out / "checkpoint.safetensors"))

    @staticmethod
    def is_running(process):
        try:
            return ") Z " not in pathlib.Path(f"/proc/{process}/stat").read_text()  # a zombie has ended
        except OSError:
            return False

    def expect_end(self, ranks, begin):
        """Of all, within the timeout and 30 seconds."""
        while any(map(self.is_running, ranks.values())):
            self.assertLess(time.monotonic() - begin, 2 + 30)
            time.sleep(0.05)

    def test_a_rank_that_is_killed_ends_the_others(self):
        program, ranks = self.start(3, "run", "--collective-timeout", 2)
        os.kill(ranks[1], signal.SIGKILL)
        begin = time.monotonic()
        _, errors = program.communicate(timeout=SECONDS)
        self.assertNotEqual(program.returncode, 0, errors)
        self.expect_end(ranks, begin)
        self.expect_goes_on("run", position(self.folder / "run" / "checkpoint.safetensors"))

    def test_a_kill_at_a_random_moment(self):
        generator = random.Random()
        for number in range(KILLS):
            rank, name, wait = generator.randrange(3), generator.choice(["SIGKILL", "SIGSTOP"]), 2 * generator.random()
            with self.subTest(number=number, rank=rank, signal=name, wait=wait):
                out = f"run{number}"
                program, ranks = self.start(3, out, "--collective-timeout", 2, "--checkpoint-every", 0.2, steps=2)
                time.sleep(wait)
                os.kill(ranks[rank], getattr(signal, name))
                begin = time.monotonic()
                _, errors = program.communicate(timeout=SECONDS)
                self.expect_end(ranks, begin)
                self.assertNotEqual(program.returncode, 0)
                sentences = [line for line in errors.splitlines() if line.startswith("unmetal: ")]
                if name == "SIGSTOP":
                    self.assertEqual(len(sentences), 1, errors)
                    self.assertIn(f"rank {rank} (", sentences[0])
                self.expect_goes_on(out, position(self.folder / out / "checkpoint.safetensors"))

    def test_a_signal_to_one_stops_all_behind_the_same_step(self):
        program, ranks = self.start(2, "run")
        os.kill(ranks[1], signal.SIGTERM)
        _, errors = program.communicate(timeout=SECONDS)
        self.assertNotIn("unmetal: ", errors)
        step = position(self.folder / "run" / "checkpoint.safetensors")
        self.assertGreaterEqual(step, 19)
        self.expect_goes_on("run", step)

    def test_bench_times_several(self):
        done = self.mpirun(2, ["bench", "--filter", "lenet 16"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "lenet step float32 28x28x1 batch 16 on each of 2 ranks, joined by MPI")
        steps = ("each for itself", "each in a group of one", "together", "together, statistics of the whole batch")
        for line, words in zip(lines[1:], steps):
            self.assertRegex(line, rf"^  {words} +[0-9.]+ ms +\d+ images/s +[0-9.]+ % +[0-9.]+ MiB$")
        self.assertRegex(lines[5], r"^  sum of 61706 gradients +[0-9.]+ ms$")
        done = self.mpirun(2, ["bench", "--filter", "lenet", "--batch", 3])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(re.findall(r"lenet.* batch (\d+) on each", done.stdout), ["3"])
        self.expect_refused(self.mpirun(2, ["bench", "--filter", "nothing"]), "--filter nothing: no net")

    def test_wrong_devices(self):
        self.expect_error(self.train_arguments("run", "--devices", "cpu,cpu"), "--devices cpu,cpu", "mpirun -np 2 unmetal")
        self.expect_error(self.train_arguments("run", "--devices", "cuda:0,cuda:0"), "cuda:0 is there twice")

    def test_devices_names_what_joins_them(self):
        self.assertRegex(run("devices").stdout, r"(?m)^ranks on CPUs: .*MPI.* \(.*libunmetal_mpi.so\)$")
        missing = run("devices", env={**os.environ, "UNMETAL_MPI": "/nothing.so"})
        self.assertRegex(missing.stdout, r"(?m)^ranks on CPUs: MPI cannot be used: .*/nothing.so")
        self.assertRegex(missing.stdout, r"(?m)^ranks on GPUs: \S")


if __name__ == "__main__":
    unittest.main()
