"""What somebody types first: mistyped words get the right one suggested, help fits the terminal, files may stand alone."""

import fcntl
import json
import os
import pty
import subprocess
import termios
import unittest
import xml.etree.ElementTree

from harness import PROGRAM, ProgramTest, SECONDS, SIDE, png, run, to_bytes


class Typos(ProgramTest):
    def test_the_word_that_is_meant_is_suggested(self):
        train = self.train_arguments("run")
        for arguments, words in ((["trian"], "there is no command or option trian; did you mean train?"),
                                 (["pred"], "there is no command or option pred;"),
                                 (["--versoin"], "did you mean --version?"),
                                 ([*train, "--epoch", 3], "train has no option --epoch; did you mean --epochs?"),
                                 ([*train, "--epoch=3"], "train has no option --epoch; did you mean --epochs?"),
                                 ([*train, "--chekpoint-every", 3], "did you mean --checkpoint-every?"),
                                 (["eval", "--checkpiont", "x"], "eval has no option --checkpiont; did you mean --checkpoint?"),
                                 (["devices", "--colour"], "devices has no option --colour; unmetal help devices lists them"),
                                 (["eval", "x", "y"], "eval takes no argument y"),
                                 (["help", "trian"], "there is no command trian; did you mean train?"),
                                 (self.with_option(train, "--optimizer", "sdg"), "did you mean sgd?"),
                                 (self.with_option(train, "--lr-schedule", "cosin"), "did you mean cosine?"),
                                 (self.with_option(train, "--format", "flaot16"), "did you mean float16?"),
                                 (self.with_option(train, "--net", "restnet18:8"), "did you mean resnet18?"),
                                 (self.with_option(train, "--data", "fashon-mnist"), "did you mean fashion-mnist?"),
                                 (self.with_option(train, "--data", "synthetik:28x28x1"), "did you mean synthetic?")):
            with self.subTest(arguments=arguments):
                self.expect_error(arguments, words)

    def test_nothing_is_suggested_for_another_word(self):
        for arguments in (["fly"], ["train", "--wings"], self.with_option(self.train_arguments("run"), "--net", "fishnet")):
            self.assertNotIn("did you mean", self.expect_error(arguments).stderr)


class Files(ProgramTest):
    def test_the_checkpoint_needs_no_option(self):
        self.train("run", epochs=1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        pictures = [self.folder / "a.png", self.folder / "b.png"]
        for path in pictures:
            path.write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        self.assertEqual(run("eval", checkpoint).stdout, run("eval", "--checkpoint", checkpoint).stdout)
        expected = run("predict", "--checkpoint", checkpoint, *pictures)
        self.assertEqual((expected.returncode, len(expected.stdout.splitlines())), (0, 2))
        self.assertEqual(run("predict", checkpoint, *pictures).stdout, expected.stdout)
        self.assertEqual(run("predict", *pictures, "--checkpoint", checkpoint).stdout, expected.stdout)
        for arguments in (["predict"], ["predict", checkpoint]):
            self.expect_error(arguments, "as in unmetal predict CHECKPOINT PICTURE")
        self.expect_error(["eval"], "--checkpoint")

    def test_predict_takes_folders_and_prints_json(self):
        self.train("run", epochs=1)
        checkpoint = self.folder / "run" / "best.safetensors"
        pictures = self.folder / "pictures"
        (pictures / "more").mkdir(parents=True)
        self.expect_error(["predict", checkpoint, pictures], pictures, "holds no PNG or JPEG pictures")
        paths = [pictures / "a.png", pictures / "b.PNG", pictures / "more" / "c.png"]
        for path in paths:
            path.write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        (pictures / "notes.txt").write_text("no picture")
        self.assertEqual(run("predict", checkpoint, pictures).stdout, run("predict", checkpoint, *paths).stdout)
        done = run("predict", checkpoint, pictures, "--json", "--top", 2)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["picture"] for line in lines], [str(path) for path in paths])
        for line in lines:
            self.assertEqual([sorted(entry) for entry in line["classes"]], [["name", "probability"]] * 2)
            self.assertGreaterEqual(line["classes"][0]["probability"], line["classes"][1]["probability"])
        self.expect_error(["predict", checkpoint, "/proc"], "/proc")

    def test_folders_may_end_in_a_slash(self):
        self.train("run/", epochs=1)
        done = run("train", *self.train_arguments(f"{self.folder}/slash/", epochs=1)[1:])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.splitlines()[-1].endswith("/slash/best.safetensors PICTURE"))
        for name in ("checkpoint.safetensors", "best.safetensors"):
            self.assertEqual((self.folder / "slash" / name).read_bytes(), (self.folder / "run" / name).read_bytes())
        done = run("train", "--resume", "--epochs", 2, "--out", f"{self.folder}/slash/")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        pictures = self.folder / "pictures"
        pictures.mkdir()
        (pictures / "a.png").write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        best = self.folder / "slash" / "best.safetensors"
        self.assertEqual(run("predict", best, f"{pictures}/").stdout, run("predict", best, pictures).stdout)

    def test_pictures_of_other_kinds_are_named(self):
        pictures = self.folder / "pictures" / "cat"
        pictures.mkdir(parents=True)
        for i in range(4):
            (pictures / f"{i}.png").write_bytes(png(SIDE, SIDE, bytes(SIDE * SIDE)))
        for name in ("a.gif", "a.webp", "a.bmp", "a.tif", "a.heic"):
            (pictures / name).write_bytes(b"")
            self.expect_error(["train", "--data", f"folder:{pictures.parent}", "--out", self.folder / "run"],
                              f"{pictures / name} is of a kind that cannot be read, only PNG and JPEG can", "--skip-bad")
            (pictures / name).unlink()


class Help(ProgramTest):
    def in_terminal(self, columns, *arguments):
        """What the program prints on a terminal of so many columns."""
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, to_bytes("HHHH", 24, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        program = subprocess.Popen([PROGRAM, *arguments], stdout=end, env=environment)
        os.close(end)
        output = b""
        try:
            while part := os.read(terminal, 65536):
                output += part
        except OSError:
            pass  # the program has ended
        os.close(terminal)
        self.assertEqual(program.wait(timeout=SECONDS), 0)
        return output.decode().replace("\r\n", "\n")

    def test_it_fits_the_terminal(self):
        for columns in (50, 100):
            text = self.in_terminal(columns, "train", "--help")
            self.assertLessEqual(max(map(len, text.splitlines())), columns)
        self.assertGreater(max(map(len, text.splitlines())), 80)

    def test_help_of_a_command(self):
        self.assertEqual(run("help", "train").stdout, run("train", "--help").stdout)
        text = run("help", "train").stdout
        self.assertIn("--epochs", text)
        places = [text.index(f"\n{heading}:\n") for heading in ("Options", "Data", "Network", "Training", "Files", "Devices")]
        self.assertEqual(places, sorted(places))
        self.assertEqual(text[places[0]:places[1]].count("  -"), 1, "all but --help stand under a heading of their own")
        self.assertEqual(run("help").stdout, run("--help").stdout)


class Manual(ProgramTest):
    def complete(self, *words):
        """What bash offers for the last one."""
        script = 'eval "$("$0" completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _unmetal; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, os.path.abspath(PROGRAM), "unmetal", *words], capture_output=True, text=True,
                              timeout=SECONDS, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_completes_commands_options_words_and_files(self):
        (self.folder / "pictures").mkdir()
        self.assertEqual(self.complete("tr"), ["train"])
        self.assertEqual(self.complete("train", "--warm"), ["--warmup"])
        self.assertIn("adam", self.complete("train", "--optimizer", "ad"))
        self.assertEqual(self.complete("train", "--out", "pic"), ["pictures"])
        self.assertEqual(self.complete("predict", "pic"), ["pictures"])

    def test_pages_of_the_manual(self):
        page = run("man", "train").stdout
        self.assertTrue(page.startswith(".TH UNMETAL-TRAIN 1"))
        self.assertIn("\\fB\\-\\-epochs\\fR", page)
        self.assertIn("unmetal\\-train(1)", run("man").stdout)
        self.expect_error(["man", "trian"], "there is no command trian; did you mean train?")
        self.expect_error(["completion", "csh"], "bash")


class Config(ProgramTest):
    def test_options_of_a_file(self):
        config = self.folder / "options.toml"
        config.write_text(f'data = "{self.data}"\nnet = "lenet"\nepochs = 1\nbatch = 16\nquiet = true\n')
        self.assertEqual(run("train", "--config", config, "--out", self.folder / "run", "--epochs", 2).returncode, 0)
        arguments = ["train", "--data", self.data, "--net", "lenet", "--epochs", 2, "--batch", 16, "--out", self.folder / "same"]
        self.assertEqual(run(*arguments).returncode, 0)
        for name in ("checkpoint.safetensors", "best.safetensors"):
            self.assertEqual((self.folder / "run" / name).read_bytes(), (self.folder / "same" / name).read_bytes())

    def test_mistakes_in_it(self):
        config = self.folder / "options.toml"
        for content, words in (("epoch = 3\n", "options.toml: train has no option epoch; did you mean epochs?"),
                               ("epochs = none\n", "--epochs"),
                               ("[train]\nepochs = 3\n", "options.toml has a section [train]")):
            config.write_text(content)
            self.expect_error(["train", "--config", config, "--out", self.folder / "never"], words)
        self.assertFalse((self.folder / "never").exists())


class Graph(ProgramTest):
    def test_the_picture_shows_the_layers(self):
        out = self.folder / "run"
        arguments = ["train", "--data", "synthetic:16x16x1", "--net", "resnet18:2", "--batch", 2, "--steps", 1, "--out", out]
        self.assertEqual(run(*arguments).returncode, 0)
        text = "".join(xml.etree.ElementTree.parse(out / "graph.svg").getroot().itertext())
        for word in ("layer4.1", "downsample.0: convolution 1x1, stride 2", "2x2x16"):
            self.assertIn(word, text)
        self.assertFalse((out / "graph.dot").exists())
        self.assertEqual(run(*arguments, "--graph", "all", "--overwrite").returncode, 0)
        self.assertIn("Gradient", (out / "graph.dot").read_text())



if __name__ == "__main__":
    unittest.main()
