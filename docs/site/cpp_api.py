"""Makes the pages of the C++ API: sorts Doxygen's XML and writes a page for each family, which Breathe fills.

The namespace `detail` is left out. What a public class inherits from a class of that namespace is shown as its own, because a program
calls it as its own. Members for the library alone ("The library's own") and members whose arguments are of `detail` are left out, too.
"""

import copy
import pathlib
import re
import xml.etree.ElementTree as ElementTree

DETAIL = re.compile(r"\bdetail::")
PUBLIC_SECTIONS = ("public-type", "public-attrib", "public-func", "public-static-attrib", "public-static-func", "user-defined")
# What Sphinx 5.3 cannot read in a declaration.
ATTRIBUTES = re.compile(r"\[\[\w+\]\]\s*")

INTRODUCTION = """\
The headers that are installed, in the words of their own comments. ``#include "unmetal.hpp"`` brings kernels and graphs,
``#include "unmetal_train.hpp"`` networks and training, ``#include "unmetal_conform.hpp"`` gradient checks. Classes have Apple's names
without the prefix; :doc:`/docs/api-map` has both."""

# Title, file name, and what the path of a header begins with; the first that fits has it.
GROUPS = (
    ("Networks and training", "train", ("train/",)),
    ("ONNX", "onnx", ("onnx/",)),
    ("Devices, queues, command buffers, memory", "mtl", ("mtl/",)),
    ("Images, batches, states", "images", ("mps/core/image/",)),
    ("Vectors, matrices and arrays", "arrays", ("mps/core/array/",)),
    ("Base classes of kernels and nodes", "kernels", ("mps/core/kernel/",)),
    ("Descriptors, data sources and states of layers", "layers", ("mps/core/layer/", "mps/core/neuron/")),
    ("Coding", "coding", ("mps/core/coding/",)),
    ("Basic types", "types", ("mps/core/types/",)),
    ("Graphs", "graph", ("mps/graph/",)),
    ("Data sources of the library", "trainable", ("mps/trainable/",)),
    ("Weight files", "weights", ("mps/weights/",)),
    ("Several devices", "distributed", ("mps/distributed/",)),
    ("Gradient checks", "conform", ("mps/conform/",)),
    ("Pooling", "pooling", ("mps/pooling/",)),
    ("Convolution", "convolution", ("mps/convolution/",)),
    ("Resizing and sampling", "upsampling", ("mps/upsampling/",)),
    ("Batch normalisation", "batch_normalization", ("mps/batch_normalization/",)),
    ("Instance and group normalisation", "instance_normalization", ("mps/instance_normalization/",)),
    ("Normalisation by neighbours", "normalization", ("mps/normalization/",)),
    ("Neurons", "neuron", ("mps/neuron/",)),
    ("Softmax", "softmax", ("mps/softmax/",)),
    ("Dropout", "dropout", ("mps/dropout/",)),
    ("Arithmetic", "arithmetic", ("mps/arithmetic/",)),
    ("Concatenation", "concatenation", ("mps/concatenation/",)),
    ("Padding, reshape, slice", "reshape", ("mps/reshape/",)),
    ("Reductions", "reduction", ("mps/reduction/",)),
    ("Gram matrices", "gram_matrix", ("mps/gram_matrix/",)),
    ("Losses", "loss", ("mps/loss/",)),
    ("Optimisers", "optimizer", ("mps/optimizer/",)),
    ("Matrices", "matrix", ("mps/matrix/",)),
    ("Gathers", "gather", ("mps/gather/",)),
)


def text_of(element):
    return "" if element is None else "".join(element.itertext())


def split_arguments(text):
    """The arguments of a template: `A, B< C, D >` is A and B< C, D >."""
    depth, parts = 0, [""]
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def replace_names(text, names):
    return re.sub(r"\b(" + "|".join(map(re.escape, names)) + r")\b", lambda found: names[found.group()], text) if names and text else text


class Compounds:
    """The classes and structures of Doxygen's XML."""

    def __init__(self, folder):
        trees = {path.stem: ElementTree.parse(path) for path in folder.glob("*.xml")}
        self.trees = {stem: tree for stem, tree in trees.items() if tree.getroot().find("compounddef") is not None}

    def __getitem__(self, refid):
        return self.trees[refid].getroot().find("compounddef")

    def parameters(self, refid):
        """The names of a template's parameters; their default values."""
        parameters = {}
        for parameter in self[refid].findall("templateparamlist/param"):
            name = text_of(parameter.find("declname")) or text_of(parameter.find("type")).split()[-1]
            parameters[name] = text_of(parameter.find("defval"))
        return parameters


def is_for_library(member):
    signature = text_of(member.find("type")) + text_of(member.find("argsstring"))
    signature += "".join(text_of(parameter.find("type")) for parameter in member.findall("param"))
    # Doxygen takes a friend or a using-declaration for a variable.
    return DETAIL.search(signature) or "PreparedCall" in signature \
        or text_of(member.find("type")).strip() == "friend" or member.get("kind") == "friend"


def is_group_for_library(section):
    return text_of(section.find("header")).strip() == "The library's own"


def join_exceptions(compound):
    """`@throws Error, naming the kernel` names one exception; Doxygen takes words behind a comma for further ones."""
    for item in compound.iter("parameteritem"):
        names = item.find("parameternamelist").findall("parametername")
        paragraph = item.find("parameterdescription/para")
        if len(names) > 1 and paragraph is not None and names[0].text in ("Error", "mps::Error", "mtl::Error"):
            paragraph.text = ", ".join(text_of(name) for name in names[1:]) + " " + (paragraph.text or "")
            for name in names[1:]:
                item.find("parameternamelist").remove(name)


def clean_sections(compound):
    for section in compound.findall("sectiondef"):
        if is_group_for_library(section) or section.get("kind") not in PUBLIC_SECTIONS and compound.get("kind") in ("class", "struct"):
            compound.remove(section)
            continue
        for member in section.findall("memberdef"):
            name, own = text_of(member.find("name")), text_of(compound.find("compoundname")).split("::")[-1]
            copies = name == own and re.match(rf"\((const )?{own} &&?", text_of(member.find("argsstring")))
            if is_for_library(member) or member.get("prot", "public") != "public" or name.startswith("@") \
                    or "operator=" in name or copies or "detail::" in text_of(member.find("qualifiedname")):
                section.remove(member)
                continue
            for place in member.iter():
                if place.tag in ("type", "definition", "argsstring", "initializer") and place.text:
                    place.text = ATTRIBUTES.sub("", place.text)
        if not section.findall("memberdef"):
            compound.remove(section)


def call_of(member):
    """What tells an overload from others."""
    return text_of(member.find("name")), tuple(text_of(parameter.find("type")) for parameter in member.findall("param")), member.get("const")


def adopt(compounds, compound, refid, names, owner):
    """Gives `compound` the public members of a base class in `detail`, and in turn of its bases; returns the bases that are public."""
    base, public = compounds[refid], []
    own = {call_of(member) for member in compound.iter("memberdef")}
    for section in base.findall("sectiondef"):
        if section.get("kind") not in PUBLIC_SECTIONS or is_group_for_library(section):
            continue
        adopted = ElementTree.SubElement(compound, "sectiondef", kind=section.get("kind"))
        for member in section.findall("memberdef"):
            name = text_of(member.find("name"))
            if name == text_of(base.find("compoundname")).split("::")[-1] or name.startswith("~") or call_of(member) in own:
                continue
            own.add(call_of(member))
            member = copy.deepcopy(member)
            member.set("id", f"{compound.get('id')}_{member.get('id')}")
            for place in member.iter():
                if place.tag not in ("para", "briefdescription", "detaileddescription"):
                    place.text, place.tail = replace_names(place.text, names), replace_names(place.tail, names)
            for tag in ("definition", "qualifiedname"):
                place = member.find(tag)
                if place is not None and place.text:
                    place.text = re.sub(r"mps::detail::\w+(< .* >)?::" + re.escape(name) + "$", f"{owner}::{name}", place.text)
            adopted.append(member)
    for further in base.findall("basecompoundref"):
        public += resolve_base(compounds, compound, further, names, owner)
    return public


def resolve_base(compounds, compound, reference, names, owner):
    text = replace_names(text_of(reference), names)
    if not DETAIL.search(text.split("<")[0]):
        return [text] if reference.get("prot") == "public" else []
    refid = reference.get("refid")
    if refid is None:
        return []
    given = split_arguments(text[text.index("<") + 1:text.rindex(">")]) if "<" in text else []
    parameters = compounds.parameters(refid)
    own = dict(zip(parameters, given + list(parameters.values())[len(given):]))
    return adopt(compounds, compound, refid, own, owner)


def sort_xml(folder):
    """Rewrites the XML in its folder; returns for each header the entities that it declares."""
    compounds = Compounds(folder)
    headers = {}
    left_out = {
        refid for refid, tree in compounds.trees.items() if "detail" in text_of(compounds[refid].find("compoundname")).split("::")}
    for refid in compounds.trees:
        compound = compounds[refid]
        if refid in left_out or compound.get("kind") not in ("class", "struct"):
            continue
        owner, bases = text_of(compound.find("compoundname")), []
        for reference in compound.findall("basecompoundref"):
            bases += resolve_base(compounds, compound, reference, {}, owner)
            compound.remove(reference)
        for place, base in enumerate(dict.fromkeys(bases)):
            element = ElementTree.Element("basecompoundref", prot="public", virt="non-virtual")
            element.text = base
            compound.insert(1 + place, element)
        location = compound.find("location")
        if location is not None and compound.get("prot", "public") == "public":
            headers.setdefault(location.get("file"), {"classes": [], "members": []})["classes"].append(
                (int(location.get("line", 0)), compound.get("kind"), owner, refid))
    for refid in compounds.trees:
        compound = compounds[refid]
        clean_sections(compound)
        join_exceptions(compound)
        for tag in ("derivedcompoundref", "incdepgraph", "invincdepgraph", "inheritancegraph", "collaborationgraph", "listofallmembers"):
            for graph in compound.findall(tag):
                compound.remove(graph)
        for inner in compound.findall("innerclass") + compound.findall("innernamespace"):
            if DETAIL.search(text_of(inner)) or text_of(inner).endswith("detail") or inner.get("prot", "public") != "public":
                compound.remove(inner)
        if compound.get("kind") == "namespace" and refid not in left_out:
            for member in compound.iter("memberdef"):
                location = member.find("location")
                headers.setdefault(location.get("file"), {"classes": [], "members": []})["members"].append(
                    (int(location.get("line", 0)), member))
        compounds.trees[refid].write(folder / f"{refid}.xml", encoding="utf-8", xml_declaration=True)
    return headers


def member_lines(member, project):
    name, kind = text_of(member.find("qualifiedname")) or text_of(member.find("name")), member.get("kind")
    directive = {"enum": "doxygenenum", "typedef": "doxygentypedef", "variable": "doxygenvariable", "function": "doxygenfunction"}[kind]
    if kind == "function":
        name += re.sub(r"\s*=\s*[^,()]+(\(\))?(\{[^}]*\})?(?=[,)])", "", text_of(member.find("argsstring")))
    return [f".. {directive}:: {name}", f"   :project: {project}", ""]


def header_lines(header, entities, is_nested, project):
    title = f"``{header}``"
    lines = [title, "-" * len(title), ""]
    found = []
    for line, member in entities["members"]:
        found.append((line, member_lines(member, project)))
    for line, kind, name, refid in entities["classes"]:
        if not is_nested(name):
            directive = "doxygenclass" if kind == "class" else "doxygenstruct"
            found.append((line, [f".. {directive}:: {name}", f"   :project: {project}", "   :members:", "   :undoc-members:", ""]))
    for _, block in sorted(found, key=lambda pair: pair[0]):
        lines += block
    return lines if found else []


def write_project(xml, folder, headers):
    """The XML of some headers as a project of its own: Breathe searches a whole project for each name."""
    folder.mkdir(parents=True, exist_ok=True)
    classes = {refid for entities in headers for _, _, _, refid in entities["classes"]}
    members = {member.get("id") for entities in headers for _, member in entities["members"]}
    index = ElementTree.parse(xml / "index.xml")
    for compound in index.getroot().findall("compound"):
        refid, is_namespace = compound.get("refid"), compound.get("kind") == "namespace"
        for member in compound.findall("member"):
            if not is_namespace or member.get("refid") not in members:
                compound.remove(member)
        if refid not in classes and not compound.findall("member"):
            index.getroot().remove(compound)
            continue
        tree = ElementTree.parse(xml / f"{refid}.xml")
        for section in tree.getroot().findall("compounddef/sectiondef") if is_namespace else []:
            for member in section.findall("memberdef"):
                if member.get("id") not in members:
                    section.remove(member)
        tree.write(folder / f"{refid}.xml", encoding="utf-8", xml_declaration=True)
    index.write(folder / "index.xml", encoding="utf-8", xml_declaration=True)


def write_pages(xml, projects, pages):
    """Returns the page of each class and enumeration."""
    headers = sort_xml(pathlib.Path(xml))
    names = {name for entities in headers.values() for _, _, name, _ in entities["classes"]}
    pages = pathlib.Path(pages)
    pages.mkdir(parents=True, exist_ok=True)

    def is_nested(name):
        return name.rsplit("::", 1)[0] in names

    entries, page_of = [], {}
    for title, file_name, folders in GROUPS:
        lines = [title, "=" * len(title), ""]
        here = [header for header in sorted(headers) if header.startswith(folders)]
        write_project(pathlib.Path(xml), pathlib.Path(projects) / file_name, [headers[header] for header in here])
        for header in here:
            lines += header_lines(header, headers[header], is_nested, file_name)
            page_of |= {name.split("::")[-1]: file_name for _, _, name, _ in headers[header]["classes"]}
            page_of |= {text_of(member.find("name")): file_name for _, member in headers[header]["members"]
                        if member.get("kind") == "enum"}
        (pages / f"{file_name}.rst").write_text("\n".join(lines))
        entries.append(f"   {file_name}")
    missing = [header for header in headers if not header.startswith(tuple(folder for _, _, folders in GROUPS for folder in folders))]
    if missing:
        raise SystemExit(f"docs/site/cpp_api.py: GROUPS has no page for {', '.join(sorted(missing))}")
    title = "C++"
    (pages / "index.rst").write_text("\n".join([title, "=" * len(title), "", INTRODUCTION, "",
                                                ".. toctree::", "   :maxdepth: 1", "", *entries, ""]))
    return page_of
