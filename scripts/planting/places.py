"""Where faults are planted: the files of each family, and the changes that their lines allow."""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# (what, pattern, replacement): each changes the meaning of one operator, call or index. `(?<= )` and spaces keep
# template brackets, pointers and unary operators out.
FAULTS = [
    ("sign", r"(?<=[\w)\]]) \+ (?=[\w(])", " - "),
    ("sign", r"(?<=[\w)\]]) - (?=[\w(])", " + "),
    ("sign", r" \+= ", " -= "),
    ("sign", r" -= ", " += "),
    ("sign", r"\bAdd\(", "Sub("),
    ("sign", r"\bSub\(", "Add("),
    ("sign", r"\bMulAdd\(", "NegMulAdd("),
    ("sign", r"\bNegMulAdd\(", "MulAdd("),
    ("bound", r"(?<=; )(\w+) < ([\w.>()-]+)(?=; )", r"\1 + 1 < \2"),
    ("bound", r"(?<== )0(?=; \w+ <)", "1"),
    ("divisor", r"(?<=[\w)\]]) / (?=[\w(])", " / 2 / "),
    ("divisor", r"\bDiv\(", "Mul("),
    ("divisor", r"(?<=[\w)\]]) \* (?=[\w(])", " * 2 * "),
    ("index", r"\[(\w+)\](?! *\()", r"[\1 + 1]"),
    ("index", r"(?<=[\w)\]]) \+ 1\b", " + 2"),
    ("index", r"(?<=[\w)\]]) - 1\b", " - 2"),
    ("index", r"\.firstTap\((\w+)\)", r".firstTap(\1 + 1)"),
    ("comparison", r"(?<=[\w)\]]) < (?=[\w(])", " <= "),
    ("comparison", r"(?<=[\w)\]]) <= (?=[\w(-])", " < "),
    ("comparison", r"(?<=[\w)\]]) > (?=[\w(])", " >= "),
    ("comparison", r"(?<=[\w)\]]) >= (?=[\w(])", " > "),
    ("comparison", r" == ", " != "),
    ("comparison", r" != ", " == "),
    ("comparison", r" && ", " || "),
    ("comparison", r"\bLt\(", "Ge("),
    ("comparison", r"\bGt\(", "Le("),
    ("comparison", r"\bGe\(", "Lt("),
    ("comparison", r"\bLe\(", "Gt("),
    ("comparison", r"\bEq\(", "Ne("),
    ("comparison", r"\bNe\(", "Eq("),
    ("comparison", r"\bstd::max\b", "std::min"),
    ("comparison", r"\bstd::min\b", "std::max"),
    ("comparison", r"\bMax\(", "Min("),
    ("comparison", r"\bMin\(", "Max("),
]

CUDA_FAULTS = FAULTS + [
    ("sign", r"\b(fmaf|__fmaf_rn)\((?!-)", r"\1(-"),
    ("sign", r"\b(fmaf|__fmaf_rn)\(-", r"\1("),
    ("sign", r"\b(expf|exp2f)\(-", r"\1("),
    ("index", r"\b(threadIdx|blockIdx)\.([xy])\b", r"(\1.\2 + 1)"),
    ("comparison", r"\bfmaxf\(", "fminf("),
    ("comparison", r"\bfminf\(", "fmaxf("),
]

# Lines that hold no arithmetic of a kernel: declarations, text, and what only decides how work is shared out.
NOT_CODE = re.compile(
    r"^\s*(//|#|/\*|\*|using |namespace |template|static_assert|HWY_|\[\[|return Refusal)|\"|"
    r"\b(Refusal|describe|printDispatch|grain(For)?|kGrain\w*|kElementsPerRange|rangeCount|parallelFor|threadCount|scratchBytes|extent|pixelsPerTile|"
    r"isNonTemporal|writes(Rows)?NonTemporal\(|\w*[pP]refetch\w*|fetch\w*|\w*Ahead\w*|ahead\w*|"
    r"alignas|reserve|resize|requires|counted)\b|operator|\bcellsOfTile\(|\bwholeVectors\(|"
    # an array that is larger than it need be
    r"^\s*(?!return\b)[\w:<>]+ \w+\[[^\]]*\];$|^\s*std::vector<.*> \w+\(")
# Functions whose text decides which implementation runs, where another correct one hides a fault, or what is asked for ahead,
# how much memory there is, or how much another thread must have to do.
NOT_KERNEL = re.compile(r"^\S.*\b(prepare\w*|refus\w*|accept\w*|supports\w*|describe|hash)\s*\(|\bbool canAccumulate\(|"
                        r"^\s+(\[\[nodiscard\]\] )?Ahead \w+\(|^\s+\w*Prefetch\w*\(|"
                        r"^\s*(HWY_INLINE )?void prefetch\w*\(|"
                        r"^\s+(\[\[nodiscard\]\] )?std::size_t scratchBytes\(|^\s+explicit \w*Buffers\(|^bool isTranscendental\(")
# Up to #else nothing is compiled where processors have vectors.
WITHOUT_VECTORS = re.compile(r"#if HWY_TARGET == HWY_SCALAR\b")
# Up to here a line declares an array: a larger one does no harm.
ARRAY_SIZE = re.compile(r"^\s*((static|constexpr|const|alignas\(\w+\)) )*[\w:<>]+\*? \*?\w+(\[\w+\])+( = )?\{")
# The same in CUDA kernels: what only decides how the compiler works or how much a thread does, the sizes of arrays, and
# strides over a grid, which tensors of the self-check are too small to take.
NOT_CUDA_CODE = re.compile(
    r"^\s*(__shared__|static constexpr|constexpr|if constexpr|extern|typename)\b|gridDim|kUnrolled|"
    r"__builtin_assume|__launch_bounds__|^\s*(const )?[\w:]+(<[^;]*>)? \w+(\[\w+\])+( = \{.*|\{.*)?;")
# A fault in a header is tried in one source: the one of its name, else this one, which tests it most, else the first that
# includes it.
CUDA_HOMES = {"elements_cuda.cuh": "arithmetic/cuda/arithmetic_cuda.cu", "element_grid_cuda.cuh": "arithmetic/cuda/arithmetic_cuda.cu",
              "neuron_cuda.cuh": "neuron/cuda/neuron_cuda.cu", "row_reduction_cuda.cuh": "softmax/cuda/softmax_cuda.cu",
              "philox_cuda.cuh": "dropout/cuda/dropout_cuda.cu", "rows_cuda.cuh": "dropout/cuda/dropout_cuda.cu",
              "store_numbers_cuda.cuh": "neuron/cuda/neuron_cuda.cu",
              "convolution_sums_cuda.cuh": "convolution/cuda/convolution_direct_cuda.cu",
              "pooling_vectors_cuda.cuh": "pooling/cuda/pooling_cuda.cu", "pooling_windows_cuda.cuh": "pooling/cuda/pooling_cuda.cu",
              "pooling_direct.hpp": "pooling/cuda/pooling_cuda.cu"}
# Files of mps/core that hold parts of kernels: in which family's self-check faults in them are looked for.
CPU_HOMES = {"channel_layout.cpp": "batch_normalization", "channel_passes-inl.hpp": "batch_normalization",
             "channel_rows-inl.hpp": "batch_normalization", "float16_runs-inl.hpp": "softmax",
             "neuron_span.cpp": "neuron", "neuron_vectors-inl.hpp": "neuron", "normal_tail-inl.hpp": "matrix",
             "philox_vectors-inl.hpp": "dropout", "pixel_copy.cpp": "concatenation", "non_temporal_runs-inl.hpp": "gather",
             "tile_io.cpp": "neuron", "vector_io-inl.hpp": "pooling", "vector_math-inl.hpp": "softmax",
             "vector_runs-inl.hpp": "arithmetic"}
# Files of a family that are no kernels: front ends and judges, which have tests of their own.
NOT_KERNEL_FILE = re.compile(
    r"(^|_)(problem|update|ranks|reference|cases|cases_setting|coding|conform|bench|descriptor|fixed_source|test_source|"
    r"layout|weights|labels|choice|"
    r"arithmetic_(gradient|record)|compare|forward_loss|convolution_transpose|fully_connected|"
    r"matrix_(batch_normalization|columns|neuron)|"
    r"combined_updates|group_normalization|image_scale|pad|plan_file|node|call|check_values|cuda)\b|_test\b")


Fault = collections.namedtuple("Fault", "file index kind old new")  # index: of the line, from 0; old, new: its text


def tree_files():
    """All files of mps, from the root of the tree."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "mps").rglob("*") if path.is_file())


def changed_text(fault):
    """The text of the fault's file with the fault."""
    lines = (ROOT / fault.file).read_text().split("\n")
    lines[fault.index] = fault.new
    return "\n".join(lines)


def families(files):
    """Kernel files of each family: those compiled for the CPU, front ends and judges left out."""
    found = collections.defaultdict(list)
    for name in files:
        path = pathlib.PurePosixPath(name)
        if path.parts[0] != "mps" or path.suffix not in (".cpp", ".hpp"):
            continue
        family = path.parts[1]
        if family == "core" and path.name in CPU_HOMES:
            found[CPU_HOMES[path.name]].append(name)
        if family in ("core", "weights", "trainable", "graph", "conform", "distributed") or NOT_KERNEL_FILE.search(path.stem):
            continue
        if path.parent.name in ("check", "cuda"):
            continue
        if str(path.parent / "cpu" / (path.stem + "_cpu.cpp")) not in files:  # its front end
            found[family].append(name)
    return dict(found)


def kernel_lines(text):
    """(index, line) of the lines that may take a fault: inside functions of kernels."""
    inside_excluded, depth, comment, without_vectors = False, 0, False, False
    for index, line in enumerate(text.split("\n")):
        if line.startswith("#"):
            without_vectors = WITHOUT_VECTORS.match(line) is not None or (without_vectors and line not in ("#else", "#endif"))
        if not inside_excluded and NOT_KERNEL.search(line) and not line.rstrip().endswith(";"):
            inside_excluded, depth = True, 0
            opened = False
        if inside_excluded:
            depth += line.count("{") - line.count("}")
            opened = opened or "{" in line
            if opened and depth <= 0:
                inside_excluded = False
            continue
        if "/*" in line:
            comment = True
        if not comment and not without_vectors and re.match(r"\s+\S", line) and not NOT_CODE.search(line):
            yield index, line.split("//")[0].rstrip()
        if "*/" in line:
            comment = False


def cuda_kernel_lines(text):
    """(index, line) of the lines that may take a fault: inside device functions, their heads left out."""
    head, depth = None, 0  # head: parentheses open in the head of a function
    for index, line in enumerate(text.split("\n")):
        code = line.split("//")[0].rstrip()
        if depth > 0:
            if not NOT_CODE.search(line) and not NOT_CUDA_CODE.search(line) and re.search(r"\w", code):
                yield index, code
            depth += code.count("{") - code.count("}")
            continue
        if head is None and re.search(r"\b__(device|global)__\b", code) and not code.lstrip().startswith("#"):
            head = 0
        if head is not None:
            head += code.count("(") - code.count(")")
            if head == 0 and code.endswith("{"):
                head, depth = None, code.count("{") - code.count("}")
            elif head == 0 and (code.endswith(";") or code.endswith("}")):
                head = None


def is_no_cuda_fault(line, match, changed):
    """Whether a change is the step of a for loop, which would not end while the GPU waits for it, or one iteration more of
    a loop over an array in registers, which the compiler leaves out."""
    rest = line[match.end():].split(";")[0]
    if match.group() in (" += ", " -= ") and rest.count(")") > rest.count("("):
        return True
    return match.group() == " < " and re.search(r"\bfor \(int \w+ = [^;]*; \w+ <= [\w:<>]+;", changed) is not None


def candidates(names, faults=FAULTS, lines=kernel_lines):
    """Every fault that could be planted."""
    found = []
    for name in names:
        for index, line in lines((ROOT / name).read_text()):
            size = ARRAY_SIZE.match(line)
            for kind, pattern, replacement in faults:
                for match in re.compile(pattern).finditer(line, size.end() if size else 0):
                    changed = line[:match.start()] + match.expand(replacement) + line[match.end():]
                    if lines is cuda_kernel_lines and is_no_cuda_fault(line, match, changed):
                        continue
                    found.append(Fault(name, index, kind, line, changed))
    return found


def draw(found, generator):
    """The candidates in random order, the kinds taking turns, in random order too, so that all of them occur."""
    by_kind = collections.defaultdict(list)
    for candidate in found:
        by_kind[candidate[2]].append(candidate)
    for entries in by_kind.values():
        generator.shuffle(entries)
    kinds = sorted(by_kind)
    generator.shuffle(kinds)
    while by_kind:
        for kind in [kind for kind in kinds if kind in by_kind]:
            yield by_kind[kind].pop()
            if not by_kind[kind]:
                del by_kind[kind]


def cuda_families(files):
    """For each family its sources, for each source the files whose faults are tried in it: itself and headers."""
    headers = {name for name in files if name.startswith("mps/") and name.endswith("_cuda.cuh")}
    sources = [name for name in files if re.match(r"mps/(?!core/|conform/).*_cuda\.cu$", name)]
    users = collections.defaultdict(list)  # of headers
    for source in sources:
        reached, waiting = set(), [source]
        while waiting:
            reached.add(one := waiting.pop())
            included = re.findall(r'^#include "([^"]+)"', (ROOT / one).read_text(), re.MULTILINE)
            waiting += set(included) & headers - reached
        for header in reached - {source}:
            users[header].append(source)
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for source in sources:
        found[source.split("/")[1]][source].append(source)
    for header in sorted(headers):
        home = "mps/" + CUDA_HOMES.get(pathlib.PurePosixPath(header).name, "")
        chosen = [one for one in users[header] if one in (home, header.removesuffix("h"))] or users[header]
        if chosen:
            found[header.split("/")[1]][chosen[0]].append(header)
    return {family: dict(units) for family, units in found.items()}
