"""A training that was killed goes on where it stood, to the same bytes."""

import os
import random
import re
import subprocess
import time
import unittest

from harness import (PROGRAM, ProgramTest, SECONDS, SIDE, contents, header, metrics, picture, png, position, run, to_bytes, with_tensor,
                     without_speed, write_data)

EPOCHS = 10
STEPS = 16 * EPOCHS


def rows_so_far(folder):
    try:
        return (folder / "metrics.csv").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


class Resume(ProgramTest):
    def kill_at(self, out, steps, *more):
        """Kills a training when its metrics have so many rows."""
        program = subprocess.Popen([PROGRAM, *map(str, self.train_arguments(out, *more, epochs=EPOCHS))],
                                   stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 100
        while rows_so_far(self.folder / out) < steps and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        program.kill()
        self.assertEqual(program.wait(), -9, "it ended before it was killed")

    def test_a_killed_training_ends_with_the_same_bytes(self):
        # AMSGrad has the most state.
        options = ["--optimizer", "amsgrad", "--seed", 3, "--lr-schedule", "cosine", "--checkpoint-every", 0,
                   "--augment", "crop+flip+rotate:10+mixup:0.2"]
        self.train("whole", *options, epochs=EPOCHS)
        self.kill_at("killed", 6 * STEPS // 10 + 4, *options)  # behind the end of an epoch
        checkpoint = self.folder / "killed" / "checkpoint.safetensors"
        stood_at = position(checkpoint)
        # Rows that only the resumed process can have written.
        (self.folder / "killed" / "metrics.csv").rename(self.folder / "before.csv")
        output = self.train("killed", *options, "--resume", epochs=EPOCHS)
        executed = [int(row["step"]) for row in metrics(self.folder / "killed")]
        self.assertEqual(executed, list(range(stood_at + 1, STEPS + 1)))
        self.assertLessEqual(len(executed), 0.45 * STEPS)
        self.assertIn(f"going on after step {stood_at} of {STEPS}", output)
        for name in ("checkpoint.safetensors", "best.safetensors"):
            self.assertTrue((self.folder / "killed" / name).read_bytes() == (self.folder / "whole" / name).read_bytes(),
                            name)

    def test_an_average_of_the_weights_goes_on(self):
        options = ["--ema", 0.95, "--checkpoint-every", 0]
        self.train("whole", *options, epochs=EPOCHS)
        self.kill_at("killed", STEPS // 2 + 4, *options)
        done = run("train", "--resume", "--out", self.folder / "killed")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in ("checkpoint.safetensors", "best.safetensors"):
            self.assertTrue((self.folder / "killed" / name).read_bytes() == (self.folder / "whole" / name).read_bytes(),
                            name)
        checkpoint = self.folder / "whole" / "checkpoint.safetensors"
        self.assertEqual(header(checkpoint)["__metadata__"]["average.steps"], str(STEPS))
        self.expect_error(self.train_arguments("killed", "--resume", "--ema", 0.5, epochs=EPOCHS),
                          "it was made with --ema 0.95, not 0.5")
        with_tensor(checkpoint, "average.conv1.weight", b"\0\0\xc0\x7f")
        self.expect_error(self.train_arguments("whole", "--resume", epochs=EPOCHS), '"average.conv1.weight" is not finite')

    def test_the_metrics_go_on_as_if_nothing_had_happened(self):
        # Checkpoints as often as the program chooses.
        self.train("whole", epochs=EPOCHS)
        self.kill_at("killed", 6 * STEPS // 10 + 4)
        stood_at = position(self.folder / "killed" / "checkpoint.safetensors")
        output = self.train("killed", "--resume", epochs=EPOCHS)
        self.assertIn(f"going on after step {stood_at} of {STEPS}", output)
        self.assertLessEqual(STEPS - stood_at, 0.45 * STEPS)
        self.assertEqual(without_speed(self.folder / "killed"), without_speed(self.folder / "whole"))
        self.assertEqual(sorted(contents(self.folder / "killed")), sorted(contents(self.folder / "whole")))

    def test_stopping_anywhere_in_an_epoch_changes_nothing(self):
        # mnist-cnn: dropout's random numbers go on too. resnet18: so do the running statistics.
        for net in ("mnist-cnn", "resnet18:4"):
            with self.subTest(net=net):
                whole, parts = f"whole {net}", f"parts {net}"
                self.train(whole, net=net, batch=64)
                for steps in (3, 4, 5):
                    self.train(parts, "--steps", steps, *(["--resume"] if steps > 3 else []), net=net, batch=64)
                    self.assertEqual(position(self.folder / parts / "checkpoint.safetensors"), steps)
                self.train(parts, "--resume", net=net, batch=64)
                self.assertTrue((self.folder / parts / "checkpoint.safetensors").read_bytes() ==
                                (self.folder / whole / "checkpoint.safetensors").read_bytes())

    def test_a_float16_training_goes_on_with_its_loss_scale(self):
        options = ["--format", "float16"]
        self.train("whole", *options)
        self.train("parts", "--steps", 5, *options)
        checkpoint = self.folder / "parts" / "checkpoint.safetensors"
        self.assertEqual(header(checkpoint)["__metadata__"]["loss_scale.finite_steps"], "5")
        self.train("parts", "--resume", *options)
        self.assertTrue(checkpoint.read_bytes() == (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_a_checkpoint_is_there_before_the_first_step(self):
        # A file that cannot grow any more ends the training before its first row: as if it were killed there.
        self.train("run", "--steps", 3)
        out = self.folder / "run"
        (out / "metrics.csv").unlink()
        (out / "metrics.csv").symlink_to("/dev/full")
        done = run(*self.train_arguments("run", "--overwrite"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(position(out / "checkpoint.safetensors"), 0)
        (out / "metrics.csv").unlink()
        # Neither was the graph drawn, or another lies there; nor were files removed that were being written.
        (out / "graph.svg").write_text("of an earlier training")
        for name in ("graph.svg", "metrics.csv", "best.safetensors", "checkpoint.safetensors", "curves.svg"):
            (out / f"{name}.partial-12345").write_text("left over")
        self.assertIn("going on after step 0 of 32", self.train("run", "--resume"))
        self.train("whole")
        self.assertEqual(sorted(contents(out)), sorted(contents(self.folder / "whole")))
        self.assertEqual((out / "graph.svg").read_bytes(), (self.folder / "whole" / "graph.svg").read_bytes())
        self.assertTrue((out / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_a_finished_training_stays_finished(self):
        first = self.train("run")
        before = contents(self.folder / "run")
        self.assertEqual(self.train("run", "--resume").splitlines()[-1], first.splitlines()[-1])
        self.assertEqual(contents(self.folder / "run"), before)

    def test_resume_needs_no_other_option(self):
        options = ["--lr-schedule", "cosine", "--warmup", 0.5, "--seed", 3, "--optimizer", "nesterov", "--weight-decay", 0.01]
        self.train("whole", *options)
        self.train("parts", *options, "--steps", 20)
        done = run("train", "--resume", "--out", self.folder / "parts")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((self.folder / "parts" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_resume_keeps_how_batches_are_normalised(self):
        self.train("run", "--steps", 5)
        self.expect_error(["train", "--resume", "--out", self.folder / "run", "--no-sync-batch-norm"], "--no-sync-batch-norm no, not yes")
        self.train("own", "--no-sync-batch-norm", "--steps", 5)
        done = run("train", "--resume", "--out", self.folder / "own", "--steps", 7)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        checkpoint = self.folder / "own" / "checkpoint.safetensors"
        self.assertEqual((position(checkpoint), header(checkpoint)["__metadata__"]["setting.no-sync-batch-norm"]), (7, "yes"))
        # Former versions have not said it.
        with_tensor(self.folder / "run" / "checkpoint.safetensors", "", **{"setting.no-sync-batch-norm": None})
        self.train("run", "--resume", "--no-sync-batch-norm", "--steps", 7)

    def test_epochs_and_learning_rate_may_change(self):
        self.train("run", "--lr-schedule", "cosine")
        done = run("train", "--resume", "--out", self.folder / "run", "--epochs", 3, "--lr", 0.0005)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("learning rate 5e-04 (cosine)", done.stdout)
        self.assertEqual(position(self.folder / "run" / "checkpoint.safetensors"), 48)

    def test_a_training_is_not_replaced_unasked(self):
        self.train("run", epochs=1)
        self.expect_error(self.train_arguments("run"), "holds a training already", "--resume", "--overwrite")
        self.expect_error(self.train_arguments("run", "--resume", "--overwrite"), "--overwrite excludes --resume")
        self.train("run", "--overwrite", epochs=1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        checkpoint.write_bytes(b"not one of ours")
        self.expect_error(self.train_arguments("run"), "holds a training already")

    def test_more_epochs_may_follow_at_a_constant_rate(self):
        self.train("whole", epochs=3)
        self.train("parts", epochs=2)
        self.train("parts", "--resume", epochs=3)
        self.assertTrue((self.folder / "parts" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_a_checkpoint_holds_all_that_a_training_needs(self):
        self.train("run", "--steps", 5, net="mnist-cnn")
        names = header(self.folder / "run" / "checkpoint.safetensors")
        for name in ("conv1.weight", "conv1.bias", "conv1.weight.momentum", "conv1.weight.velocity", "conv1.step",
                     "random.counters"):
            self.assertIn(name, names)
        self.assertEqual({key: names["__metadata__"][key] for key in ("position.epoch", "position.batch", "position.step")},
                         {"position.epoch": "0", "position.batch": "5", "position.step": "5"})

    def test_a_checkpoint_holds_the_state_of_a_batch_normalisation(self):
        self.train("run", "--steps", 2, net="resnet18:4")
        names = header(self.folder / "run" / "checkpoint.safetensors")
        for name in ("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
                     "bn1.weight.velocity", "layer2.0.downsample.1.running_var", "layer4.1.bn2.step", "fc.bias"):
            self.assertIn(name, names)

    def test_a_damaged_checkpoint_is_refused(self):
        self.train("run", "--steps", 20)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        flipped = bytearray(whole)
        flipped[-1000] ^= 1
        for damaged in (whole[:-1], whole[:1000], whole[:4], b"", bytes(flipped), b"x" + whole[1:]):
            checkpoint.write_bytes(damaged)
            self.expect_error(self.train_arguments("run", "--resume"), checkpoint)
        checkpoint.unlink()
        self.expect_error(self.train_arguments("run", "--resume"), checkpoint)
        checkpoint.write_bytes(whole)
        self.train("run", "--resume")

    def test_a_checkpoint_that_no_training_goes_on_with_is_refused(self):
        self.train("run", "--steps", 20)
        out = self.folder / "run"
        checkpoint = out / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        # Of rows and drawings behind it nothing is changed either.
        with open(out / "metrics.csv", "a") as rows:
            rows.write("2,21,0.5,,,,,100.0,\n")
        (out / "graph.svg").write_text("of an earlier training")
        (out / "graph.svg.old-1").write_text("mine")
        for name, values, metadata, words in (
                ("conv1.weight.velocity", to_bytes("<f", -1), {}, "is negative"),
                ("conv1.weight.velocity", to_bytes("<f", float("inf")), {}, "is not finite"),
                ("conv1.weight", to_bytes("<f", float("nan")), {}, "is not finite"),
                ("conv1.step", to_bytes("<Q", 2**64 - 1), {}, "beyond the 20 steps"),
                ("", None, {"position.step": str(2**64 - 1)}, "beyond"),
                ("", None, {"position.step": "24", "position.epoch": "0", "position.batch": "24"}, "another number"),
                ("", None, {"position.best_accuracy": "nan"}, "best accuracy")):
            with self.subTest(words=words, name=name, metadata=metadata):
                checkpoint.write_bytes(whole)
                with_tensor(checkpoint, name, values, **metadata)
                done = self.expect_error(self.train_arguments("run", "--resume"), checkpoint)
                if metadata.get("position.step") != str(2**64 - 1):
                    self.assertIn(words, done.stderr)
        checkpoint.write_bytes(whole)
        self.train("run", "--resume")

    def test_a_failed_step_does_not_replace_the_last_good_checkpoint(self):
        # Its loss is finite, but not what the network then makes of a picture.
        out = self.folder / "run"
        done = run(*self.train_arguments("run", "--optimizer", "sgd", "--lr", "1e30", "--steps", 1, net="mnist-cnn"))
        self.assertEqual((done.returncode, done.stderr),
                         (2, "unmetal: the network's probabilities are not finite; train it with a smaller --lr\n"))
        self.assertEqual(position(out / "checkpoint.safetensors"), 0)

    def test_a_folder_has_one_training(self):
        arguments = [PROGRAM, *map(str, self.train_arguments("run", epochs=400))]
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as first:
            try:
                deadline = time.monotonic() + SECONDS
                while rows_so_far(self.folder / "run") < 3 and first.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                for more in ([], ["--resume"]):
                    second = run(*self.train_arguments("run", *more, epochs=400))
                    self.assertEqual((second.returncode, second.stdout), (2, ""))
                    self.assertEqual(second.stderr, f"unmetal: another training (process {first.pid}) is at work in the folder "
                                                    f"{self.folder / 'run'}: wait for its end, or give another --out\n")
                self.assertIsNone(first.poll())
            finally:
                first.kill()
        steps = [int(row["step"]) for row in metrics(self.folder / "run")]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.train("run", "--resume", "--steps", len(steps) + 3, epochs=400)
        self.assertNotIn(".lock", contents(self.folder / "run"))

    def test_another_instruction_set_is_noted(self):
        self.train("run", "--steps", 3)
        self.assertNotIn("last bits", self.train("run", "--resume", "--steps", 4))
        done = run(*self.train_arguments("run", "--resume"), env={**os.environ, "DNNL_MAX_CPU_ISA": "SSE41"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^the checkpoint was made with \S+, oneDNN \S+, this training goes on with \S+, oneDNN SSE41: "
                                      r"its numbers may differ in their last bits$")

    def test_the_number_of_threads_changes_no_byte(self):
        self.train("whole", "--threads", 1)
        self.train("parts", "--threads", 2, "--steps", 5)
        for own in ({}, {"OMP_THREAD_LIMIT": "1"}):
            done = run(*self.train_arguments("parts", "--resume", "--steps", 10 if not own else 32, "--threads", 3),
                       env={**os.environ, **own})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotIn("last bits", done.stdout)
        self.assertTrue((self.folder / "parts" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_a_resume_and_eval_keep_the_normalization(self):
        self.assertIn("normalization: computed\n", done := self.train("whole", "--normalize", "computed"))
        self.train("parts", "--normalize", "computed", "--steps", 5)
        self.expect_error(self.train_arguments("parts", "--resume", "--normalize", "none"), "--normalize")
        self.assertIn("normalization: computed\n", self.train("parts", "--resume"))
        whole = self.folder / "whole" / "checkpoint.safetensors"
        self.assertTrue((self.folder / "parts" / "checkpoint.safetensors").read_bytes() == whole.read_bytes())
        self.train("without")
        self.assertNotEqual(metrics(self.folder / "whole")[-1]["train_loss"], metrics(self.folder / "without")[-1]["train_loss"])
        accuracy = re.search(r"final validation accuracy ([0-9.]+) %", done).group(1)
        evaluation = run("eval", str(whole))
        self.assertEqual((evaluation.returncode, evaluation.stderr), (0, ""))
        self.assertIn(f"accuracy {accuracy} %", evaluation.stdout)
        self.expect_error(self.train_arguments("grey", "--normalize", "imagenet"),
                          "normalization: there are 3 means and 3 deviations, expected one for each channel of 28x28x1")

    def test_a_resume_keeps_the_augmentation(self):
        for augmentation in ("none", "crop", "flip", "crop+flip", "resized-crop:0.5+shift:0.1+rotate:10+contrast:0.2+mixup:0.2+smooth:0.1"):
            with self.subTest(augmentation=augmentation):
                whole, parts = f"whole {augmentation}", f"parts {augmentation}"
                options = ["--augment", augmentation]
                self.assertIn(f"augmentation: {augmentation}\n", self.train(whole, *options))
                self.train(parts, *options, "--steps", 5)
                other = "flip" if augmentation == "none" else "none"
                self.expect_error(self.train_arguments(parts, "--resume", "--augment", other), "--augment")
                self.assertIn(f"augmentation: {augmentation}\n", self.train(parts, "--resume"))
                self.assertTrue((self.folder / parts / "checkpoint.safetensors").read_bytes() ==
                                (self.folder / whole / "checkpoint.safetensors").read_bytes())
        losses = {metrics(self.folder / f"whole {name}")[-1]["train_loss"] for name in ("none", "crop", "flip", "crop+flip")}
        self.assertEqual(len(losses), 4)

    def test_other_settings_are_refused(self):
        self.train("run", "--steps", 20)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        for option, value in (("--seed", 1), ("--optimizer", "sgd"), ("--lr-schedule", "step"),
                              ("--weight-decay", 0.5), ("--data", "synthetic"), ("--batch", 8), ("--net", "mnist-cnn"),
                              ("--epochs", 1), ("--format", "float16")):
            arguments = self.with_option(self.train_arguments("run", "--resume"), option, value)
            self.expect_error(arguments, checkpoint, option)

    def test_classes_of_other_names_are_refused(self):
        generator = random.Random(3)
        pictures = self.folder / "pictures"
        for label, name in enumerate(("cat", "dog")):
            (pictures / name).mkdir(parents=True)
            for number in range(20):
                (pictures / name / f"{number:02}.png").write_bytes(png(SIDE, SIDE, picture(label, generator)))
        arguments = ["train", "--data", f"folder:{pictures}", "--picture-size", "28x28x1", "--net", "lenet", "--batch", 8,
                     "--epochs", 2, "--out", self.folder / "run"]
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        self.assertEqual(run(*arguments, "--steps", 3).returncode, 0)
        (pictures / "cat").rename(pictures / "xylo")  # which comes last
        for command in ([*arguments, "--resume"], ["eval", "--checkpoint", checkpoint]):
            done = self.expect_error(command, 'class 0 is "cat", not "dog"')
            self.assertEqual(done.stdout, "")
        (pictures / "xylo").rename(pictures / "cat")
        for command in ([*arguments, "--resume"], ["eval", "--checkpoint", checkpoint], [*arguments, "--resume", "--skip-bad"]):
            self.assertEqual(run(*command).returncode, 0)

    def test_a_data_set_of_another_size_is_refused(self):
        # In the second epoch, and in the first.
        for steps, pictures in ((20, 512), (3, 480)):
            self.train("run", "--steps", steps, "--overwrite")
            write_data(self.folder / "data", training=pictures)
            self.expect_error(self.train_arguments("run", "--resume"), self.folder / "run" / "checkpoint.safetensors",
                              "another number of pictures")


if __name__ == "__main__":
    unittest.main()
