"""The number of threads: what sets it, and what it changes."""

import hashlib
import os
import re
import unittest

from harness import ProgramTest, run, without_speed


def threads_of(**own):
    """The number of threads that `unmetal devices` names."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = run("devices", env={**environment, **own})
    return int(re.search(r"(\d+) threads?, ", done.stdout).group(1))


class Threads(ProgramTest):
    def test_openmp_variables_set_their_number(self):
        self.assertEqual(threads_of(), len(os.sched_getaffinity(0)))
        self.assertEqual(threads_of(OMP_NUM_THREADS="3"), 3)
        self.assertEqual(threads_of(OMP_NUM_THREADS="5", OMP_THREAD_LIMIT="4"), 4)

    def trained(self, threads, **own):
        """The metrics and the hash of the weights after some steps of a net whose projections oneDNN 2.6 gets wrong."""
        folder = self.folder / f"{threads}{len(own)}"
        done = run("train", "--data", "synthetic:16x16x1", "--net", "resnet18:2", "--batch", "128", "--steps", "6",
                   "--seed", "1", "--threads", threads, "--out", folder, env={**os.environ, **own})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        content = (folder / "checkpoint.safetensors").read_bytes()
        tensors = content[8 + int.from_bytes(content[:8], "little"):]
        return without_speed(folder), hashlib.sha256(tensors).hexdigest()

    def test_results_do_not_depend_on_it(self):
        expected = self.trained(1)
        for threads in (2, 3, 8):
            with self.subTest(threads=threads):
                self.assertEqual(self.trained(threads), expected)
        self.assertEqual(self.trained(4, OMP_THREAD_LIMIT="2", OMP_DYNAMIC="true"), expected)


if __name__ == "__main__":
    unittest.main()
