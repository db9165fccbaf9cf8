"""What `unmetal train`, `eval` and `predict` print and write."""

import os
import pty
import random
import re
import subprocess
import unittest
import xml.etree.ElementTree
from statistics import mean

from harness import (CLASSES, PROGRAM, ProgramTest, SIDE, header, metrics, picture, png, position, run,
                     with_tensor, without_speed)


class Training(ProgramTest):
    def test_writes_metrics_curves_graph_and_checkpoints(self):
        output = self.train("run")
        out = self.folder / "run"
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["best.safetensors", "checkpoint.safetensors", "confusion.svg", "curves.svg", "graph.svg", "metrics.csv", "worst.svg"])
        rows = metrics(out)
        self.assertEqual(list(rows[0]), ["epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy",
                                         "learning_rate", "images_per_s", "seconds"])
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, 33)))
        self.assertEqual([int(row["epoch"]) for row in rows], [1] * 16 + [2] * 16)
        for row in rows:
            self.assertGreater(float(row["train_loss"]), 0)
            self.assertGreater(float(row["images_per_s"]), 0)
            for column in ("validation_loss", "validation_accuracy"):
                self.assertEqual(row[column] != "", int(row["step"]) % 16 == 0)
            self.assertTrue(0 <= float(row["train_accuracy"]) <= 1)
            self.assertEqual(float(row["learning_rate"]), 0.001)
        self.assertGreater(mean(float(row["train_accuracy"]) for row in rows[16:]), mean(float(row["train_accuracy"]) for row in rows[:16]))
        seconds = [float(row["seconds"]) for row in rows]
        self.assertEqual(seconds, sorted(seconds))
        self.assertLess(float(rows[-1]["train_loss"]), float(rows[0]["train_loss"]))
        for epoch in (1, 2):
            shown = re.search(rf"^epoch {epoch}: validation accuracy (\d+\.\d\d) %$", output, re.MULTILINE)
            self.assertAlmostEqual(float(shown[1]), 100 * float(rows[16 * epoch - 1]["validation_accuracy"]), delta=0.01)
        self.assertRegex(output.splitlines()[-1], r"^next: unmetal predict .*best.safetensors PICTURE$")
        self.assertRegex(output, r"(?m)^final validation accuracy \d+\.\d\d %, best \d+\.\d\d %$")
        self.assertRegex(output, r"(?m)^weights of the best epoch: \S+/best.safetensors; of the last one, to go on: \S+/checkpoint.safetensors$")
        text = "".join(xml.etree.ElementTree.parse(out / "curves.svg").getroot().itertext())
        for word in ("loss", "accuracy", "epoch", "step"):
            self.assertIn(word, text)
        text = "".join(xml.etree.ElementTree.parse(out / "graph.svg").getroot().itertext())
        for word in ("conv1", "28x28x6", "dense"):
            self.assertIn(word, text)
        self.assertEqual(position(out / "checkpoint.safetensors"), 32)

    def test_prints_plain_lines_without_a_terminal(self):
        output = self.train("run")
        self.assertNotRegex(output, r"[\r\x1b]")
        self.assertRegex(output, r"(?m)^epoch 1/2  step 1/16  loss \d+\.\d+  \d+ images/s$")

    def test_shows_a_bar_on_a_terminal(self):
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        program = subprocess.Popen([PROGRAM, *map(str, self.train_arguments("run"))], stdout=follower,
                                   env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        output = b""
        try:
            while piece := os.read(leader, 4096):
                output += piece
        except OSError:  # the terminal's other end is closed
            pass
        self.assertEqual(program.wait(), 0)
        self.assertRegex(output.decode(), r"\repoch 1/2 \[=*>? *\] +\d+ %  loss \d+\.\d+".replace(r"\r", r"\r\x1b\[K"))
        self.assertIn("validation accuracy", output.decode())

    def test_knows_each_optimizer_and_schedule(self):
        # The tensors that each optimiser keeps for a layer's weights.
        slots = {"sgd": [], "momentum": ["momentum"], "nesterov": ["momentum"], "rmsprop": ["sumOfSquares"],
                 "adam": ["momentum", "velocity"], "amsgrad": ["maximumVelocity", "momentum", "velocity"],
                 "adamw": ["momentum", "velocity"]}
        last_losses = set()
        for number, (optimizer, expected) in enumerate(slots.items()):
            schedule = ("constant", "step", "cosine", "one-cycle")[number % 4]
            self.train(optimizer, "--optimizer", optimizer, "--lr-schedule", schedule, "--lr", "0.001",
                       "--weight-decay", "0.0001", epochs=1)
            names = header(self.folder / optimizer / "checkpoint.safetensors")
            self.assertEqual(sorted(name.split(".")[2] for name in names if name.startswith("conv1.weight.")), expected)
            last_losses.add(metrics(self.folder / optimizer)[-1]["train_loss"])
        self.assertEqual(len(last_losses), len(slots))

    def test_the_schedule_and_the_decay_change_the_training(self):
        losses = [self.last_loss(*options) for options in
                  ([], ["--lr-schedule", "step"], ["--lr-schedule", "cosine"], ["--lr-schedule", "one-cycle"], ["--warmup", "0.5"], ["--weight-decay", "0.1"], ["--clip-norm", "0.1"], ["--lr", "0.01"])]
        self.assertEqual(len(set(losses)), len(losses))

    def last_loss(self, *options):
        self.train("-".join(["run", *options]), *options, epochs=1)
        return metrics(self.folder / "-".join(["run", *options]))[-1]["train_loss"]

    def test_the_same_seed_gives_the_same_bytes_in_another_process(self):
        for net in ("lenet", "mnist-cnn"):  # mnist-cnn has dropout
            for out, seed in (("first", 7), ("second", 7), ("other", 8)):
                self.train(f"{net}-{out}", "--seed", seed, net=net, epochs=1, batch=64)
            read = {out: (self.folder / f"{net}-{out}" / "checkpoint.safetensors").read_bytes()
                    for out in ("first", "second", "other")}
            self.assertTrue(read["first"] == read["second"], net)
            self.assertFalse(read["first"] == read["other"], net)
            self.assertEqual(without_speed(self.folder / f"{net}-first"), without_speed(self.folder / f"{net}-second"))

    def test_the_best_epoch_is_kept(self):
        self.train("run", epochs=6)
        out = self.folder / "run"
        accuracies = [float(row["validation_accuracy"]) for row in metrics(out) if row["validation_accuracy"]]
        best = position(out / "best.safetensors") // 16
        self.assertEqual(accuracies.index(max(accuracies)) + 1, best)

    def test_eval_prints_accuracy_and_confusion_matrix(self):
        output = self.train("run")
        done = run("eval", "--checkpoint", self.folder / "run" / "checkpoint.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        accuracy, right, total = re.fullmatch(r"accuracy (\d+\.\d\d) % \((\d+) of (\d+)\)", lines[-1]).groups()
        self.assertIn(f"final validation accuracy {accuracy} %", output)
        self.assertEqual(int(total), 64)
        rows = [line for line in lines[1:] if re.match(r"\d ", line)]
        counts = [list(map(int, re.split(r"\s{2,}", line)[1:CLASSES + 1])) for line in rows]
        self.assertEqual(len(counts), CLASSES)
        self.assertEqual(sum(map(sum, counts)), 64)
        self.assertEqual(sum(counts[i][i] for i in range(CLASSES)), int(right))
        drawn = self.folder / "drawn"
        done = run("eval", self.folder / "run" / "checkpoint.safetensors", "--out", drawn)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(path.name for path in drawn.iterdir()), ["confusion.svg", "worst.svg"])
        for path in drawn.iterdir():
            text = "".join(xml.etree.ElementTree.parse(path).getroot().itertext())
            self.assertIn("checkpoint.safetensors on fashion-mnist", text)
        self.assertIn("Trouser", (drawn / "confusion.svg").read_text())
        # Other data than the training's.
        done = run("eval", "--checkpoint", self.folder / "run" / "best.safetensors", "--data", "synthetic")
        self.assertIn("of 1024)", done.stdout)

    def test_a_training_whose_last_step_diverges_fails(self):
        # One step: its loss is finite, its weights are not.
        arguments = self.train_arguments("run", "--optimizer", "sgd", "--lr", "1e30", net="alexnet-lrn:4", batch=256, epochs=1)
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "unmetal: the network's probabilities are not finite; train it with a smaller --lr\n"))
        self.assertFalse((self.folder / "run" / "best.safetensors").exists())
        self.assertEqual(position(self.folder / "run" / "checkpoint.safetensors"), 0)

    def test_predict_takes_more_pictures_than_are_classified_at_once(self):
        self.train("run", epochs=1)
        path = self.folder / "one.png"
        path.write_bytes(png(SIDE, SIDE, picture(1, random.Random(5))))
        done = run("predict", "--checkpoint", self.folder / "run" / "best.safetensors", *[path] * 501)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.splitlines()), 501)
        self.assertEqual(len(set(done.stdout.splitlines())), 1)
        # Nothing is printed before all pictures are read.
        self.expect_error(["predict", "--checkpoint", self.folder / "run" / "best.safetensors", *[path] * 501,
                           self.folder / "none.png"], "none.png")

    def test_predict_prints_classes_and_needs_no_data_set(self):
        self.train("run", epochs=6)
        for path in (self.folder / "data").iterdir():
            path.unlink()
        names = []
        for label in (1, 8):
            path = self.folder / f"{label}.png"
            path.write_bytes(png(SIDE, SIDE, picture(label, random.Random(5))))
            names.append(path)
        done = run("predict", "--checkpoint", self.folder / "run" / "best.safetensors", *names)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line, path, name in zip(done.stdout.splitlines(), names, ("Trouser", "Bag"), strict=True):
            shown = re.fullmatch(r"(.*): (.+?) (\d+\.\d) %, .+ \d+\.\d %, .+ \d+\.\d %", line)
            self.assertEqual((shown[1], shown[2]), (str(path), name))
            self.assertLessEqual(float(shown[3]), 100)

    def test_stops_after_steps(self):
        output = self.train("run", "--steps", 5)
        self.assertIn("stopped after step 5", output)
        self.assertEqual(len(metrics(self.folder / "run")), 5)
        self.assertEqual(position(self.folder / "run" / "checkpoint.safetensors"), 5)
        self.assertIn("nothing was measured yet", (self.folder / "run" / "curves.svg").read_text())

    def test_devices_lists_the_cpu(self):
        done = run("devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^cpu .* GiB$")

    def test_learns_from_a_folder_of_pictures(self):
        generator = random.Random(2)
        pictures = self.folder / "pictures"
        for label in range(3):
            (pictures / f"class {label}").mkdir(parents=True)
            for number in range(20):
                (pictures / f"class {label}" / f"{number:02}.png").write_bytes(png(SIDE, SIDE, picture(label, generator)))
        bad = pictures / "class 1" / "07.png"
        bad.write_bytes(b"")
        arguments = ["train", "--data", f"folder:{pictures}", "--picture-size", "28x28x1", "--net", "lenet", "--batch", 8,
                     "--epochs", 4, "--out", self.folder / "run"]
        self.expect_error(arguments, bad, "is empty", "--skip-bad")
        whole = run(*arguments, "--skip-bad")
        self.assertEqual((whole.returncode, whole.stderr), (0, ""))
        self.assertIn(f"left out: {bad} is empty", whole.stdout)
        names = header(self.folder / "run" / "checkpoint.safetensors")["__metadata__"]
        self.assertEqual([names[f"class.{label}"] for label in range(3)], ["class 0", "class 1", "class 2"])
        parts = arguments[:-1] + [self.folder / "parts"]
        self.assertEqual(run(*parts, "--skip-bad", "--steps", 9).returncode, 0)
        self.expect_error([*parts, "--skip-bad", "--resume", "--validation", 0.5], "--validation")
        with_tensor(self.folder / "parts" / "checkpoint.safetensors", "", **{"setting.skip-bad": None})  # as of former versions
        self.assertEqual(run(*parts, "--skip-bad", "--resume", "--steps", 10).returncode, 0)
        resumed = run("train", "--resume", "--out", self.folder / "parts")
        self.assertEqual((resumed.returncode, resumed.stderr), (0, ""))
        self.assertTrue((self.folder / "parts" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "run" / "checkpoint.safetensors").read_bytes())
        best = self.folder / "run" / "best.safetensors"
        evaluated = run("eval", "--checkpoint", best, "--skip-bad")
        self.assertEqual((evaluated.returncode, evaluated.stderr), (0, ""))
        self.assertRegex(evaluated.stdout, r"(?m)^accuracy \d+\.\d\d % \(\d+ of 12\)")
        predicted = run("predict", "--checkpoint", best, pictures / "class 2" / "03.png")
        self.assertRegex(predicted.stdout, r"03\.png: class \d \d+\.\d %")

    def write_arrows(self):
        """A class of arrows that point to the left and one of arrows to the right, each at another place."""
        generator = random.Random(7)
        for direction in ("left", "right"):
            folder = self.folder / "arrows" / direction
            folder.mkdir(parents=True)
            for number in range(100):
                pixels = bytearray(generator.randrange(40) for _ in range(SIDE * SIDE))
                left, middle = generator.randrange(2, 10), generator.randrange(8, 20)
                for column in range(16):
                    x = left + (15 - column if direction == "right" else column)
                    for row in range(-5, 6):
                        if abs(row) <= (column if column < 6 else 1):
                            pixels[(middle + row) * SIDE + x] = 255
                (folder / f"{number:02}.png").write_bytes(png(SIDE, SIDE, bytes(pixels)))
        return f"folder:{self.folder / 'arrows'}"

    def test_left_and_right_are_told_apart(self):
        arguments = ["train", "--data", self.write_arrows(), "--picture-size", "28x28x1", "--net", "lenet", "--batch", 16,
                     "--epochs", 8, "--out", self.folder / "run"]
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\naugmentation: none\n", done.stdout)
        self.assertEqual(header(self.folder / "run" / "checkpoint.safetensors")["__metadata__"]["setting.augment"], "none")
        self.assertGreater(float(re.search(r"final validation accuracy (\d+\.\d\d) %", done.stdout)[1]), 90)

    def test_names_of_files_take_no_memory(self):
        folder = self.folder / "pictures" / "class"
        folder.mkdir(parents=True)
        for number in range(1000):
            (folder / f"{number:03}.png").touch()
        arguments = ["train", "--data", f"folder:{self.folder / 'pictures'}", "--picture-size", "1024x1024x3", "--out",
                     self.folder / "run"]
        with subprocess.Popen([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True) as program:
            errors = program.stderr.read()
            _, status, usage = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(program.returncode, 2)
        self.assertIn("and there are 799 more troubles", errors)
        self.assertLess(usage.ru_maxrss, 1_000_000)  # KiB

    def test_a_folder_alone_is_enough(self):
        done = run("train", "--data", self.write_arrows() + "/", "--out", self.folder / "run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in (r"data: .*, 160 pictures for training and 40 for validation, 64x64x3, 2 classes: left, right",
                     r"network: small-cnn, \d+ parameters; it was chosen for pictures of 64x64x3, --net takes another",
                     r"training: 120 epochs of 10 steps with 16 pictures, adam, learning rate 0\.01 \(one-cycle\)",
                     r"device: .+", r"augmentation: none"):
            self.assertRegex(done.stdout, f"(?m)^{line}$")
        self.assertGreater(float(re.search(r"final validation accuracy (\d+\.\d\d) %", done.stdout)[1]), 95)
        self.assertLess(sum(path.stat().st_size for path in (self.folder / "run").iterdir()), 30_000_000)

    def test_the_best_weights_come_without_optimiser(self):
        self.train("run", net="small-cnn:4", epochs=1)
        names = header(self.folder / "run" / "best.safetensors")
        self.assertIn("conv1.weight", names)
        self.assertIn("bn1.running_mean", names)
        self.assertFalse([name for name in names if "momentum" in name or "velocity" in name or name.endswith(".step")])

    def test_quiet_prints_the_result_alone(self):
        self.assertEqual(len(self.train("run", "--quiet", epochs=1).splitlines()), 3)

    def test_takes_a_device_and_a_number_of_threads(self):
        self.train("run", "--device", "cpu", "--threads", 1, epochs=1)


if __name__ == "__main__":
    unittest.main()
