"""Mistakes: one line on stderr that names the argument or file and the trouble, exit status 2, files as they were."""

import gzip
import os
import resource
import shutil
import signal
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, SECONDS, SIDE, contents, idx, metrics, png, run


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def with_file_size(limit):
    """Runs the program in a process whose files cannot grow beyond the limit, as on a full disk."""
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    return lambda *arguments: run(*arguments, preexec_fn=limited)


class Arguments(ProgramTest):
    def test_wrong_values_are_named(self):
        for option, value in (("--epochs", "0"), ("--epochs", "-1"), ("--epochs", "1e3"), ("--epochs", "many"),
                              ("--batch", "0"), ("--batch", "257"), ("--lr", "0"), ("--lr", "-1"), ("--lr", "nan"),
                              ("--lr", "inf"), ("--lr", "1e400"), ("--lr", "fast"), ("--weight-decay", "-1"),
                              ("--weight-decay", "nan"), ("--seed", "-1"), ("--seed", "18446744073709551616"),
                              ("--seed", "1.5"), ("--threads", "0"), ("--threads", "2000"), ("--steps", "0"),
                              ("--checkpoint-every", "-1"), ("--checkpoint-every", "nan"), ("--optimizer", "sdg"),
                              ("--lr-schedule", "linear"), ("--net", "lenet6"), ("--net", "resnet18:0"), ("--device", "abacus"),
                              ("--device", "cuda:99"), ("--out", ""), ("--data", "mnist"), ("--data", ""),
                              ("--init-from", ""), ("--plans", ""),
                              ("--data", "fashion-mnist:"), ("--data", "synthetic:3x3x3"), ("--data", "synthetic:1x1x1"),
                              ("--picture-size", "64x64"), ("--picture-size", "64x64x2"), ("--validation", "1"), ("--augment", ""), ("--augment", "rotate"),
                              ("--augment", "flip+crop"), ("--augment", "rotate:400"), ("--augment", "resized-crop:2"), ("--normalize", "all")):
            with self.subTest(option=option, value=value):
                arguments = self.with_option(self.train_arguments("run"), option, value)
                done = self.expect_error(arguments, option.strip("-") if option == "--data" else option)
                self.assertIn(value, done.stderr)
                self.assertFalse((self.folder / "run").exists())

    def test_data_whose_name_is_not_utf8(self):
        for kind in ("fashion-mnist", "folder"):
            path = os.fsdecode(os.fsencode(self.folder) + b"/\xff")
            done = subprocess.run([PROGRAM, "train", "--data", f"{kind}:{path}", "--out", self.folder / "run"], capture_output=True,
                                  timeout=SECONDS)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"has a name that is not UTF-8", done.stderr)
            self.assertFalse((self.folder / "run").exists())

    def test_names_in_messages_move_no_cursor(self):
        done = run("eval", "--checkpoint", "a\x1b[2J\nb")
        self.assertEqual(done.returncode, 2)
        self.assertIn("a\\x1B[2J\\nb", done.stderr)
        for more in ([], ["--overwrite", "--steps", 1]):
            output = self.train("a\x1b[2J\nb", *more, epochs=1)
            self.assertIn("a\\x1B[2J\\nb/checkpoint.safetensors", output)

    def test_threads_that_cannot_be_made_are_named(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            os.setuid(65534)
        if os.geteuid() != 0:
            self.skipTest("only root may become another user, whose processes are not counted")
        self.folder.chmod(0o777)
        # The leak sanitizer would look for leaks in a process of its own.
        own = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        done = run(*self.train_arguments("run"), preexec_fn=limited, env=own)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr,
                         "unmetal: Device cpu: the executing thread cannot be started: Resource temporarily "
                         "unavailable\n")

    def test_missing_and_unknown_ones_are_named(self):
        for arguments, word in (([], "command"), (["fly"], "fly"), (["--fly"], "--fly"), (["eval"], "--checkpoint"),
                                (["predict"], "--checkpoint"), (["predict", "--checkpoint", "x"], "pictures"),
                                (["export"], "--checkpoint"), (["export", "--checkpoint", "x"], "--onnx"),
                                (["train", "--epochs"], "--epochs"), (["train", "--fly"], "--fly"),
                                (["devices", "extra"], "extra"), (["bench", "--filter", "no such row"], "no such row"),
                                (["bench", "--megabytes", "0"], "--megabytes"),
                                (["predict", "--checkpoint", "x", "--top", "0", "y"], "--top")):
            with self.subTest(arguments=arguments):
                self.expect_error(arguments, word)


class DataSets(ProgramTest):
    def test_missing_truncated_and_corrupt_files_are_named(self):
        pictures = self.folder / "data" / "train-images-idx3-ubyte"
        labels = self.folder / "data" / "t10k-labels-idx1-ubyte"
        for path in (pictures, labels):
            whole = path.read_bytes()
            packed = gzip.compress(whole, mtime=0)
            flipped = bytearray(packed)
            flipped[len(packed) // 2] ^= 0x10
            unpacked = path.with_name(path.name)
            compressed = path.with_name(path.name + ".gz")
            for kind, content, name in (("truncated", whole[:-1], unpacked), ("cut in the header", whole[:6], unpacked),
                                        ("empty", b"", unpacked), ("too long", whole + b"x", unpacked),
                                        ("other magic", b"\1" + whole[1:], unpacked),
                                        ("truncated gzip", packed[:-9], compressed),
                                        ("corrupt gzip", bytes(flipped), compressed), ("missing", None, compressed)):
                with self.subTest(path=path.name, kind=kind):
                    path.unlink(missing_ok=True)
                    if content is not None:
                        name.write_bytes(content)
                    self.expect_error(self.train_arguments("run"), name)
                    self.assertFalse((self.folder / "run").exists())
                    name.unlink(missing_ok=True)
            path.write_bytes(whole)

    def test_labels_and_pictures_that_do_not_fit_are_named(self):
        labels = self.folder / "data" / "train-labels-idx1-ubyte"
        whole = labels.read_bytes()
        for content in (idx([255], whole[8:-1]), idx([256], b"\x0a" + whole[9:])):
            labels.write_bytes(content)
            self.expect_error(self.train_arguments("run"), labels)
        labels.write_bytes(whole)
        pictures = self.folder / "data" / "train-images-idx3-ubyte"
        pictures.write_bytes(idx([256, SIDE, SIDE - 1], bytes(256 * SIDE * (SIDE - 1))))
        self.expect_error(self.train_arguments("run"), pictures)

    def test_a_folder_that_is_none(self):
        self.expect_error(["train", "--data", f"fashion-mnist:{self.folder}/nowhere", "--out", self.folder / "run"],
                          self.folder / "nowhere")


class Checkpoints(ProgramTest):
    def test_missing_truncated_and_corrupt_ones_are_named(self):
        self.train("run", epochs=1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        flipped = bytearray(whole)
        flipped[-100] ^= 1
        picture = self.folder / "picture.png"
        picture.write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        wrong = self.folder / "wrong.safetensors"
        for content in (whole[:-1], whole[:100], b"", bytes(flipped), b"\xff" * 8 + whole[8:], whole + b"x"):
            wrong.write_bytes(content)
            self.expect_error(["eval", "--checkpoint", wrong], wrong)
            self.expect_error(["predict", "--checkpoint", wrong, picture], wrong)
        for path in (self.folder / "nowhere", self.folder):
            self.expect_error(["eval", "--checkpoint", path], path)
            self.expect_error(["predict", "--checkpoint", path, picture], path)

    def test_weights_of_another_program_are_refused(self):
        content = b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}     '
        other = self.folder / "other.safetensors"
        other.write_bytes(len(content).to_bytes(8, "little") + content + bytes(4))
        self.expect_error(["eval", "--checkpoint", other], other)

    def test_initial_weights_that_do_not_fit_are_named(self):
        self.train("run", "--steps", 2, net="mnist-cnn")
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        other = self.folder / "weights.safetensors"
        for path, words in ((self.folder / "nowhere", ["nowhere"]), (checkpoint, [checkpoint, "conv1.weight"]),
                            (other, [other, "conv1.weight"])):
            content = b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}     '
            other.write_bytes(len(content).to_bytes(8, "little") + content + bytes(4))
            self.expect_error(self.train_arguments("new", "--init-from", path), *words)
            self.assertFalse((self.folder / "new").exists())
        self.expect_error(self.train_arguments("run", "--init-from", other, "--resume"), "--init-from")

    def test_pictures_that_are_none_are_named(self):
        self.train("run", epochs=1)
        whole = png(SIDE, SIDE, bytes(SIDE * SIDE))
        wrong = self.folder / "wrong.png"
        for content in (whole[:-30], whole[:10], b"", b"text", whole[:45] + b"\xff" + whole[46:]):
            wrong.write_bytes(content)
            self.expect_error(["predict", "--checkpoint", self.folder / "run" / "best.safetensors", wrong], wrong)
        self.expect_error(["predict", "--checkpoint", self.folder / "run" / "best.safetensors", self.folder / "no.png"],
                          self.folder / "no.png")


def can_mount():
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def small_disk(folder, size, arguments):
    """Runs the program while the folder is a disk of so many bytes; what is on it then comes back."""
    kept = folder.with_name("kept")
    script = """
        set -e
        cp -a "$1" "$2"
        mount -t tmpfs -o size="$3" tmpfs "$1"
        cp -a "$2"/. "$1"
        rm -r "$2"
        result=0
        "${@:4}" || result=$?
        cp -a "$1" "$2"
        exit $result"""
    done = subprocess.run([*NAMESPACE, "bash", "-c", script, "bash", folder, kept, str(int(size)), PROGRAM, *map(str, arguments)],
                          capture_output=True, text=True, timeout=SECONDS, check=False)
    shutil.rmtree(folder)
    kept.rename(folder)
    return done


class FullDisks(ProgramTest):
    @unittest.skipUnless(can_mount(), "no name spaces of one's own")
    def test_room_for_both_checkpoints_and_the_next_one_is_looked_for(self):
        self.train("elsewhere", epochs=1)
        size = (self.folder / "elsewhere" / "checkpoint.safetensors").stat().st_size
        out = self.folder / "run"
        out.mkdir()
        arguments = self.train_arguments("run")
        done = small_disk(out, 2.2 * size, arguments)  # best.safetensors has a third of it
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, rf"^unmetal: cannot write {out}/\S+: No space left on device\n$")
        self.assertEqual(list(out.iterdir()), [])
        for more in ([], ["--overwrite"], ["--resume"]):
            done = small_disk(out, 2.7 * size, [*arguments, *more])
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_training_in_a_new_folder(self):
        for limit in (10, 1000, 100_000):
            with self.subTest(limit=limit):
                self.expect_error(self.train_arguments("run"), self.folder / "run", program=with_file_size(limit))

    def test_training_in_the_folder_of_an_earlier_one(self):
        self.train("run", epochs=1)
        for limit in (10, 1000, 100_000):
            for more in (["--overwrite"], ["--resume"]):
                with self.subTest(limit=limit, more=more):
                    self.expect_error(self.train_arguments("run", *more), self.folder / "run",
                                      program=with_file_size(limit))
        self.train("run", "--resume")

    def test_the_disk_becomes_full_during_the_training(self):
        out = self.folder / "run"
        for name in ("checkpoint.safetensors", "best.safetensors", "curves.svg"):
            with self.subTest(name=name):
                self.train("run", "--steps", 3, "--overwrite")
                kept = (out / name).read_bytes() if (out / name).exists() else None
                (out / name).unlink(missing_ok=True)
                (out / name).symlink_to("/dev/full")
                done = run(*self.train_arguments("run", "--overwrite"))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr, f"unmetal: cannot write {out / name}: No space left on device\n")
                (out / name).unlink()
                if kept:
                    (out / name).write_bytes(kept)
                self.train("run", "--resume")

    def test_output_that_nobody_can_write(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "devices"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "unmetal: cannot write to standard output\n")

    def test_closed_standard_streams_are_no_files_of_the_training(self):
        for closed in ((0, 1, 2), (1,), (0, 2)):
            with self.subTest(closed=closed):
                subprocess.run([PROGRAM, *map(str, self.train_arguments("run", "--overwrite", epochs=1))], timeout=SECONDS, check=True,
                               preexec_fn=lambda closed=closed: [os.close(number) for number in closed],
                               stdout=None if 1 in closed else subprocess.DEVNULL)
                self.assertEqual(len(metrics(self.folder / "run")), 16)
                self.assertEqual(run("eval", "--checkpoint", self.folder / "run" / "checkpoint.safetensors").returncode, 0)

    def test_reports(self):
        for command in ("conform", "bench"):
            arguments = [command, "--filter", "CNNNeuron forward float32", "--json"]
            if command == "conform":
                self.expect_error([*arguments, "/dev/full"], "/dev/full")
            rows = self.folder / "rows.json"
            rows.write_text("before")
            self.expect_error([*arguments, self.folder / "nowhere" / "rows.json"], "nowhere/rows.json")


class Folders(ProgramTest):
    def test_a_file_where_the_folder_should_be(self):
        file = self.folder / "file"
        file.write_text("text")
        for out in (file, file / "below"):
            self.expect_error(self.train_arguments(out), out)
            self.expect_error(self.train_arguments(out, "--resume"), out)

    def test_a_folder_where_a_file_should_be(self):
        for name in ("checkpoint.safetensors", "best.safetensors", "metrics.csv", "graph.svg"):
            out = self.folder / f"run-{name}"
            (out / name).mkdir(parents=True)
            (out / "mine.txt").write_text("text")
            self.expect_error(self.train_arguments(out), out / name)
            self.assertEqual(sorted(path.name for path in out.iterdir()), sorted([name, "mine.txt"]))

    def test_a_folder_without_permission(self):
        def ordinary():  # root may write everywhere
            if os.geteuid() == 0:
                os.setuid(65534)
        own = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # which would need a process of its own
        out = self.folder / "locked"
        self.folder.chmod(0o755)
        self.train(out, "--steps", 3)
        out.chmod(0o555)
        for more in (["--overwrite"], ["--resume"]):
            self.expect_error(self.train_arguments(out, *more), out,
                              program=lambda *arguments: run(*arguments, preexec_fn=ordinary, env=own))
        out.chmod(0o755)
        self.train(out, "--resume")
        self.assertTrue((out / "graph.svg").exists())

    def test_a_folder_that_no_one_can_make(self):
        self.expect_error(self.train_arguments("/proc/unmetal"), "/proc/unmetal")


if __name__ == "__main__":
    unittest.main()
