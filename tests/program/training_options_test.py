"""A network from a file, frozen layers, weights to begin with, early stopping, class weights, scores of each class."""

import json
import random
import re
import struct
import unittest

from harness import ProgramTest, png, run


def header_and_data(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8:8 + length]), content[8 + length:]


def tensor(path, name):
    header, data = header_and_data(path)
    begin, end = header[name]["data_offsets"]
    return data[begin:end]


NETWORK = {"layers": [{"kind": "convolution", "channels": 4, "kernelSize": 3}, {"kind": "relu"},
                      {"kind": "maxPool", "kernelSize": 2}, {"kind": "dense", "channels": "classes"}]}


class TrainingOptions(ProgramTest):
    def write_network(self, network):
        path = self.folder / "net.json"
        path.write_text(json.dumps(network))
        return path

    def test_a_network_from_a_file(self):
        path = self.write_network(NETWORK)
        self.train("run", "--steps", 20, net=path)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        path.unlink()  # the checkpoint knows it
        self.assertEqual(run("train", "--resume", "--out", self.folder / "run").returncode, 0)
        whole = self.write_network(NETWORK)
        self.train("whole", net=whole)
        self.assertEqual(tensor(checkpoint, "conv1.weight"), tensor(self.folder / "whole" / "checkpoint.safetensors", "conv1.weight"))
        self.assertIn("accuracy", run("eval", checkpoint).stdout)

    def test_mistakes_in_a_network_are_named(self):
        for layer, words in (({"kind": "dense", "channel": 10}, 'layer 1: "channels" is missing'),
                             ({"kind": "dense", "channels": "classes", "units": 10}, '"units" is no field of it'),
                             ({"kind": "dance"}, '"kind" is "dance"'),
                             ({"kind": "dense", "channels": 3}, "the network's result has 3 channels, expected 10")):
            path = self.write_network({"layers": [layer]})
            self.expect_error(self.train_arguments("run", net=path), path, words)
        self.expect_error(self.train_arguments("run", net=self.folder / "nowhere.json"), "nowhere.json")

    def test_layers_stay_frozen_from_the_weights_of_a_checkpoint(self):
        self.train("first", epochs=1, net="mnist-cnn")
        first = self.folder / "first" / "best.safetensors"
        self.train("second", "--init-from", first, "--freeze", "conv1,conv2", epochs=1, net="mnist-cnn")
        second = self.folder / "second" / "checkpoint.safetensors"
        self.assertEqual(tensor(second, "conv1.weight"), tensor(first, "conv1.weight"))
        self.assertEqual(tensor(second, "conv2.bias"), tensor(first, "conv2.bias"))
        names = [name for name in header_and_data(first)[0] if name.endswith(".weight") and not name.startswith("conv")]
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertNotEqual(tensor(second, name), tensor(first, name))
        self.expect_error(self.train_arguments("third", "--freeze", "wings", net="mnist-cnn"), 'begins with "wings"')

    def test_weights_may_be_of_other_types(self):
        net = self.write_network(NETWORK)
        self.train("first", epochs=1, net=net)
        entries, data = header_and_data(self.folder / "first" / "best.safetensors")
        types = {"F16": lambda value: struct.pack("<e", value), "F64": lambda value: struct.pack("<d", value),
                 "BF16": lambda value: struct.pack("<f", value)[2:]}
        back = {"F16": lambda bits: struct.unpack("<e", bits)[0], "F64": lambda bits: struct.unpack("<d", bits)[0],
                "BF16": lambda bits: struct.unpack("<f", bytes(2) + bits)[0]}
        for kind, rounded in types.items():
            content, written, expected = b"", {}, {}
            for name, entry in entries.items():
                if entry.get("dtype") != "F32":
                    continue
                begin, end = entry["data_offsets"]
                values = [rounded(value) for value, in struct.iter_unpack("<f", data[begin:end])]
                expected[name] = b"".join(struct.pack("<f", back[kind](value)) for value in values)
                first = len(content)
                content += b"".join(values)
                written[name] = {"dtype": kind, "shape": entry["shape"], "data_offsets": [first, len(content)]}
            written["__metadata__"] = {"setting.net": "of ours"}
            text = json.dumps(written).encode()
            path = self.folder / f"{kind}.safetensors"
            path.write_bytes(len(text).to_bytes(8, "little") + text + content)
            # Steps that leave the weights as they are.
            self.train(kind, "--init-from", path, "--optimizer", "sgd", "--lr", "1e-30", "--steps", 1, net=net)
            self.assertEqual(sorted(expected), ["conv1.bias", "conv1.weight", "dense1.bias", "dense1.weight"])
            for name, values in expected.items():
                self.assertEqual(tensor(self.folder / kind / "checkpoint.safetensors", name), values, (kind, name))

    def test_a_last_layer_for_other_classes_begins_anew(self):
        self.train("first", "--steps", 2, net=self.write_network(NETWORK))
        first = self.folder / "first" / "checkpoint.safetensors"
        other = {"layers": [*NETWORK["layers"][:3], {"kind": "dense", "channels": 10, "biases": False, "label": "head"}]}
        output = self.train("second", "--init-from", first, "--freeze", "conv", "--steps", 2, net=self.write_network(other))
        self.assertRegex(output, r"(?m)^weights: those of .*; the last layer, head, is another one and begins anew$")
        self.assertEqual(tensor(self.folder / "second" / "checkpoint.safetensors", "conv1.weight"), tensor(first, "conv1.weight"))

    def test_ends_when_no_epoch_is_better(self):
        output = self.train("run", "--patience", 2, "--lr", "0.02", epochs=60, net=self.write_network(NETWORK))
        self.assertIn("no better epoch in 2 epochs: the training ends before its last epoch", output)
        accuracies = [float(line.split()[-2]) for line in output.splitlines() if ": validation accuracy" in line]
        self.assertLess(len(accuracies), 60)
        self.assertEqual(accuracies.index(max(accuracies)), len(accuracies) - 3)
        again = run("train", "--resume", "--out", self.folder / "run")
        self.assertEqual(again.returncode, 0)
        self.assertNotIn("epoch 1:", again.stdout)

    def test_validation_sees_the_average_of_the_weights(self):
        output = self.train("run", "--ema", 0.9, epochs=1, net="mnist-cnn")
        self.assertIn("moving average of the weights: decay 0.9; validation and best.safetensors have it\n", output)
        best, checkpoint = (self.folder / "run" / name for name in ("best.safetensors", "checkpoint.safetensors"))
        for name in ("conv1.weight", "conv1.bias"):
            self.assertEqual(tensor(best, name), tensor(checkpoint, f"average.{name}"))
            self.assertNotEqual(tensor(best, name), tensor(checkpoint, name))
        self.assertFalse([name for name in header_and_data(best)[0] if name.startswith("average.")])
        accuracy = re.search(r"final validation accuracy (\S+) %", output)[1]
        for file in (best, checkpoint):
            self.assertIn(f"accuracy {accuracy} %", run("eval", file).stdout)
        self.train("plain", epochs=1, net="mnist-cnn")
        self.assertEqual(tensor(self.folder / "plain" / "checkpoint.safetensors", "conv1.weight"), tensor(checkpoint, "conv1.weight"))

    def test_the_loader_changes_no_bytes(self):
        generator = random.Random(5)
        for name in ("cat", "dog"):
            (self.folder / "pictures" / name).mkdir(parents=True)
            for number in range(12):
                pixels = bytes(generator.randrange(256) for _ in range(16 * 16))
                (self.folder / "pictures" / name / f"{number}.png").write_bytes(png(16, 16, pixels))
        arguments = ["train", "--data", f"folder:{self.folder / 'pictures'}", "--picture-size", "16x16x1", "--epochs", 2, "--net",
                     self.write_network(NETWORK), "--augment", "crop+flip+rotate:10", "--out"]
        found = set()
        for number, options in enumerate(([], ["--loader-threads", 1], ["--loader-threads", 2], ["--loader-threads", 8], ["--memory-budget", 0],
                                          ["--loader-threads", 3, "--memory-budget", "2K"])):
            done = run(*arguments, self.folder / f"run{number}", *options)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            found.add((self.folder / f"run{number}" / "checkpoint.safetensors").read_bytes())
        self.assertEqual(len(found), 1)
        for size in ("-1", "2X", "2KB", "", "1.5G", "20000000T"):
            self.expect_error([*arguments, self.folder / "new", "--memory-budget", size], "--memory-budget", "give a number of bytes")
        self.expect_error([*arguments, self.folder / "new", "--loader-threads", 0], "--loader-threads")

    def test_the_best_epoch_may_be_that_of_the_lowest_loss(self):
        output = self.train("run", "--best-by", "loss", net=self.write_network(NETWORK))
        self.assertEqual(len([line for line in output.splitlines() if ", loss " in line]), 2)
        first = header_and_data(self.folder / "run" / "best.safetensors")[0]["__metadata__"]
        self.assertEqual((first["setting.best-by"], first["position.epochs_without_best"]), ("loss", "0"))

    def test_class_weights(self):
        losses = {}
        for how in ("none", "balanced", ",".join(["2"] * 10)):
            done = self.train(f"run-{how}", "--class-weights", how, "--steps", 1)
            losses[how] = float((self.folder / f"run-{how}" / "metrics.csv").read_text().splitlines()[1].split(",")[2])
        none, _, doubled = losses.values()
        self.assertAlmostEqual(doubled, 2 * none, places=4)
        for how, words in (("1,2", "is 2, expected 10, one for each class"), ("heavy", "give none, balanced, or 10 numbers"),
                           (",".join(["1"] * 9 + ["-1"]), "weight of class 9")):
            self.expect_error(self.train_arguments("new", "--class-weights", how), how, words)

    def test_finds_a_learning_rate(self):
        arguments = ["find-lr", "--data", self.data, "--net", self.write_network(NETWORK), "--batch", 16, "--steps", 60]
        done = run(*arguments, "--lowest", 1e-5, "--highest", 10)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        rates = [float(line.split()[0]) for line in lines[1:-1]]
        self.assertEqual(rates, sorted(rates))
        self.assertAlmostEqual(rates[0], 1e-5)
        self.assertRegex(lines[-1], r"^suggestion: --lr \S+$")
        rate = float(lines[-1].split()[-1])
        self.assertTrue(1e-5 < rate <= 1)
        self.expect_error([*arguments, "--lowest", 1, "--highest", 0.5], "a positive rate and a larger one")

    def test_scores_of_each_class(self):
        self.train("run", epochs=1)
        checkpoint = self.folder / "run" / "checkpoint.safetensors"
        scores = json.loads(run("eval", checkpoint, "--json").stdout)
        self.assertEqual(scores["count"], sum(entry["count"] for entry in scores["classes"]))
        self.assertEqual(scores["count"], sum(entry["count"] for entry in scores["confusion"]))
        right = sum(entry["count"] for entry in scores["confusion"] if entry["class"] == entry["taken_for"])
        self.assertEqual((scores["correct"], scores["accuracy"]), (right, right / scores["count"]))
        self.assertEqual(sorted(scores["classes"][0]), ["count", "f1", "name", "precision", "recall"])
        self.assertIn("F1 %", run("eval", checkpoint).stdout)


if __name__ == "__main__":
    unittest.main()
