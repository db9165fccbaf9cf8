"""Files that somebody made to hurt: a sentence at once, whatever they claim, and no more memory than they are worth."""

import json
import os
import pathlib
import resource
import unittest

from harness import CLASSES, PROGRAM, ProgramTest, SIDE, header, png, run

MEMORY = 2 << 30
# What the address sanitizer takes for itself is more than any limit.
IS_SANITIZED = b"__asan_init" in pathlib.Path(PROGRAM).read_bytes()


def little_memory(*arguments):
    """Runs the program in so little memory that a network of gigabytes cannot be built."""
    def limited():
        if not IS_SANITIZED:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    return run(*arguments, preexec_fn=limited)


def write_checkpoint(path, net, side, tensors=(), data=b"", sparse=0):
    """A checkpoint with this network's name, and tensors that are not its own."""
    metadata = {"format": "unmetal checkpoint 1", "position.epoch": "0", "position.batch": "0", "position.step": "0",
                "position.best_accuracy": "0", "picture.width": str(side), "picture.height": str(side),
                "picture.channels": "1", "classes": str(CLASSES), "setting.net": net, "setting.data": "synthetic",
                "setting.batch": "1", **{f"class.{i}": str(i) for i in range(CLASSES)}}
    text = json.dumps({"__metadata__": metadata, **dict(tensors)}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    if sparse:
        os.truncate(path, path.stat().st_size + sparse)


class Checkpoints(ProgramTest):
    def test_a_kilobyte_that_names_a_network_of_gigabytes(self):
        picture = self.folder / "picture.png"
        picture.write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        wrong = self.folder / "checkpoint.safetensors"
        for net, side in (("resnet50:1024", SIDE), ("alexnet-lrn:1024", 4096), ("mnist-cnn", 4096)):
            for shape in ([], [1024]):
                with self.subTest(net=net, shape=shape):
                    bytes_of = 4 * (shape or [1])[0]
                    write_checkpoint(wrong, net, side, {"conv1.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, bytes_of]}},
                                     bytes(bytes_of))
                    for arguments in (["eval", wrong], ["predict", wrong, picture],
                                      ["train", "--data", f"synthetic:{min(side, 1024)}x{min(side, 1024)}x1", "--net", net, "--batch", 1,
                                       "--out", self.folder, "--resume"]):
                        if side > 1024 and arguments[0] == "train":
                            continue  # there are no such data
                        self.expect_error(arguments, wrong, "conv1.weight", program=little_memory)

    def test_tensors_of_gigabytes_that_are_nobodys(self):
        self.train("run", "--steps", 1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        content = header(checkpoint)
        length = 8 + int.from_bytes(checkpoint.read_bytes()[:8], "little")
        data = checkpoint.read_bytes()[length:]
        size = 6 << 30
        content["junk"] = {"dtype": "U8", "shape": [size], "data_offsets": [len(data), len(data) + size]}
        text = json.dumps(content).encode()
        checkpoint.write_bytes(len(text).to_bytes(8, "little") + text + data)
        os.truncate(checkpoint, 8 + len(text) + len(data) + size)
        kept = checkpoint.rename(self.folder / "large.safetensors")
        done = little_memory("eval", kept)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, rf"^unmetal: cannot use {kept}: its tensors have {len(data) + size} bytes, those of lenet")
        kept.rename(checkpoint)
        done = little_memory(*self.train_arguments("run", "--resume"))
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"its tensors have {len(data) + size} bytes", done.stderr)
        checkpoint.unlink()

    def test_initial_weights_of_gigabytes(self):
        weights = self.folder / "weights.safetensors"
        size = 6 << 30
        for name, shape in (("conv1.weight", [size // 4]), ("junk", [size // 4]), ("conv1.num_batches_tracked", [size // 4])):
            with self.subTest(name=name):
                text = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
                weights.write_bytes(len(text).to_bytes(8, "little") + text)
                os.truncate(weights, 8 + len(text) + size)
                done = little_memory(*self.train_arguments("run", "--init-from", weights))
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"cannot use {weights}", done.stderr)
                self.assertIn("conv1.weight", done.stderr)
                self.assertFalse((self.folder / "run").exists())


class OtherThanFiles(ProgramTest):
    def test_pipes_devices_and_folders(self):
        self.train("run", "--steps", 1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for path, words in ((pipe, "it is not a regular file"), ("/dev/zero", "it is not a regular file"),
                            (self.folder, "Is a directory")):
            for arguments in (["eval", path], ["predict", path, "picture.png"], ["predict", checkpoint, path],
                              self.train_arguments("new", "--init-from", path)):
                if arguments[:2] == ["predict", checkpoint] and path == self.folder:
                    continue  # which stands for the pictures in it
                with self.subTest(path=path, arguments=arguments):
                    self.expect_error(arguments, f"cannot read {path}: {words}")
        # Plans are for GPUs: a CPU's training does not even open the file. mps/convolution/check has the test of one that is read.
        for path in (pipe, "/dev/zero"):
            self.expect_error(self.train_arguments("new", "--plans", path), f"--plans {path}: plans are for GPUs")
        for name in ("t10k-labels-idx1-ubyte", "train-images-idx3-ubyte"):
            (self.folder / "data" / name).unlink()
            os.mkfifo(self.folder / "data" / name)
            self.expect_error(self.train_arguments("new"), name, "it is not a regular file")

    def test_a_sparse_picture_of_a_gigabyte(self):
        self.train("run", "--steps", 1)
        large = self.folder / "large.png"
        large.write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        os.truncate(large, 1 << 30)
        done = little_memory("predict", self.folder / "run" / "checkpoint.safetensors", large)
        self.assertEqual((done.returncode, done.stderr),
                         (2, f"unmetal: {large} has {1 << 30} bytes, too many for {SIDE * SIDE} pixels\n"))
        large.unlink()


class Folders(ProgramTest):
    def arguments(self, folder):
        return ["train", "--data", f"folder:{folder}", "--picture-size", "8x8x1", "--net", "lenet", "--batch", 1, "--epochs", 1,
                "--out", self.folder / "run"]

    def test_folders_of_the_system(self):
        for folder in ("/proc", "/sys"):
            self.expect_error(self.arguments(folder), f"{folder} is a folder of the system's, not of pictures")

    def test_links_into_the_system(self):
        pictures = self.folder / "pictures" / "cat"
        pictures.mkdir(parents=True)
        for i in range(4):
            (pictures / f"{i}.png").write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        (pictures / "link").symlink_to("/proc")
        self.expect_error(self.arguments(pictures.parent), f"{pictures}/link is a folder of the system's")


if __name__ == "__main__":
    unittest.main()
