#!/usr/bin/env python3
"""Draws the pictures of the layers' pages, all in one style, into docs/images/layers.

    docs/site/draw_layers.py [--check]     --check: only says which pictures are not those that it draws
"""

import math
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "images" / "layers"
INK, SOFT, LINE = "#1d2b44", "#33415c", "#5b6b86"
BLUE, BLUE_LINE, ORANGE, ORANGE_LINE = "#eef3fb", "#4a6fa5", "#fbe3b5", "#b08a3e"
GREEN, GREEN_LINE, VIOLET, VIOLET_LINE, GREY = "#dcefdc", "#4f8a4f", "#eadcf5", "#7d5ba6", "#f1f2f4"


class Picture:
    def __init__(self, width=640, height=240):
        self.parts, self.width, self.height = [], width, height

    def box(self, x, y, width, height, fill=BLUE, line=BLUE_LINE, thick=1.2):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{line}" '
                          f'stroke-width="{thick:g}"/>')

    def grid(self, x, y, columns, rows, size=24, fill=lambda column, row: BLUE, value=lambda column, row: ""):
        for row in range(rows):
            for column in range(columns):
                self.box(x + column * size, y + row * size, size, size, fill(column, row))
                if value(column, row) != "":
                    self.text(x + (column + 0.5) * size, y + (row + 0.5) * size + 4.5, value(column, row), 12.5)

    def frame(self, x, y, width, height):
        self.box(x, y, width, height, "none", ORANGE_LINE, 3)

    def text(self, x, y, words, size=14, colour=INK, anchor="middle"):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}" fill="{colour}">{words}</text>')

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{LINE}" stroke-width="1.8" '
                          'marker-end="url(#tip)"/>')

    def line(self, x1, y1, x2, y2, colour=LINE, thick=1.2):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{thick:g}"/>')

    def curve(self, points, colour=BLUE_LINE):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.4"/>')

    def dot(self, x, y, radius=5, fill=ORANGE, line=ORANGE_LINE):
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{line}"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}" font-family="DejaVu Sans, Verdana, sans-serif">'
                f'<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
                f'<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>'
                f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def window_fill(left, top, width, height, colour=ORANGE):
    return lambda column, row: colour if left <= column < left + width and top <= row < top + height else BLUE


def one(column, row, colour=ORANGE):
    return lambda x, y: colour if (x, y) == (column, row) else BLUE


def pooling():
    p = Picture()
    numbers = [[1, 3, 2, 0, 1, 2], [4, 6, 5, 1, 0, 3], [2, 1, 0, 7, 2, 1], [0, 2, 8, 3, 1, 4], [5, 1, 2, 0, 6, 2], [1, 0, 3, 4, 2, 1]]
    p.grid(50, 40, 6, 6, 26, window_fill(2, 2, 2, 2), lambda x, y: numbers[y][x])
    p.frame(102, 92, 52, 52)
    p.text(128, 222, "source, window 2 x 2, stride 2", 13, SOFT)
    p.arrow(215, 118, 275, 118)
    for left, title, operation in ((290, "maximum", max), (405, "average", lambda v: f"{sum(v) / 4:g}"),
                                   (520, "L2 norm", lambda v: f"{math.sqrt(sum(x * x for x in v)):.1f}")):
        p.grid(left, 66, 3, 3, 34, one(1, 1), lambda x, y, f=operation: f([numbers[2 * y + i][2 * x + j] for i in (0, 1) for j in (0, 1)]))
        p.text(left + 51, 195, title, 13, SOFT)
    return p


def stack(p, x, y, count, width, height, colour=BLUE, step=9):
    for place in reversed(range(count)):
        p.box(x + place * step, y - place * step, width, height, colour)


def convolution():
    p = Picture()
    stack(p, 40, 80, 3, 120, 120)
    p.frame(64, 104, 54, 54)
    p.text(110, 222, "source: 3 channels", 13, SOFT)
    for place, colour in enumerate((ORANGE, GREEN, VIOLET)):
        stack(p, 240, 42 + place * 56, 3, 36, 36, colour, 5)
    p.text(265, 222, "3 filters", 13, SOFT)
    p.arrow(185, 120, 228, 120)
    p.arrow(305, 120, 368, 120)
    p.text(336, 108, "+ bias", 12, SOFT)
    for place, colour in reversed(list(enumerate((ORANGE, GREEN, VIOLET)))):
        p.box(385 + place * 26, 84 - place * 14, 110, 110, colour)
    p.box(440, 128, 10, 10, INK)
    p.text(465, 222, "result: a channel per filter", 13, SOFT)
    return p


def transposed_convolution():
    p = Picture()
    p.grid(30, 85, 3, 3, 26, lambda x, y: ORANGE)
    p.text(69, 222, "source 3 x 3", 13, SOFT)
    p.arrow(125, 124, 165, 124)
    p.grid(185, 40, 7, 7, 24, lambda x, y: ORANGE if x in (1, 3, 5) and y in (1, 3, 5) else GREY,
           lambda x, y: "" if x in (1, 3, 5) and y in (1, 3, 5) else 0)
    p.frame(233, 88, 72, 72)
    p.text(269, 222, "zeros between, window 3 x 3", 13, SOFT)
    p.arrow(370, 124, 420, 124)
    p.grid(440, 64, 5, 5, 24, one(2, 2))
    p.text(500, 222, "result 5 x 5", 13, SOFT)
    return p


def fully_connected():
    p = Picture()
    inputs, outputs = [(150, 40 + 26 * i) for i in range(7)], [(430, 65 + 44 * i) for i in range(4)]
    for x1, y1 in inputs:
        for place, (x2, y2) in enumerate(outputs):
            p.line(x1, y1, x2, y2, ORANGE_LINE if place == 1 else "#c6d3e6", 1.6 if place == 1 else 0.8)
    for x, y in inputs:
        p.dot(x, y, 9, BLUE, BLUE_LINE)
    for place, (x, y) in enumerate(outputs):
        p.dot(x, y, 11, ORANGE if place == 1 else BLUE, ORANGE_LINE if place == 1 else BLUE_LINE)
    p.text(150, 228, "all values of the source", 13, SOFT)
    p.text(430, 228, "outputs", 13, SOFT)
    return p


def resizing():
    p = Picture()
    heights = [60, 110, 40, 90]
    for left, title, bilinear in ((40, "nearest", False), (350, "bilinear", True)):
        p.line(left, 190, left + 260, 190)
        for place, height in enumerate(heights):
            p.dot(left + 40 + place * 60, 190 - height)
        if bilinear:
            p.curve([(left + 40 + place * 60, 190 - height) for place, height in enumerate(heights)])
        else:
            points = []
            for place, height in enumerate(heights):
                points += [(left + 10 + place * 60, 190 - height), (left + 70 + place * 60, 190 - height)]
            p.curve(points)
        p.text(left + 130, 222, title, 13, SOFT)
    return p


def normalization_cube(p, x, y, marked, title):
    """Images side by side as stacks of channels; what shares a mean is marked."""
    for image in range(3):
        for channel in reversed(range(4)):
            p.box(x + image * 78 + channel * 7, y + channel * 20, 46, 17, ORANGE if marked(image, channel) else BLUE)
    p.text(x + 110, y + 120, title, 13, SOFT)


def batch_normalization():
    p = Picture()
    normalization_cube(p, 60, 60, lambda image, channel: channel == 1, "one channel of all images")
    p.arrow(330, 108, 385, 108)
    for place, (shift, width, colour) in enumerate(((40, 46, ORANGE_LINE), (0, 20, BLUE_LINE))):
        p.curve([(490 + shift + x, 180 - 110 * 20 / width * math.exp(-x * x / (2 * width * width))) for x in range(-90, 91, 5)], colour)
    p.line(400, 180, 625, 180)
    p.line(490, 184, 490, 60, "#c6d3e6")
    p.text(490, 200, "0", 12, SOFT)
    p.text(510, 228, "mean 0, variance 1", 13, SOFT)
    return p


def instance_normalization():
    p = Picture()
    normalization_cube(p, 50, 60, lambda image, channel: image == 1 and channel == 1, "instance: a channel of an image")
    normalization_cube(p, 370, 60, lambda image, channel: image == 1 and channel in (0, 1), "group: channels of an image")
    return p


def local_normalizations():
    p = Picture()
    for place in reversed(range(7)):
        p.box(60 + place * 12, 110 - place * 12, 80, 80, GREEN if place == 3 else ORANGE if place in (2, 4) else BLUE)
    p.text(135, 222, "neighbouring channels", 13, SOFT)
    p.grid(350, 40, 7, 7, 22, lambda x, y: GREEN if (x, y) == (3, 3) else ORANGE if 2 <= x <= 4 and 2 <= y <= 4 else BLUE)
    p.text(427, 222, "a window of pixels of one channel", 13, SOFT)
    return p


def plot(p, left, function, title, colour=BLUE_LINE, top=40, scale=28, height=140, low=-3, high=3):
    middle_x, middle_y = left + 84, top + height * 0.62
    p.line(left, middle_y, left + 168, middle_y, "#c6d3e6")
    p.line(middle_x, top, middle_x, top + height, "#c6d3e6")
    points = []
    for step in range(121):
        x = low + (high - low) * step / 120
        y = function(x)
        if y is not None and top <= middle_y - y * scale <= top + height:
            points.append((middle_x + x * scale, middle_y - y * scale))
    p.curve(points, colour)
    p.text(middle_x, top + height + 20, title, 13, SOFT)


def neurons():
    p = Picture(640, 390)
    shown = (("ReLU", lambda x: max(x, 0)), ("Sigmoid", lambda x: 1 / (1 + math.exp(-x))), ("TanH", math.tanh),
             ("ELU", lambda x: x if x >= 0 else math.exp(x) - 1), ("SoftPlus", lambda x: math.log(1 + math.exp(x))),
             ("GeLU", lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))))
    for place, (title, function) in enumerate(shown):
        plot(p, 35 + place % 3 * 200, function, title, BLUE_LINE, 20 + place // 3 * 185)
    return p


def softmax():
    p = Picture()
    scores = [1.0, 2.5, 0.2, 1.6]
    total = sum(math.exp(score) for score in scores)
    for left, values, scale, title in ((60, scores, 45, "scores"), (380, [math.exp(score) / total for score in scores], 170, "probabilities")):
        for place, value in enumerate(values):
            p.box(left + place * 48, 190 - value * scale, 34, value * scale, ORANGE if place == 1 else BLUE)
            p.text(left + place * 48 + 17, 184 - value * scale, f"{value:.2f}".rstrip("0").rstrip("."), 12)
        p.line(left - 10, 190, left + 190, 190)
        p.text(left + 90, 222, title, 13, SOFT)
    p.arrow(275, 120, 345, 120)
    return p


def dropout():
    p = Picture()
    kept = {(0, 0), (2, 0), (3, 1), (1, 1), (0, 2), (2, 2), (3, 3), (1, 3)}
    p.grid(70, 50, 4, 4, 36, lambda x, y: BLUE, lambda x, y: x + y + 1)
    p.arrow(245, 122, 355, 122)
    p.text(300, 110, "P = 0.5", 13, SOFT)
    p.grid(390, 50, 4, 4, 36, lambda x, y: ORANGE if (x, y) in kept else GREY, lambda x, y: 2 * (x + y + 1) if (x, y) in kept else 0)
    p.text(142, 222, "source", 13, SOFT)
    p.text(462, 222, "kept values divided by P", 13, SOFT)
    return p


def arithmetic():
    p = Picture()
    p.grid(60, 60, 4, 3, 36, lambda x, y: BLUE, lambda x, y: x + 1)
    p.text(225, 120, "+", 22)
    p.grid(250, 60, 4, 3, 36, lambda x, y: ORANGE if y == 0 else GREY, lambda x, y: 10 * (x + 1))
    p.text(418, 120, "=", 22)
    p.grid(445, 60, 4, 3, 36, lambda x, y: GREEN, lambda x, y: 11 * (x + 1))
    p.text(322, 200, "stride 0 in y: one row, repeated", 13, SOFT)
    return p


def concatenation():
    p = Picture()
    stack(p, 60, 110, 4, 90, 90, BLUE, 12)
    stack(p, 240, 110, 2, 90, 90, ORANGE, 12)
    p.arrow(355, 140, 420, 140)
    for place in reversed(range(6)):
        p.box(435 + place * 12, 110 - place * 12, 90, 90, BLUE if place < 4 else ORANGE)
    p.text(120, 228, "4 channels", 13, SOFT)
    p.text(295, 228, "2 channels", 13, SOFT)
    p.text(500, 228, "6 channels", 13, SOFT)
    return p


def padding():
    p = Picture()
    row = [0, 1, 2, 3]
    for place, (title, values) in enumerate((("Constant", [9, 9] + row + [9, 9]), ("Clamp", [0, 0] + row + [3, 3]),
                                             ("Mirror", [2, 1] + row + [2, 1]), ("MirrorWithEdge", [1, 0] + row + [3, 2]))):
        y = 30 + place * 48
        p.text(185, y + 22, title, 14, INK, "end")
        p.grid(210, y, 8, 1, 34, lambda x, _: BLUE if 2 <= x < 6 else ORANGE, lambda x, _, v=values: v[x])
    p.text(346, 232, "0 1 2 3 with two pixels more on each side", 13, SOFT)
    return p


def reductions():
    p = Picture()
    for left, title, columns, rows in ((40, "row: over x", 1, 4), (250, "column: over y", 4, 1), (460, "spatial", 1, 1)):
        p.grid(left, 50, 4, 4, 26)
        if title.startswith("row"):
            p.grid(left + 122, 50, 1, 4, 26, lambda x, y: ORANGE)
        elif title.startswith("column"):
            p.grid(left, 172, 4, 1, 26, lambda x, y: ORANGE)
        else:
            p.grid(left + 122, 89, 1, 1, 26, lambda x, y: ORANGE)
        p.text(left + 62, 226, title, 13, SOFT)
    return p


def gram_matrix():
    p = Picture()
    stack(p, 60, 120, 4, 90, 80, BLUE, 16)
    p.text(130, 228, "4 channels of an image", 13, SOFT)
    p.arrow(245, 120, 330, 120)
    p.grid(380, 40, 4, 4, 38, lambda x, y: ORANGE if x == y else BLUE, lambda x, y: f"{min(x, y)}·{max(x, y)}")
    p.text(456, 228, "all pairs, summed over pixels", 13, SOFT)
    return p


def losses():
    p = Picture(740)
    shown = (("MeanSquaredError", lambda x: x * x), ("MeanAbsoluteError", abs),
             ("Huber", lambda x: x * x / 2 if abs(x) <= 1 else abs(x) - 0.5), ("Hinge, label 1", lambda x: max(1 - x, 0)))
    for place, (title, function) in enumerate(shown):
        plot(p, 16 + place * 180, function, title, (BLUE_LINE, ORANGE_LINE, GREEN_LINE, VIOLET_LINE)[place], 30, 25, 150)
    return p


def yolo_loss():
    p = Picture()
    p.grid(50, 40, 4, 4, 40)
    p.box(50 + 40, 40 + 40, 40, 40, ORANGE)
    p.box(70, 62, 88, 64, "none", ORANGE_LINE, 2.5)
    p.box(88, 48, 46, 104, "none", VIOLET_LINE, 2.5)
    p.dot(114, 96)
    p.text(130, 226, "a cell and its two anchors", 13, SOFT)
    p.arrow(235, 120, 290, 120)
    for anchor, line in enumerate((ORANGE_LINE, VIOLET_LINE)):
        for place, word in enumerate(("x", "y", "w", "h", "conf", "c0", "c1")):
            p.box(310 + place * 42, 70 + anchor * 60, 42, 36, ORANGE if anchor == 0 else VIOLET, line)
            p.text(331 + place * 42, 93 + anchor * 60, word, 12.5)
    p.text(457, 226, "channels of the cell, anchor after anchor", 13, SOFT)
    return p


def optimizers():
    p = Picture()
    for radius in (1.0, 0.75, 0.5, 0.25):
        p.parts.append(f'<ellipse cx="330" cy="112" rx="{260 * radius:g}" ry="{90 * radius:g}" fill="none" stroke="#c6d3e6"/>')
    plain, momentum, velocity = [(-2.4, 0.85)], [(-2.4, 0.85)], [0, 0]
    for _ in range(25):
        x, y = plain[-1]
        plain.append((x - 0.09 * x, y - 1.75 * y))
        x, y = momentum[-1]
        velocity = [0.7 * velocity[0] + 0.09 * x, 0.7 * velocity[1] + 0.5 * y]
        momentum.append((x - velocity[0], y - velocity[1]))
    for path, colour, title, left in ((plain, ORANGE_LINE, "plain descent", 240), (momentum, BLUE_LINE, "momentum", 420)):
        p.curve([(330 + 100 * x, 112 - 90 * y) for x, y in path], colour)
        p.line(left - 70, 226, left - 50, 226, colour, 3)
        p.text(left, 231, title, 13, SOFT)
    p.dot(330, 112, 4, GREEN, GREEN_LINE)
    return p


def matrices():
    p = Picture()
    p.grid(50, 60, 3, 4, 32, lambda x, y: ORANGE if y == 1 else BLUE)
    p.text(172, 128, "x", 20)
    p.grid(200, 76, 5, 3, 32, lambda x, y: GREEN if x == 3 else BLUE)
    p.text(390, 128, "=", 20)
    p.grid(420, 60, 5, 4, 32, one(3, 1, VIOLET))
    p.text(98, 222, "A", 14)
    p.text(280, 222, "B", 14)
    p.text(500, 222, "C", 14)
    return p


def random_matrices():
    p = Picture()
    uniform = [31, 34, 29, 33, 30, 32, 35, 30, 31, 33]
    normal = [2, 8, 22, 48, 80, 104, 104, 80, 48, 22, 8, 2]
    for left, values, scale, title in ((60, uniform, 2.6, "uniform"), (360, normal, 1.25, "normal")):
        width = 220 / len(values)
        for place, value in enumerate(values):
            p.box(left + place * width, 190 - value * scale, width, value * scale, ORANGE if title == "normal" else BLUE)
        p.line(left - 15, 190, left + 235, 190)
        p.text(left + 110, 222, title, 13, SOFT)
    return p


def gather():
    p = Picture()
    chosen = [4, 1, 4]
    p.grid(60, 40, 5, 6, 27, lambda x, y: ORANGE if y == 4 else GREEN if y == 1 else BLUE)
    for row in range(6):
        p.text(45, 58 + row * 27, row, 12, SOFT)
    p.grid(280, 80, 1, 3, 27, lambda x, y: GREY, lambda x, y: chosen[y])
    p.arrow(320, 120, 385, 120)
    p.grid(410, 80, 5, 3, 27, lambda x, y: ORANGE if y != 1 else GREEN)
    p.text(128, 228, "table", 13, SOFT)
    p.text(293, 228, "indices", 13, SOFT)
    p.text(478, 228, "result", 13, SOFT)
    return p


def crop_and_grid_sample():
    p = Picture()
    p.grid(40, 40, 6, 6, 26)
    p.box(58, 56, 70, 44, "none", ORANGE_LINE, 3)
    p.box(106, 104, 62, 80, "none", VIOLET_LINE, 3)
    p.grid(225, 50, 3, 3, 22, lambda x, y: ORANGE)
    p.grid(225, 130, 3, 3, 22, lambda x, y: VIOLET)
    p.text(150, 226, "regions, each resized", 13, SOFT)
    p.grid(390, 40, 6, 6, 26)
    for row in range(4):
        for column in range(4):
            p.dot(410 + 38 * column + 10 * math.sin(row * 1.4), 62 + 36 * row + 9 * math.sin(column * 1.7), 4.5)
    p.text(468, 226, "a position for each result pixel", 13, SOFT)
    return p


PICTURES = (pooling, convolution, transposed_convolution, fully_connected, resizing, batch_normalization, instance_normalization,
            local_normalizations, neurons, softmax, dropout, arithmetic, concatenation, padding, reductions, gram_matrix, losses,
            yolo_loss, optimizers, matrices, random_matrices, gather, crop_and_grid_sample)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    others = 0
    for draw in PICTURES:
        path, text = FOLDER / (draw.__name__.replace("_", "-") + ".svg"), draw().svg()
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            print(f"{path.name} is not what docs/site/draw_layers.py draws")
            others += 1
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
