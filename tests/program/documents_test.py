"""The commands of docs/your-own-pictures.md, in a folder with pictures, and its example in C++."""

import os
import pathlib
import random
import re
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, SECONDS, png

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = os.environ["UNMETAL_OWN_PICTURES"]


def picture(kind, generator, side=48):
    """A bar of a direction on a dark ground."""
    pixels = bytearray(generator.randrange(40) for _ in range(side * side))
    place, begin = generator.randrange(4, side - 10), generator.randrange(4, 12)
    for along in range(begin, side - begin):
        for across in range(6):
            row, column = {"cat": (place + across, along), "dog": (along, place + across),
                           "owl": (along, (along + across + place) % side)}[kind]
            pixels[row * side + column] = 220
    return png(side, side, bytes(pixels))


class OwnPictures(ProgramTest):
    def setUp(self):
        super().setUp()
        generator = random.Random(5)
        for kind in ("cat", "dog", "owl"):
            folder = self.folder / "pictures" / kind
            folder.mkdir(parents=True)
            for i in range(15):
                (folder / f"{i:02}.png").write_bytes(picture(kind, generator))

    def run_here(self, *command):
        path = os.pathsep.join([str(pathlib.Path(PROGRAM).resolve().parent), os.environ["PATH"]])
        return subprocess.run(command, capture_output=True, text=True, timeout=4 * SECONDS, cwd=self.folder,
                              env={**os.environ, "PATH": path})

    def test_the_commands_of_the_page(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "your-own-pictures.md").read_text(), re.MULTILINE | re.DOTALL)
        commands = [line for block in blocks for line in block.splitlines()]
        self.assertEqual([command.split()[1] for command in commands], ["train", "train", "predict", "predict", "eval"])
        outputs = []
        for command in commands:
            done = self.run_here("bash", "-euc", command)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            outputs.append(done.stdout)
        self.assertGreater(float(re.search(r"best ([0-9.]+) %", outputs[0])[1]), 85)
        self.assertEqual(len(outputs[2].splitlines()), 15)
        self.assertEqual(len(outputs[3].splitlines()), 15)
        self.assertIn("accuracy", outputs[4])
        table = re.findall(r"^\| `([a-z.]+)` \|", (ROOT / "docs" / "your-own-pictures.md").read_text(), re.MULTILINE)
        self.assertEqual(sorted(table), sorted(path.name for path in (self.folder / "run").iterdir()))

    def test_the_example(self):
        done = self.run_here(str(pathlib.Path(EXAMPLE).resolve()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(float(re.search(r"([0-9.]+) % are right", done.stdout)[1]), 85)


if __name__ == "__main__":
    unittest.main()
