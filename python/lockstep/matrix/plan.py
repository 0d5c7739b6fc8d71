# SPDX-License-Identifier: Apache-2.0
"""The file of a matrix: frameworks, versions, layouts, options and losses, and the combinations of these, in their order."""

import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import string
import tomllib
from dataclasses import asdict, dataclass

from lockstep.errors import LOSSES, OLD_LOSSES, nearest, shown

INSTALLED = "installed"  # the version that the Python has
# What becomes a part of a path and a word of pip's: nothing that leads elsewhere, or is an option.
WORD = r"[A-Za-z0-9][A-Za-z0-9._+!-]*"
TAKEN = ("loss", "version")  # names of values that no layout and no option may have
KEYS = ("name", "package", "versions", "script", "arguments", "layouts", "options", "losses", "variables", "with", "over", "steps")


class PlanError(Exception):
    """What is wrong in the file, as a sentence."""


@dataclass(frozen=True)
class Combination:
    experiment: str
    package: str
    version: str
    layout: tuple  # (name, value), as the file says it
    options: tuple
    loss: str
    ranks: int
    mesh: str  # "" where the script's own is found out
    data_axes: str
    script: str
    arguments: tuple
    variables: tuple
    together: tuple  # other packages that are installed with it
    over: tuple  # (name, what pip is to install), in the order in which they stand behind it
    steps: int
    installed: bool = False  # the version is what the Python has
    environment: str = ""  # environment.py: the Python with its packages, and lockstep

    @property
    def wanted(self):
        """What is to be installed."""
        return INSTALLED if self.installed else self.version

    def words(self, things):
        return " ".join("%s=%s" % (name, text(value)) for name, value in things)

    @property
    def layout_words(self):
        return self.words(self.layout)

    @property
    def options_words(self):
        return self.words(self.options)

    def title(self):
        over = " ".join(("over", *(name for name, _ in self.over))) if self.over else ""
        return " ".join(filter(None, [self.experiment, self.package, self.version, over, self.layout_words, self.options_words, self.loss]))

    def key(self):
        """Of all that is known to matter: with the bytes of the script, and of the Python modules that lie beside it."""
        beside = sorted(path for path in pathlib.Path(self.script).parent.glob("*.py") if path.is_file())
        files = {path.name: digest(path) for path in [pathlib.Path(self.script), *beside]}
        return hashlib.sha256(json.dumps([dict(asdict(self), script=os.path.basename(self.script)), files], sort_keys=True).encode()).hexdigest()[:16]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(path):
    """The experiments of the file; raises PlanError."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise PlanError("%s: %s" % (path, error.strerror)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError("%s: it is no TOML: %s" % (path, error)) from error
    experiments, layers = content.pop("experiment", None), content.pop("layers", {})
    if content:
        raise PlanError("%s: there is no key \"%s\"%s" % (path, min(content), nearest(min(content), ["experiment", "layers"])))
    check_layers(path, layers)
    if not isinstance(experiments, list) or not all(isinstance(one, dict) for one in experiments):
        raise PlanError("%s: expected [[experiment]], once for each script" % path)
    names = [one.get("name") for one in experiments]
    for name in names:
        if name is not None and names.count(name) > 1:
            raise PlanError("%s: several experiments have the name %s" % (path, shown(name)))
    return [Experiment(path, number, one, layers) for number, one in enumerate(experiments, 1)]


def check_layers(path, layers):
    if not isinstance(layers, dict):
        raise PlanError("%s: layers is %s: expected a table, as torch24 = [\"torch==2.4.1\"]" % (path, shown(layers)))
    for name, wanted in layers.items():
        if not Experiment.is_list(wanted, str) or not all(re.match(WORD, one) for one in wanted):
            raise PlanError("%s: layers.%s is %s: expected a list of packages, such as \"torch==2.4.1\"" % (path, name, shown(wanted)))


class Experiment:
    def __init__(self, path, number, given, layers):
        self.name = given.get("name")
        self.where = "%s, experiment %s" % (path, number if self.name is None else shown(self.name))
        for key in given:
            if key not in KEYS:
                self.fail("there is no key \"%s\"%s" % (key, nearest(key, KEYS)))
        if self.name is None:
            self.fail("name is missing: letters, digits, and . _ - between them")
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9._-]+", self.name):
            self.fail("name is %s: expected letters, digits, and . _ - between them" % shown(self.name))
        self.package = self.one(given, "package", str, "the name of a package")
        if not re.fullmatch(WORD, self.package):
            self.fail("package is %s: expected the name of a package" % shown(self.package))
        self.script = os.path.join(os.path.dirname(os.path.abspath(path)), self.one(given, "script", str, "the path of a script"))
        if not os.path.isfile(self.script):
            self.fail("%s: there is no such script" % self.script)
        self.versions = given.get("versions", [INSTALLED])
        if not isinstance(self.versions, str) and not self.is_list(self.versions, str):
            self.fail("versions is %s: expected a list of versions, or \"FIRST..LAST\"" % shown(self.versions))
        for version in self.versions if isinstance(self.versions, list) else ():
            if not re.fullmatch(WORD, version):
                self.fail("versions: %s is no version: expected such as \"0.19.8\"" % shown(version))
        if isinstance(self.versions, str) and not re.fullmatch(r"[^.][^ ]*\.\.[^. ][^ ]*", self.versions):
            self.fail("versions is %s: expected \"FIRST..LAST\", such as \"0.12.0..0.19.8\", or a list" % shown(self.versions))
        self.arguments = self.several(given, "arguments", str, [])
        self.losses = [OLD_LOSSES.get(loss, loss) for loss in self.several(given, "losses", str, ["local_mean"])]
        for loss in self.losses:
            if loss not in LOSSES:
                self.fail("there is no loss %s: expected %s%s" % (shown(loss), ", ".join(LOSSES), nearest(loss, LOSSES)))
        self.layouts = self.several(given, "layouts", dict, None)
        options = given.get("options", {})
        self.options = [options] if isinstance(options, dict) else self.several(given, "options", dict, None)
        for table in self.options:
            for name, values in table.items():
                if not self.is_list(values, (str, int, float)):
                    self.fail("options.%s is %s: expected a list of values" % (name, shown(values)))
                if name in TAKEN or name == "ranks" or any(name in layout for layout in self.layouts):
                    self.fail("options.%s: the name is taken already: %s" % (name, "there is a value %s in each combination" % name
                                                                           if name in (*TAKEN, "ranks") else "a layout has it"))
        self.variables = given.get("variables", {})
        if not isinstance(self.variables, dict) or not all(isinstance(value, str) for value in self.variables.values()):
            self.fail("variables is %s: expected texts by name" % shown(self.variables))
        self.together = tuple(self.several(given, "with", str, []))
        over = self.several(given, "over", str, [])
        for name in over:
            if name not in layers:
                self.fail("over: there is no layer %s: the table layers names them%s" % (shown(name), nearest(name, list(layers))))
        self.over = tuple((name, tuple(layers[name])) for name in over)
        self.steps = given.get("steps", 1)
        if not isinstance(self.steps, int) or isinstance(self.steps, bool) or not 1 <= self.steps <= 1000:
            self.fail("steps is %s: expected a number from 1 to 1000" % shown(self.steps))

    def fail(self, sentence):
        raise PlanError("%s: %s" % (self.where, sentence))

    @staticmethod
    def is_list(value, kind):
        return isinstance(value, list) and bool(value) and all(isinstance(one, kind) for one in value)

    def one(self, given, key, kind, words):
        value = given.get(key)
        if not isinstance(value, kind) or not value:
            self.fail("%s is %s: expected %s" % (key, shown(value), words))
        return value

    def several(self, given, key, kind, otherwise):
        value = given.get(key, otherwise)
        if value != otherwise and not self.is_list(value, kind) or value is None:
            self.fail("%s is %s: expected a list of %s" % (key, shown(value), "tables" if kind is dict else "texts"))
        return value

    def layout(self, layout):
        """(ranks, mesh, data axes)."""
        sizes = {name: size for name, size in layout.items() if name != "data_axes"}
        for name, size in sizes.items():
            if name in TAKEN:
                self.fail("layouts: the name %s is taken already: there is a value %s in each combination" % (name, name))
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                self.fail("layouts: %s is %s: expected a number of ranks" % (name, shown(size)))
        data_axes = layout.get("data_axes", "")
        if not isinstance(data_axes, str):
            self.fail("layouts: data_axes is %s: expected names of axes, such as \"dp,cp\"" % shown(data_axes))
        if not sizes:
            self.fail("a layout has neither ranks nor axes: expected {ranks = 4} or {dp = 2, sp = 2}")
        if "ranks" in sizes:
            return sizes["ranks"], "", data_axes
        return math.prod(sizes.values()), ",".join("%s=%d" % one for one in sizes.items()), data_axes

    def filled(self, template, values):
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
        except ValueError as error:
            self.fail("the argument %s: %s" % (shown(template), error))
        for name in names:
            if name not in values:
                self.fail("the argument %s: there is no value %s%s" % (shown(template), shown(name), nearest(name, values)))
        try:
            return template.format(**values)
        except (ValueError, LookupError, AttributeError):
            return self.fail("the argument %s: expected {name}, as in ranks={ranks}" % shown(template))

    def combinations(self, versions, had=None):
        """Of these versions, each combination once: the last version goes fastest, so that it can be seen what changed with it. `had`: environment.Had."""
        found = []
        for layout in self.layouts:
            ranks, mesh, data_axes = self.layout(layout)
            for table in self.options:
                for chosen in itertools.product(*([(name, value) for value in values] for name, values in table.items())):
                    for loss, version in itertools.product(self.losses, versions):
                        installed = version == INSTALLED
                        version = had.version(self.package) if installed and had else version
                        values = {name: text(value) for name, value in (*layout.items(), *chosen)}
                        values.update(ranks=str(ranks), loss=loss, version=version)
                        arguments = [self.filled(one, values) for one in self.arguments]
                        found.append(Combination(
                            self.name, self.package, version, tuple(layout.items()), chosen, loss, ranks, mesh, data_axes, self.script,
                            tuple(filter(None, arguments)), tuple(self.variables.items()), self.together, self.over, self.steps, installed, had.digest if had else ""))
        return list(dict.fromkeys(found))
