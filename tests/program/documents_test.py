"""The commands of docs/your-own-pictures.md, in a folder with pictures, and its example in C++; the commands and options that
all documents name."""

import os
import pathlib
import random
import re
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, SECONDS, png, run

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


def commands_in(text):
    """What a document writes as commands of the program, each in one line: (command, its options)."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in (*lines, *spans):
        if found := re.match(r"(?:[\w.,:=/ -]* )?(?:\S*/)?unmetal ([a-z][a-z-]+)(?: |$)(.*)", line):
            if found[1] != "import":
                yield found[1], re.findall(r"(?<!\S)--[a-z][a-z-]*", found[2])


class Commands(ProgramTest):
    def test_documents_name_what_there_is(self):
        helps, count = {}, 0
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
            for command, options in commands_in(page.read_text()):
                if command not in helps:
                    done = run("help", command)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), f"{page.name}: unmetal {command}")
                    helps[command] = set(re.findall(r"--[a-z][a-z-]*", done.stdout))
                for option in options:
                    self.assertIn(option, helps[command], f"{page.name}: unmetal {command} {option}")
                count += 1
        self.assertGreater(count, 30)
        self.assertLessEqual({"train", "eval", "predict", "export", "bench", "conform"}, set(helps))

    def test_they_are_found(self):
        text = "`unmetal a`\n```sh\nunmetal train --x 3 \\\n  --y  # --z\nmpirun -np 2 build/unmetal eval\n```\n`unmetal conform --f`"
        self.assertEqual(list(commands_in(text)), [("train", ["--x", "--y"]), ("eval", []), ("conform", ["--f"])])


if __name__ == "__main__":
    unittest.main()
