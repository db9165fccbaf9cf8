"""One batch of random calls, in a process of its own: `batch.py SEED INDEX CALLS LOG`. Each call is in the log before it is
made, its outcome behind it."""

import collections
import json
import os
import pathlib
import random
import resource
import signal
import sys

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn import functional

import signatures
import values

SECONDS_OF_A_CALL = 3  # then a signal comes, which ends what waits as Ctrl-C does
MEMORY = 1 << 30  # beyond what the modules take
FILE_SIZE = 64 << 20

# What would end or stop the process by design, or asks for nothing but time.
LEFT_OUT = {"NNGraph.read_back_everything"}


class TooLong(Exception):
    """A call that the signal has ended."""


class Log:
    """Written call by call, without a buffer: it is there when the process is not."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, text):
        os.write(self.file, text.encode("utf-8", "replace"))


class Batch:
    def __init__(self, seed, index, log):
        self.random = random.Random(f"{seed} {index}")
        self.log = log
        self.pool = values.Pool(self.random, 6)
        self.values = values.Values(self.random, self.pool, self.instance, signatures.named)
        self.queue = self.recording = None
        self.calls = [call for call in signatures.all_calls() if call.name not in LEFT_OUT]
        self.by_owner = collections.defaultdict(list)
        for call in self.calls:
            self.by_owner[call.owner].append(call)
        self.makers = self.all_makers()
        self.owners = [owner for owner in self.by_owner if owner is not None]
        self.functions = [call for call in self.by_owner[None] if not call.name.startswith(signatures.FUNCTIONAL)]
        self.of_arrays = [call for call in self.by_owner[None] if call.name.startswith(signatures.FUNCTIONAL)]
        self.waited_for = []  # command buffers that wait for what nobody signals
        self.outcomes = collections.defaultdict(lambda: [0, 0])
        self.depth = 0

    def all_makers(self):
        """The calls that give an object of a class, by class: its constructors, and static functions that return it."""
        makers = collections.defaultdict(list)
        for call in self.calls:
            made = call.owner if call.kind == "new" else None
            if call.kind in ("static", "function") and call.member != "decode" and call.returns is not None:
                made = signatures.named(signatures.ast.unparse(call.returns))
            if isinstance(made, type):
                for base in made.__mro__[:-1]:
                    makers[base].append(call)
        return makers

    def made(self, bound):
        """A new object of a class; None where none could be made."""
        makers = self.makers.get(bound)
        if not makers or self.depth > 3:
            return None
        self.depth += 1
        try:
            for _ in range(3):
                made = self.make_call(self.random.choice(makers))
                if isinstance(made, bound):
                    return made
        finally:
            self.depth -= 1
        return None

    def coder_of(self, bound):
        """Reads an object of a class: one that is whole, one that is damaged, or nothing."""
        found = self.instance(bound)
        archiver = unmetal.KeyedArchiver()
        try:
            found.encode(archiver)
            coder = unmetal.KeyedUnarchiver(self.pool.damaged(archiver.encoded_data(), 0.4))
            if self.random.random() < 0.8:
                unmetal.add_trainable_decoders(coder)
            return coder
        except Exception:  # noqa: BLE001
            return archiver

    def arguments(self, call, holder):
        positional, named = [], {}
        fits = call.name.startswith(signatures.FUNCTIONAL) and self.random.random() < 0.8
        if call.member == "decode" and call.kind == "static" and self.random.random() < 0.8:
            device = self.random.choice(([], [self.pool.of(mtl.Device)])) if len(call.parameters) > 1 else []
            return [self.coder_of(holder), *device], named
        for parameter in call.parameters:
            if parameter.has_default and self.random.random() < 0.4:
                continue
            value = self.values.fitting(parameter.name) if fits else None
            if value is None:
                value = self.values.of(parameter.annotation)
            if parameter.by_name_only or named or len(positional) < call.parameters.index(parameter):
                named[parameter.name.lstrip("*")] = value
            else:
                positional.append(value)
        if self.random.random() < 0.01 and positional:
            positional.pop()
        return positional, named

    def make_call(self, call, owner=None):
        """@return the result; None of what raises"""
        holder = owner or call.owner
        target = self.instance(holder) if call.kind in ("method", "get", "set") else None
        if call.kind in ("method", "get", "set") and target is None:
            return None
        positional, named = self.arguments(call, holder)
        return self.attempt(call.name, target, call, positional, named, holder)

    def attempt(self, name, target, call, positional, named, holder=None):
        """Makes a call, by its declaration or the name of a method. @return the result; None of what raises"""
        text = ", ".join([*map(self.pool.described, positional),
                          *(f"{key}={self.pool.described(value)}" for key, value in named.items())])
        self.log.write(f"{name} of {self.pool.described(target)}({text})")
        outcome = self.outcomes[name]
        outcome[0] += 1
        signal.setitimer(signal.ITIMER_REAL, SECONDS_OF_A_CALL)
        try:
            if isinstance(call, str):
                result = getattr(target, call)(*positional, **named)
            else:
                result = self.run(call, holder, target, positional, named)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  any exception will do, but none in another's place
            try:  # the alarm may come just as a call ends: then it means nothing any more
                signal.setitimer(signal.ITIMER_REAL, 0)
            except TooLong:
                pass
            self.log.write(f" raises {type(error).__name__}: {self.first_line(error)}\n")
            if isinstance(error, SystemError):
                raise
            return None
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcome[1] += 1
        self.pool.add(result)
        self.log.write(f" gives {self.pool.described(result)}\n")
        return result

    @staticmethod
    def first_line(error):
        try:
            return (str(error).splitlines() or [""])[0][:200]
        except Exception:  # noqa: BLE001  of what Python code has raised
            return ""

    @staticmethod
    def run(call, holder, target, positional, named):
        if call.kind == "new":
            return holder(*positional, **named)
        if call.kind == "get":
            return getattr(target, call.member)
        if call.kind == "set":
            return setattr(target, call.member, *positional[:1] or [None])
        if call.kind == "method":
            return getattr(target, call.member)(*positional, **named)
        if call.kind == "static":
            return getattr(holder, call.member)(*positional, **named)
        if call.name.startswith(signatures.FUNCTIONAL):
            return getattr(functional, call.member)(*positional, **named)
        module = mtl if call.name.startswith("mtl.") else unmetal
        return getattr(module, call.member)(*positional, **named)

    def open_buffer(self):
        """One that work can be recorded on."""
        if self.recording is None or self.recording.status != mtl.CommandBufferStatus.NotEnqueued:
            self.recording = self.queue.command_buffer()
            self.pool.add(self.recording)
        return self.recording

    def instance(self, bound):
        """An object of a class: mostly one that is there; of command buffers mostly one that is open."""
        if bound is mtl.CommandBuffer and self.random.random() < 0.8:
            return self.open_buffer()
        found = None if self.random.random() < 0.1 else self.pool.of(bound)
        return self.made(bound) if found is None else found

    def chain(self):
        """A forward kernel, then its gradient with the state that it made: what single calls seldom hit."""
        kernel = self.made(unmetal.CNNKernel)
        image, batch = self.pool.of(unmetal.Image), self.pool.of(unmetal.ImageBatch)
        gradient = self.made(getattr(unmetal, f"{type(kernel).__name__}Gradient", unmetal.CNNGradientKernel))
        if kernel is None or gradient is None:
            return
        for name, source in (("encode", image), ("encode_batch", batch)):
            states = "destination_state_is_temporary" if name == "encode" else "destination_states_are_temporary"
            temporary = self.random.random() < 0.5
            made = self.attempt(f"{type(kernel).__name__}.{name}", kernel, name, [self.open_buffer(), source], {states: temporary})
            if isinstance(made, tuple) and made[1] is not None:
                size = {"encode": "encoding_storage_size", "encode_batch": "batch_encoding_storage_size"}[name]
                self.attempt(f"{type(gradient).__name__}.{size}", gradient, size, [made[0], source, [made[1]]], {})
                self.attempt(f"{type(gradient).__name__}.{name}", gradient, name, [self.open_buffer(), made[0], source, made[1]], {})

    def next_call(self):
        if self.random.random() < 0.05:
            self.chain()
            return
        if self.random.random() < 0.05:
            self.make_call(self.random.choice(self.functions))
            return
        if self.random.random() < 0.08:
            self.make_call(self.random.choice(self.of_arrays))
            return
        owner = self.random.choice(self.owners)
        calls = [self.by_owner[base] for base in owner.__mro__ if self.by_owner.get(base)]
        if calls:
            self.make_call(self.random.choice(self.random.choice(calls)), owner)

    def python_class(self, bound):
        """A subclass of a class that Python may write, whose members give what their annotations say."""
        members = {}
        for base in bound.__mro__:
            for call in self.by_owner.get(base, ()):
                if call.kind in ("method", "get") and not call.member.startswith("__") and self.random.random() < 0.5:
                    members[call.member] = self.member_of(call)
        return type(f"Python{bound.__name__}", (bound,), members)

    def member_of(self, call):
        def drawn(*_, **__):
            if self.random.random() < 0.03:
                raise ValueError("a member that raises")
            self.depth += 1
            try:
                return self.values.of(call.returns)
            finally:
                self.depth -= 1
        return property(drawn) if call.kind == "get" else drawn

    def stock(self):
        """What other calls need to get anywhere: objects that fit together, and classes written in Python."""
        device = mtl.create_system_default_device()
        other = mtl.new_cpu_device(1)
        for one in (device, device, device, other):
            self.pool.add(one)
        self.queue = queue = device.new_command_queue()
        for _ in range(3):
            self.pool.add(queue)
            self.pool.add(queue.command_buffer())
            self.pool.add(unmetal.CommandBuffer(queue))
        self.pool.add(other.new_command_queue().command_buffer())
        for element in (np.float32, np.float32, np.float16):
            self.pool.add(unmetal.Image.from_array(device, np.ones((4, 4, 4), element), copy=True))
            self.pool.add(unmetal.ImageBatch.from_array(device, np.ones((2, 4, 4, 4), element), copy=True))
        size = unmetal.ImageDescriptor(unmetal.ImageFeatureChannelFormat.Float32, 4, 4, 4)
        self.pool.add(size)
        convolution = unmetal.CNNConvolutionDescriptor(3, 3, 4, 4)
        for source in (unmetal.TrainableConvolution(device, convolution, "", 1),
                       unmetal.TrainableBatchNormalization(device, 4, ""),
                       unmetal.TrainableInstanceNormalization(device, 4, ""),
                       unmetal.TrainableGroupNormalization(device, 4, 2, "")):
            for _ in range(3):
                self.pool.add(source)
        for name in ("ImageAllocator", "NNPadding", "CNNConvolutionDataSource", "CNNBatchNormalizationDataSource",
                     "CNNInstanceNormalizationDataSource", "CNNGroupNormalizationDataSource", "Handle"):
            if bound := getattr(unmetal, name, None):
                for _ in range(2):
                    written = self.python_class(bound)
                    self.by_owner[written] = []
                    self.owners.append(written)
                    self.add_made(written)
        unmetal.write_safetensors("weights", {"a": np.ones((4, 4), np.float32)})

    def add_made(self, written):
        try:
            self.pool.add(written())
        except Exception:  # noqa: BLE001
            pass

    def finish(self):
        """What was recorded runs now, as far as it may."""
        buffers = self.pool.by_class.get(mtl.CommandBuffer, [])
        for buffer in list(buffers):
            if any(buffer is other for other in self.waited_for):
                continue
            for step in ("commit", "wait_until_completed"):
                self.log.write(f"{step} of {self.pool.described(buffer)}()")
                signal.setitimer(signal.ITIMER_REAL, SECONDS_OF_A_CALL)
                try:
                    getattr(buffer, step)()
                except TooLong:
                    self.waited_for.append(buffer)
                except Exception:  # noqa: BLE001
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.log.write(" ends\n")


def limit():
    """Less memory than would trouble others, and none of the files that a core dump is."""
    taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def too_long(*_):
    raise TooLong


def main():
    seed, index, calls, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    signal.signal(signal.SIGALRM, too_long)
    batch = Batch(seed, index, Log(path))
    batch.stock()
    limit()
    try:
        for number in range(calls):
            batch.next_call()
            if number % 200 == 199:
                batch.finish()
        batch.finish()
    except MemoryError:  # of this program itself: what it keeps has reached the limit
        pass
    print(json.dumps(batch.outcomes))


if __name__ == "__main__":
    main()
