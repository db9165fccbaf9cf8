"""The commands of docs/your-own-pictures.md, in a folder with pictures, and its example in C++; docs/network-file.md; the commands
and options that all documents name."""

import json
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


class NetworkFiles(ProgramTest):
    """docs/network-file.md: its example trains, and its tables are what the program takes."""

    PAGE = (ROOT / "docs" / "network-file.md").read_text()
    # What a layer must have, whatever its value.
    VALUES = {"channels": 2, "kernelSize": 2, "groups": 1, "operation": "multiply", "margins": [1, 1, 1, 1]}

    def train_file(self, text):
        path = self.folder / "net.json"
        path.write_text(text)
        return run("train", "--data", "synthetic:8x8x1", "--net", path, "--batch", 4, "--steps", 1, "--quiet", "--overwrite",
                   "--out", self.folder / "run")

    def trouble_of(self, layer):
        done = self.train_file(json.dumps({"layers": [layer]}))
        self.assertEqual(done.returncode, 2, layer)
        return done.stderr

    def test_the_example_trains(self):
        example, = re.findall(r"^```json\n(.*?)^```$", self.PAGE, re.MULTILINE | re.DOTALL)
        done = self.train_file(example)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_kinds_and_fields_are_those_of_the_table(self):
        table = re.search(r"^\| kind \| fields and their defaults \|\n\|---\|---\|\n((?:\|.*\n)+)", self.PAGE, re.MULTILINE)[1]
        fields = {}
        for line in table.splitlines():
            kinds, words = line.strip("|").split("|")
            for kind in re.findall(r"`(\w+)`", kinds):
                fields[kind] = set(re.findall(r"`(\w+)`", words))
        known = re.search(r"expected one of (.*)$", self.trouble_of({"kind": "none of them"}))[1]
        self.assertEqual(sorted(fields), sorted(known.split(", ")))
        for kind, described in fields.items():
            layer = {"kind": kind, "no field": 1}
            while missing := re.search(r'"(\w+)" is missing', trouble := self.trouble_of(layer)):
                layer[missing[1]] = self.VALUES[missing[1]]
            taken = set(re.search(r"there are (.*)$", trouble)[1].split(", "))
            self.assertEqual(taken - {"inputs", "kind", "label"}, described - {"inputs"}, kind)

    def test_the_sentence_of_a_mistake(self):
        shown, = re.findall(r"^    cannot use net\.json: (.*)$", self.PAGE, re.MULTILINE)
        layers = [{"kind": "relu"}] * 3 + [{"kind": "convolution", "channels": 2}]
        self.assertIn(shown, self.train_file(json.dumps({"layers": layers})).stderr)


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
