"""What the tests of the program share: a tiny data set, runs of the program, and what it must do with mistakes."""

import csv
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest
import zlib

PROGRAM = os.environ["UNMETAL_PROGRAM"]
SECONDS = float(os.environ["UNMETAL_RUN_SECONDS"])
SIDE = 28
CLASSES = 10
to_bytes = struct.pack


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, **options)


def picture(label, generator):
    """Noise with a bright square at a place that tells the class."""
    pixels = bytearray(generator.randrange(64) for _ in range(SIDE * SIDE))
    left, top = label % 4 * 7 + 1, label // 4 * 7 + 1
    for row in range(top, top + 5):
        pixels[row * SIDE + left:row * SIDE + left + 5] = b"\xff" * 5
    return bytes(pixels)


def idx(shape, values):
    return bytes([0, 0, 8, len(shape)]) + to_bytes(f">{len(shape)}I", *shape) + values


def write_data(folder, training=256, test=64):
    """A data set in the files of Fashion-MNIST; returns what --data calls it."""
    generator = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", training), ("t10k", test)):
        labels = bytes(i % CLASSES for i in range(count))
        pictures = b"".join(picture(label, generator) for label in labels)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx([count, SIDE, SIDE], pictures))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx([count], labels))
    return f"fashion-mnist:{folder}"


def png(width, height, pixels):
    def chunk(kind, content):
        return to_bytes(">I", len(content)) + kind + content + to_bytes(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + pixels[i * width:(i + 1) * width] for i in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", to_bytes(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def header(checkpoint):
    """Tensors and metadata of a safetensors file."""
    content = checkpoint.read_bytes()
    return json.loads(content[8:8 + struct.unpack("<Q", content[:8])[0]])


def with_tensor(checkpoint, name, values=None, **metadata):
    """Changes the bytes of a tensor, or the metadata (None: it is gone), of a checkpoint, which then has no checksum."""
    content = checkpoint.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    entries = json.loads(content[8:8 + length])
    data = bytearray(content[8 + length:])
    if values is not None:
        begin, end = entries[name]["data_offsets"]
        data[begin:end] = (values * ((end - begin) // len(values)))[:end - begin]
    entries["__metadata__"].pop("unmetal.crc32", None)
    entries["__metadata__"].update(metadata)
    entries["__metadata__"] = {key: value for key, value in entries["__metadata__"].items() if value is not None}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    checkpoint.write_bytes(to_bytes("<Q", len(text)) + text + data)


def position(checkpoint):
    return int(header(checkpoint)["__metadata__"]["position.step"])


def metrics(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def without_speed(folder):
    return [{key: row[key] for key in row if key not in ("images_per_s", "seconds")} for row in metrics(folder)]


def contents(folder):
    """Every file below the folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class ProgramTest(unittest.TestCase):
    """Each test has a folder of its own with a data set."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="unmetal-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.data = write_data(self.folder / "data")

    def train_arguments(self, out, *more, batch=16, epochs=2, net="lenet"):
        return ["train", "--data", self.data, "--net", net, "--batch", batch, "--epochs", epochs, "--out",
                self.folder / out, *more]

    def with_option(self, arguments, option, value):
        """The arguments with another value of an option, or with one more."""
        arguments = list(arguments)
        if option not in arguments:
            return arguments + [option, value]
        arguments[arguments.index(option) + 1] = value
        return arguments

    def train(self, out, *more, **options):
        done = run(*self.train_arguments(out, *more, **options))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def expect_error(self, arguments, *words, program=run):
        """One line on stderr with these words, status 2, and all files as they were."""
        before = contents(self.folder)
        done = program(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("unmetal: ") and done.stderr.endswith("\n"), done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)
        after = contents(self.folder)
        self.assertEqual({name: after.get(name) for name in before}, before)
        self.assertFalse([name for name in after if ".partial" in name])
        return done
