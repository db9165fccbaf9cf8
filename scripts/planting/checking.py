"""Runs commands, and the self-check of a program that holds a fault."""

import os
import resource
import shlex
import signal
import subprocess
import threading
import time

# What `unmetal conform --filter` looks for, where the family's name is no part of its kernels' names.
FILTERS = {"arithmetic": ["CNNAdd", "CNNSubtract", "CNNMultiply", "CNNDivide", "NNCompare"],
           "batch_normalization": ["CNNBatchNormalization", "MatrixBatchNormalization", "MatrixNeuron"],
           "convolution": ["CNNConvolution", "CNNFullyConnected"],
           "gram_matrix": ["NNGramMatrix"],
           "instance_normalization": ["CNNInstanceNormalization", "CNNGroupNormalization"],
           "loss": ["Loss", "NNInitialGradient"],
           "matrix": ["MatrixCopy", "ImageCopyToMatrix", "MatrixMultiplication", "MatrixVectorMultiplication", "MatrixRandom",
                      "MatrixFullyConnected", "MatrixSum"],
           "normalization": ["CNNCrossChannelNormalization", "CNNSpatialNormalization", "CNNLocalContrastNormalization"],
           "reduction": ["NNReduce"], "reshape": ["NNReshape", "NNPad"],
           "upsampling": ["CNNUpsampling", "NNResizeBilinear", "ImageBilinearScale", "ImageLanczosScale",
                          "NNCropAndResizeBilinear", "NNGridSample"]}
# The same of files of mps/core whose functions other families than the one they are counted in call, too.
FURTHER_FILTERS = {"mps/core/cpu/vector_math-inl.hpp": ["CNNNeuron"]}


def run(command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def link_words(build):
    """The command that links the program, without what a build does before and after it."""
    commands = run(["ninja", "-C", build, "-t", "commands", "unmetal_program"]).strip().split("\n")[-1]
    return next(words for part in commands.split(" && ") if "-o" in (words := shlex.split(part)))


def commit():
    """Of the checkout; "" where there is none."""
    try:
        return run(["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(os.path.abspath(__file__))).strip()
    except (RuntimeError, OSError):
        return ""


def self_check(command, environment, filters, limit, processor_limit=None):
    """Runs `command` with each filter. (None when green, otherwise how it turned red; seconds)
    @param processor_limit seconds of processor time, which do not depend on what else the machine does."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", **environment}
    start = time.monotonic()
    for words in filters:
        process = subprocess.Popen([*map(str, command), "--filter", words], env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        if processor_limit is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (processor_limit, processor_limit + 1))
        timer = threading.Timer(max(1, limit - (time.monotonic() - start)), process.kill)
        timer.start()
        last, red = "", None
        for line in process.stdout:
            if not last.startswith("SUMMARY"):  # a sanitizer's
                last = line.strip() or last
            if "  FAILED" in line:  # one row is enough
                red = "red: " + " ".join(line.split()[:5])
                process.kill()
                break
        process.stdout.close()
        timed_out = process.wait() in (-signal.SIGKILL, -signal.SIGXCPU) and red is None
        timer.cancel()
        seconds = time.monotonic() - start
        if red is not None:
            return red, seconds
        if timed_out:
            return "does not end", seconds
        if process.returncode != 0:
            return f"status {process.returncode}: {last}", seconds
    return None, time.monotonic() - start


def entry_of(family, fault):
    """A fault as results and bundles list it."""
    return {"family": family, "file": fault.file, "line": fault.index + 1, "kind": fault.kind, "old": fault.old.strip(),
            "new": fault.new.strip()}


def print_fault(word, entry):
    print(f"{word}: {entry['file']}:{entry['line']}: {entry['kind']}\n    {entry['old']}\n    {entry['new']}", flush=True)


def print_outcome(entry):
    word = "NOT JUDGED" if "unjudged" in entry else entry["outcome"] or "MISSED"
    print_fault(f"{word} ({entry['seconds']:.0f} s)", entry)
