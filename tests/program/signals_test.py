"""Signals, small stacks and terminals: a training ends in order, and goes on where it can."""

import fcntl
import os
import pty
import re
import resource
import select
import signal
import subprocess
import termios
import time
import unittest

from harness import PROGRAM, SECONDS, ProgramTest, metrics, position, run, to_bytes

EPOCHS = 400


class Signals(ProgramTest):
    def begin(self, out, *more, **options):
        """Starts a training that takes long, and waits for its first steps."""
        options.setdefault("stdout", subprocess.PIPE)
        program = subprocess.Popen([PROGRAM, *map(str, self.train_arguments(out, *more, epochs=EPOCHS))], text=True, **options)
        self.addCleanup(self.end, program)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and program.poll() is None:
            try:
                if len(metrics(self.folder / out)) >= 3:
                    return program
            except FileNotFoundError:
                pass
            time.sleep(0.01)
        self.fail("it did not begin")

    @staticmethod
    def end(program):
        if program.poll() is None:
            program.kill()
        program.wait()
        if program.stdout:
            program.stdout.close()

    def test_the_first_signal_writes_a_checkpoint_and_says_how_to_go_on(self):
        for number, name in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")):
            with self.subTest(name=name):
                # Otherwise one would be written every few steps.
                program = self.begin(name, "--checkpoint-every", "1e9")
                program.send_signal(number)
                output, _ = program.communicate(timeout=SECONDS)
                self.assertEqual(program.returncode, 128 + number)
                shown = re.fullmatch(rf"stopped after step (\d+) by {name}, checkpoint (\S+); to go on: unmetal train --resume --out \S+",
                                     output.splitlines()[-1])
                self.assertTrue(shown, output)
                self.assertEqual(position(self.folder / name / "checkpoint.safetensors"), int(shown[1]))
                self.assertEqual(len(metrics(self.folder / name)), int(shown[1]))
                more = self.train(name, "--resume", "--steps", int(shown[1]) + 2, epochs=EPOCHS)
                self.assertIn(f"going on after step {shown[1]} of {16 * EPOCHS}\n", more)

    def test_a_stopped_training_ends_with_the_same_bytes(self):
        program = self.begin("run")
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=SECONDS)
        steps = position(self.folder / "run" / "checkpoint.safetensors")
        end = min(16 * EPOCHS, steps + 20)
        self.train("run", "--resume", "--steps", end, epochs=EPOCHS)
        self.train("whole", "--steps", end, epochs=EPOCHS)
        self.assertTrue((self.folder / "run" / "checkpoint.safetensors").read_bytes() ==
                        (self.folder / "whole" / "checkpoint.safetensors").read_bytes())

    def test_the_second_signal_ends_it_at_once(self):
        # Writing into a pipe that nobody reads, it cannot come to the place where it would stop.
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        program = self.begin("run", stdout=writer)
        filler = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, filler)
        try:
            while os.write(filler, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.close(writer)
        program.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        if program.poll() is None:
            program.send_signal(signal.SIGINT)
        self.assertIn(program.wait(timeout=SECONDS), (-signal.SIGINT, 128 + signal.SIGTERM))

    def test_an_ignored_signal_stays_ignored(self):
        program = self.begin("run", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        rows = len(metrics(self.folder / "run"))
        program.send_signal(signal.SIGINT)
        deadline = time.monotonic() + SECONDS
        while len(metrics(self.folder / "run")) < rows + 10 and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIsNone(program.poll())

    def test_a_reader_that_goes_away_does_not_end_a_training(self):
        arguments = [PROGRAM, *map(str, self.train_arguments("run"))]
        # As a shell starts it: Python itself ignores the signal, and its children would.
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL)) as program:
            program.stdout.close()
            errors = program.stderr.read()
            self.assertEqual((program.wait(timeout=SECONDS), errors), (0, ""))
        self.assertEqual(len(metrics(self.folder / "run")), 32)


class Terminals(ProgramTest):
    def show(self, *, terminal="xterm", columns=80, later=None):
        """What a training writes to a terminal, whose width may change after the first bar."""
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        self.resize(leader, columns)
        program = subprocess.Popen([PROGRAM, *map(str, self.train_arguments("run", epochs=30))], stdout=follower,
                                   env={**os.environ, "TERM": terminal})
        os.close(follower)
        output = b""
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                if not select.select([leader], [], [], 1)[0]:
                    continue
                output += os.read(leader, 4096)
                if later and b"loss" in output:
                    self.resize(leader, later)
                    later = None
        except OSError:  # the terminal's other end is closed
            pass
        self.assertEqual(program.wait(), 0)
        return output.decode()

    @staticmethod
    def resize(leader, columns):
        fcntl.ioctl(leader, termios.TIOCSWINSZ, to_bytes("HHHH", 24, columns, 0, 0))

    def test_the_bar_follows_the_terminals_width(self):
        bars = [len(bar) for bar in re.findall(r"\r\x1b\[K(epoch [^\r\n]*)", self.show(columns=120, later=40)) if "loss" in bar]
        self.assertGreater(bars[0], 60)
        self.assertLessEqual(bars[-1], 39)

    def test_the_time_that_is_left_is_shown_after_ten_steps(self):
        bars = re.findall(r"\r\x1b\[Kepoch (\d+)/30 \[[^\]]*\] +(\d+) %([^\r\n]*)", self.show(columns=120))
        early = [words for epoch, percent, words in bars if epoch == "1" and int(percent) < 100 * 10 // 16]
        late = [words for epoch, _, words in bars if epoch != "1"]
        self.assertTrue(early and late, bars)
        self.assertFalse([words for words in early if " left" in words])
        self.assertTrue(all(" left" in words for words in late), late)

    def test_a_dumb_terminal_gets_plain_lines(self):
        output = self.show(terminal="dumb")
        self.assertNotIn("\x1b", output)
        self.assertRegex(output, r"(?m)^epoch 1/30  step 1/16  loss \d+\.\d+ ")


class SmallStacks(ProgramTest):
    def test_a_training_needs_no_large_stack(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, 64 << 10))
        for net in ("mnist-cnn", "resnet18:4"):
            self.train(f"usual {net}", net=net, batch=64, epochs=1)
            small = run(*self.train_arguments(f"small {net}", net=net, batch=64, epochs=1), preexec_fn=limited)
            self.assertEqual((small.returncode, small.stderr), (0, ""))
            self.assertTrue((self.folder / f"small {net}" / "checkpoint.safetensors").read_bytes() ==
                            (self.folder / f"usual {net}" / "checkpoint.safetensors").read_bytes(), net)


if __name__ == "__main__":
    unittest.main()
