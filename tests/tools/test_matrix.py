# SPDX-License-Identifier: Apache-2.0
"""lockstep matrix and lockstep bisect (docs/matrix.md), with a package of two releases that lie in a folder, and an extraction that says what its release does."""

import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LOCKSTEP_BINARY")
sys.path.insert(0, str(ROOT / "python"))

from lockstep.matrix import bisecting, environment, plan, releases, results, running, table

pytestmark = pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BINARY does not name the program")

# In the place of `lockstep extract`, which needs torch: what two ranks of the release would do. `check` is the program's own.
PROGRAM = '''#!{python}
import json, os, sys
words = sys.argv[1:]
if words[0] != "extract":
    os.execv("{binary}", ["lockstep", *words])
import averaging
if not os.path.exists(words[words.index("--python") + 1]):  # from the folder where scripts run
    sys.exit("error: no such Python")
if averaging.BROKEN:
    sys.exit("lockstep extract: rank 0 ended with\\n  RuntimeError: no such thing\\n  train.py:3 in main\\n      raise")
with open(os.environ["COUNT"], "a") as file:
    file.write("1\\n")
events = [{{"event": "parameter", "id": 0, "name": "w", "aliases": [], "shape": [2], "dtype": "float32", "frozen": False, "placed": [], "pieces": [{{"range": [0, 2]}}]}},
          {{"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "range": [0, 2], "source": 0, "elements": 2}},
          {{"event": "collective", "step": 0, "op": "all_reduce", "group": {{"axes": ["dp"]}}, "elements": 2, "dtype": "float32", "reduce": "sum", "async": False,
            "call": "averaging.py:%d in reduce" % averaging.LINE, "parameters": [0], "input": [[0, 2, [["1", 0, 0]]]], "output": {{"source": 1, "elements": 2}}}},
          {{"event": "result", "step": 0, "parameter": 0, "piece": 0, "content": [[0, 2, [[averaging.FACTOR, 1, 0]]]]}},
          {{"event": "step", "step": 0, "micro_batches": 1, "tokens": None, "waiting": []}}, {{"event": "end", "steps": 1}}]
json.dump({{"lockstep_extract": 1, "versions": {{}}, "command": [], "adapter": "plain", "world": 2, "mesh": {{"axes": ["dp"], "sizes": [2]}}, "data_axes": ["dp"],
           "loss": words[words.index("--loss") + 1], "programs": [{{"ranks": [[0, 2]], "played": [0, 1], "events": events}}]}}, open(words[words.index("-o") + 1], "w"))
'''
# By version: what a sum over two ranks is multiplied by, the line of the call, and whether it cannot run.
RELEASES = {"1.0": ("1/2", 7, False), "1.1": ("1/2", 9, False), "1.2": ("1/2", 9, True), "1.10": ("1/4", 9, False), "2.0": ("1/4", 12, False)}
TOML = '''
[[experiment]]
name = "averaged"
package = "averaging"
versions = "1.0..2.0"
script = "train.py"
arguments = ["--kind", "{kind}"]
layouts = [{ranks = 2}]
options = {kind = ["a"]}
'''
BISECTED = """averaging changes between 1.1 (match), which says what 1.0 does, and 1.10 (mismatch).
Between them none can run: 1.2.

formulas
  - w: (g0+g1)/2
  + w: (g0+g1)/4 (wrong, right is (g0+g1)/2)

calls that carry gradients: the same

stepped over:
  1.2: rank 0 ended with RuntimeError: no such thing

4 of 5 versions were run.
"""


def source(factor, line, broken):
    return 'FACTOR, LINE, BROKEN = "%s", %d, %s\n' % (factor, line, broken)


def wheel(folder, version, content):
    with zipfile.ZipFile(folder / ("averaging-%s-py3-none-any.whl" % version), "w") as file:
        about = "averaging-%s.dist-info/" % version
        file.writestr("averaging.py", content)
        file.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: averaging\nVersion: %s\n" % version)
        file.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(about + "RECORD", "averaging.py,,\n")


@pytest.fixture(name="run")
def run_of(tmp_path, request):
    for version, about in RELEASES.items():
        wheel(tmp_path, version, source(*about))
        if version != request.param:  # that is installed; one suffices to see that
            there = tmp_path / "releases" / ("averaging-%s-py%d.%d" % (version, *sys.version_info[:2]))
            there.mkdir(parents=True)
            (there / "averaging.py").write_text(source(*about))
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable, binary=os.path.abspath(BINARY)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "plan.toml").write_text(TOML)
    (tmp_path / "listed.toml").write_text(TOML.replace('"1.0..2.0"', str(list(RELEASES))))

    def run(*words):
        (tmp_path / "count").write_text("")
        environment = dict(os.environ, LOCKSTEP_BINARY=str(program), LOCKSTEP_PYTHON=sys.executable, COUNT=str(tmp_path / "count"), PIP_NO_INDEX="1",
                           PIP_FIND_LINKS=str(tmp_path), PIP_CONFIG_FILE=os.devnull, XDG_CACHE_HOME=str(tmp_path / "cache"))
        return subprocess.run([BINARY, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.mark.parametrize("run", ["2.0"], indirect=True)
def test_a_matrix_goes_on_where_it_was_ended_and_says_what_each_release_does(run, tmp_path):
    done = run("matrix", "plan.toml", "--releases", "releases", "-q", "--jobs", "2")
    assert (done.returncode, done.stderr) == (1, "")
    *lines, counts = done.stdout.splitlines()
    assert lines == [
        "experiment  versions             layout   options  loss        verdict   formula    right is   where",
        "averaged    averaging 1.0, 1.1   ranks=2  kind=a   local_mean  match     (g0+g1)/2  (g0+g1)/2",
        "averaged    averaging 1.2        ranks=2  kind=a   local_mean  error                           rank 0 ended with RuntimeError: no such thing",
        "averaged    averaging 1.10, 2.0  ranks=2  kind=a   local_mean  mismatch  (g0+g1)/4  (g0+g1)/2  every contribution came with 1/4 where 1/2 was expected:"
        " uniform factor 1/2, invisible to Adam; all_reduce sum at averaging.py:12 in reduce",
        ""]
    assert counts.startswith("5 combinations of 5 versions: 2 match, 2 mismatch, 1 error; ")
    assert (tmp_path / "count").read_text().count("1") == 4
    again = run("matrix", "listed.toml", "--results", "plan.results", "--releases", "releases", "--only", "averaging 1.1 ", "-f", "json")
    assert (again.returncode, again.stderr) == (0, "lockstep matrix: 1 of 1 combinations are there\n")
    (only,) = json.loads(again.stdout)["results"]
    assert only["version"] == "1.1" and only["calls"] == ["all_reduce sum at averaging.py:9 in reduce"] and (tmp_path / "count").read_text() == ""
    (kept,) = (tmp_path / "plan.results").glob("averaged-averaging-1.1-*.json")
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "again": True}))  # it took too long
    run("matrix", "listed.toml", "--results", "plan.results", "--releases", "releases", "--only", "averaging 1.1 ", "-q")
    assert (tmp_path / "count").read_text().count("1") == 1
    (kept,) = (tmp_path / "plan.results").glob("averaged-averaging-1.1-*.json")
    kept.unlink()
    part = run("matrix", "listed.toml", "--results", "plan.results", "--written", "--only", "averaging 1.0 ", "--only", "kind=a", "-q")
    assert (part.returncode, part.stdout.splitlines()[-1].split(";")[0]) == (0, "1 combinations of 1 versions: 1 match")
    part = run("matrix", "listed.toml", "--results", "plan.results", "--written", "--only", "averaging 1.1 ", "-q")
    assert (part.returncode, part.stdout) == (1, "none of 1 combinations was run\n")
    (tmp_path / "beside.py").write_text("")  # which the script may import
    none = run("matrix", "listed.toml", "--results", "plan.results", "--written", "-q")
    assert (none.returncode, none.stdout) == (1, "none of 5 combinations was run\n")
    run("matrix", "listed.toml", "--results", "none.results", "--written", "-q")
    assert not (tmp_path / "none.results").exists()
    (tmp_path / "beside.py").unlink()
    page = run("matrix", "listed.toml", "--results", "plan.results", "--releases", "releases", "--written", "-q", "-f", "markdown", "-o", "page.md")
    assert page.returncode == 1 and "| averaged | averaging 1.10, 2.0 |" in (tmp_path / "page.md").read_text()
    (tmp_path / "python").symlink_to(sys.executable)
    linked = run("matrix", "listed.toml", "--results", "linked.results", "--releases", "releases", "--only", "averaging 1.1 ", "-q", "--python", "./python")
    assert (linked.returncode, linked.stderr) == (0, ""), linked.stdout


@pytest.mark.parametrize("run", [None], indirect=True)
def test_a_bisection_finds_the_first_release_that_differs_and_steps_over_what_cannot_run(run, tmp_path):
    done = run("bisect", "averaging", "1.0", "2.0", "--ranks", "2", "--releases", "releases", "-q", "--", "train.py")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == BISECTED
    done = run("bisect", "--ranks", "2", "a/b", "1.0", "2.0", "--", "train.py")
    assert (done.returncode, done.stderr) == (2, "lockstep bisect: a/b is no name of a package\n")


def bisected(versions, kept=RELEASES):
    """(places, text) of a bisection of these versions, without running them."""
    def run(version):
        factor, line, broken = kept[version]
        if isinstance(broken, dict):
            return broken
        if broken:
            return {"outcome": "error", "why": ["no such thing"]}
        return {"outcome": "match" if factor == "1/2" else "mismatch", "calls": ["all_reduce sum at averaging.py:%d in reduce" % line],
                "formulas": [{"formula": factor, "expected": "1/2", "verdict": "right" if factor == "1/2" else "wrong", "parameters": ["w"]}]}
    bisection = bisecting.Bisection(versions, run, lambda line: None)
    places = bisection.search()
    return places, bisecting.text_of(bisection, "averaging", places)


def test_equal_ends_are_said_to_be_equal():
    assert bisected(["1.0", "1.1"]) == (None, "averaging 1.0 and 1.1 say the same: match. What lies between them was not looked at.\n  w: 1/2\n\n2 of 2 versions were run.\n")


def said_of(outcome, formula, *why):
    return 0, 0, {"outcome": outcome, "calls": [], "why": list(why), "formulas": [{"formula": formula, "expected": "1/2", "verdict": "right", "parameters": ["w"]}]}


def test_a_match_and_a_mismatch_are_not_the_same_though_their_formulas_are():
    places, text = bisected(["1", "2"], {"1": said_of("match", "1/2"), "2": said_of("mismatch", "1/2", "rank 1 calls one more all_reduce at a.py:3 in f")})
    assert places == (0, 1) and text.startswith("averaging changes between 1 (match), which says what 1 does, and 2 (mismatch).\nThey are neighbours.\n")
    assert "\n  + rank 1 calls one more all_reduce at a.py:3 in f\n" in text
    assert bisected(["1", "2"], {"1": said_of("match", "1/2"), "2": said_of("mismatch", "1/2")})[0] == (0, 1)
    places, _ = bisected(["1", "2"], {"1": said_of("undecided", "?", "a"), "2": said_of("undecided", "?", "b")})
    assert places == (0, 1)


def test_two_of_which_nothing_is_known_are_not_said_to_be_the_same():
    kept = {version: said_of("undecided", "?", "a hook at a.py:%s in f" % version) for version in "12"}
    bisection = bisecting.Bisection(["1", "2"], lambda version: kept[version][2], lambda line: None)
    assert bisection.search() is None and not bisection.are_the_same(None)
    assert bisecting.text_of(bisection, "averaging", None).startswith(
        "averaging 1 and 2 are undecided for the same reasons: whether they do the same is not known.\n")


def test_what_came_and_went_before_is_not_said_to_be_the_first():
    kept = {version: ("1/2" if right else "1/4", 1, False) for version, right in zip("12345", (True, False, True, True, False))}
    places, text = bisected("12345", kept)
    assert places == (3, 4) and "1 others were not looked at: it may change there as well." in text


def kept_as(version, names, why=()):
    formulas = [{"formula": "1/4", "expected": "1/2", "verdict": "wrong", "parameters": list(names)}] if names else []
    return {"experiment": "a", "package": "p", "version": version, "layout": {}, "options": {}, "loss": "sum", "outcome": "mismatch" if names else "error",
            "formulas": formulas, "why": list(why), "calls": [], "seconds": 1, "blame": []}


def test_a_row_names_each_version_and_has_those_alone_that_say_the_same():
    found = [kept_as("1.0", "v"), kept_as("1.2", "v"), kept_as("1.3", "w"), kept_as("1.4", "", ["first kind"]), kept_as("1.5", "", ["second kind at a.py:3"]),
             kept_as("1.6", "", ["second kind at a.py:4"])]
    assert [row[1] for row in table.rows(found)] == ["p 1.0, 1.2", "p 1.3", "p 1.4", "p 1.5, 1.6"]
    found = [kept_as("1.0", "v"), *({**kept_as(version, "v"), "over": ["old", "libraries"]} for version in ("1.1", "1.2"))]
    assert [row[1] for row in table.rows(found)] == ["p 1.0", "p 1.1, 1.2 over old, libraries"]


def test_folders_of_this_machine_are_in_no_sentence():
    assert results.shortened("no name 'log' from 'a.b' (/opt/x/lib/python3.11/site-packages/a/b.py) in /r/a-1/a/c.py:3", ["/r/a-1"]) == "no name 'log' from 'a.b' (a/b.py) in a/c.py:3"


def test_what_a_rank_wrote_last_is_what_it_ended_with():
    err = "lockstep extract: rank 0 ended with exit status 1; the last lines that it wrote are\n  from a import b\n  ImportError: there is no b\n"
    assert running.reason(err) == "rank 0 ended with exit status 1; the last line that it wrote is ImportError: there is no b"
    assert running.reason("lockstep extract: rank 0 ended with\n  TypeError: x\n  a.py:3 in f\n") == "rank 0 ended with TypeError: x"


LAYERS = '''
[layers]
{}
[[experiment]]
name = "a"
package = "p"
versions = ["1.0"]
script = "train.py"
layouts = [{{ranks = 2}}]
over = {}
'''


def layered(folder, layers, over):
    (folder / "train.py").write_text("")
    (folder / "plan.toml").write_text(LAYERS.format(layers, over))
    (experiment,) = plan.read(folder / "plan.toml")
    return experiment.combinations(experiment.versions)


def test_what_a_release_stands_before_is_looked_through_behind_it_in_the_order_of_the_file(tmp_path, monkeypatch):
    (one,) = layered(tmp_path, "old = ['q==2.0']\nlibraries = ['r==1', 's<2']", "['libraries', 'old']")
    (other,) = layered(tmp_path, "old = ['q==2.1']\nlibraries = ['r==1', 's<2']", "['libraries', 'old']")
    assert one.title() == "a p 1.0 over libraries old ranks=2 local_mean" and one.key() != other.key()
    installed = []

    def pip(python, words, package=""):
        part = words[words.index("--target") + 1]
        wanted = words[words.index(":all:") + 1:]
        installed.append(wanted)
        (Path(part) / "what").write_text(" ".join(wanted))
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(releases, "pip", pip)
    there = releases.Releases(tmp_path / "releases")
    folders = there.folders(one)
    assert [(Path(folder) / "what").read_text() for folder in folders] == ["p==1.0", "r==1 s<2", "q==2.0"]
    assert folders[2] == there.get("q", "2.0")  # the same folder as that of the release by itself
    assert there.folders(one) == folders and len(installed) == 3
    environments = []
    monkeypatch.setattr(running, "run", lambda words, environment, folder, limit: environments.append(environment) or (2, "", "lockstep extract: " + folders[1] + "/r.py"))
    monkeypatch.setattr(running, "program", lambda: "true")
    monkeypatch.setenv("PYTHONPATH", "/own")
    found = running.result(one, there, 20)
    assert environments[0]["PYTHONPATH"].split(os.pathsep) == [*folders, "/own"]
    assert (found["why"], found["over"]) == (["r.py"], ["libraries", "old"])


def test_a_layer_that_cannot_be_had_is_why_a_release_is_not_installed(tmp_path, monkeypatch):
    (one,) = layered(tmp_path, "old = ['q==2.0']", "['old']")
    failed = {"q==2.0": 1}
    monkeypatch.setattr(releases, "pip", lambda python, words, package="": subprocess.CompletedProcess(words, failed.get(words[-1], 0), "", "ERROR: no q 2.0\n"))
    found = running.result(one, releases.Releases(tmp_path / "releases"), 20)
    assert (found["outcome"], found["why"]) == ("not installed", ["no q 2.0"])


@pytest.mark.parametrize("layers, over, said", [
    ("old = ['q==2.0']", "['odl']", ", experiment 'a': over: there is no layer 'odl': the table layers names them (did you mean \"old\"?)"),
    ("old = 'q==2.0'", "['old']", ": layers.old is 'q==2.0': expected a list of packages, such as \"torch==2.4.1\""),
    ("old = ['-r x']", "['old']", ": layers.old is ['-r x']: expected a list of packages, such as \"torch==2.4.1\""),
    ("old = ['q==2.0']", "'old'", ", experiment 'a': over is 'old': expected a list of texts"),
])
def test_a_mistake_in_layers_is_a_sentence(tmp_path, layers, over, said):
    with pytest.raises(plan.PlanError) as error:
        layered(tmp_path, layers, over)
    assert str(error.value) == "%s%s" % (tmp_path / "plan.toml", said)


def test_a_step_at_fault_is_named():
    assert table.where({**kept_as("1.0", "v"), "blame": [{"step": "all_reduce", "why": "sums twice"}]}) == "all_reduce: it sums twice"


def test_what_an_extraction_did_not_end_in_time_is_run_again(monkeypatch, tmp_path):
    err = "lockstep extract: rank 1 did not end within 20 s; it was at\n  train.py:3 in main\n"
    monkeypatch.setattr(running, "run", lambda words, environment, folder, limit: (2, "", err))
    monkeypatch.setattr(running, "program", lambda: "true")
    (one,) = combinations_of(tmp_path, {"options": None, "arguments": None})
    found = running.result(one, releases.Releases(tmp_path), 20)
    assert (found["outcome"], found["why"], found["again"]) == ("error", ["rank 1 did not end within 20 s; it was at train.py:3 in main"], True)


def combinations_of(folder, changed, had=None):
    (folder / "train.py").write_text("")
    path = folder / "plan.toml"
    path.write_text("[[experiment]]\n" + "".join("%s = %s\n" % one for one in {**GOOD, **changed}.items() if one[1]))
    (experiment,) = plan.read(path)
    return experiment.combinations(experiment.versions, had)


def test_installed_is_the_version_that_the_python_has_and_another_environment_another_result(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "lockstep", lambda: ["a"])
    had = environment.Had(sys.executable)
    (one,) = combinations_of(tmp_path, {"package": "'Pytest'", "options": None, "arguments": "['{version}']"}, had)
    assert (one.version, one.arguments, one.wanted) == (pytest.__version__, (pytest.__version__,), "installed")
    keys = [one.key()]
    monkeypatch.setattr(environment, "lockstep", lambda: ["b"])
    (other,) = combinations_of(tmp_path, {"package": "'Pytest'", "options": None, "arguments": "['{version}']"}, environment.Had(sys.executable))
    keys.append(other.key())
    (tmp_path / "beside.py").write_text("")
    keys.append(other.key())
    assert len(set(keys)) == 3


def test_what_is_given_twice_is_run_once_and_an_older_name_of_a_loss_is_read(tmp_path):
    found = combinations_of(tmp_path, {"layouts": "[{dp = 2}, {dp = 2}]", "versions": "['1.0', '1.0']", "options": None, "arguments": None, "losses": "['mean', 'local_mean']"})
    assert [one.loss for one in found] == ["local_mean"]


def test_an_end_that_cannot_run_is_an_error():
    with pytest.raises(ValueError) as error:
        bisected(["1.2", "2.0"])
    assert str(error.value) == "1.2 cannot run: no such thing"


@pytest.mark.parametrize("first", range(1, 9))
def test_a_bisection_finds_each_place(first):
    versions = list(map(str, range(9)))
    places, _ = bisected(versions, {version: ("1/2" if int(version) < first else "1/4", 1, False) for version in versions})
    assert places == (first - 1, first)


@pytest.mark.parametrize("first, last, said", [("1.0", "3.0", "there is no averaging 3.0: pip knows 1.0 to 2.0"),
                                               ("2.0", "1.1", "averaging 2.0 is newer than 1.1: the older one goes first")])
def test_ends_that_there_are_not_are_said(monkeypatch, first, last, said):
    monkeypatch.setattr(releases, "listed", lambda package, python: list(RELEASES))
    with pytest.raises(releases.Unavailable) as error:
        releases.between("averaging", first, last, "python3")
    assert str(error.value) == said


GOOD = {"name": '"a"', "package": '"p"', "script": '"train.py"', "layouts": "[{dp = 2, sp = 2, data_axes = 'dp'}]", "options": "{stage = [1, 2]}", "arguments": "['{stage}']"}


@pytest.mark.parametrize("changed, said", [
    ({"name": "'a b'"}, "experiment 'a b': name is 'a b': expected letters, digits, and . _ - between them"),
    ({"name": None}, "experiment 1: name is missing: letters, digits, and . _ - between them"),
    ({"packages": "'p'"}, "experiment 'a': there is no key \"packages\" (did you mean \"package\"?)"),
    ({"package": "3"}, "experiment 'a': package is 3: expected the name of a package"),
    ({"script": "'other.py'"}, "experiment 'a': FOLDER/other.py: there is no such script"),
    ({"versions": "'1.0'"}, "experiment 'a': versions is '1.0': expected \"FIRST..LAST\", such as \"0.12.0..0.19.8\", or a list"),
    ({"versions": "[]"}, "experiment 'a': versions is []: expected a list of versions, or \"FIRST..LAST\""),
    ({"losses": "['token_means']"}, "experiment 'a': there is no loss 'token_means': expected local_mean, sum, token_mean, token_sum (did you mean \"token_mean\"?)"),
    ({"layouts": None}, "experiment 'a': layouts is None: expected a list of tables"),
    ({"layouts": "[{dp = 0}]"}, "experiment 'a': layouts: dp is 0: expected a number of ranks"),
    ({"layouts": "[{}]"}, "experiment 'a': a layout has neither ranks nor axes: expected {ranks = 4} or {dp = 2, sp = 2}"),
    ({"options": "{stage = 1}"}, "experiment 'a': options.stage is 1: expected a list of values"),
    ({"arguments": "['{stages}']"}, "experiment 'a': the argument '{stages}': there is no value 'stages' (did you mean \"stage\"?)"),
    ({"arguments": "['{ranks!z}']"}, "experiment 'a': the argument '{ranks!z}': expected {name}, as in ranks={ranks}"),
    ({"package": "'-r'"}, "experiment 'a': package is '-r': expected the name of a package"),
    ({"versions": "['../../x']"}, "experiment 'a': versions: '../../x' is no version: expected such as \"0.19.8\""),
    ({"options": "{loss = ['sum', 'mean']}"}, "experiment 'a': options.loss: the name is taken already: there is a value loss in each combination"),
    ({"options": "{dp = [1]}"}, "experiment 'a': options.dp: the name is taken already: a layout has it"),
    ({"layouts": "[{version = 2}]"}, "experiment 'a': layouts: the name version is taken already: there is a value version in each combination"),
    ({"variables": "{A = 1}"}, "experiment 'a': variables is {'A': 1}: expected texts by name"),
    ({"steps": "0"}, "experiment 'a': steps is 0: expected a number from 1 to 1000"),
])
def test_a_mistake_in_the_file_is_a_sentence(tmp_path, changed, said):
    (tmp_path / "train.py").write_text("")
    path = tmp_path / "plan.toml"
    path.write_text("[[experiment]]\n" + "".join("%s = %s\n" % one for one in {**GOOD, **changed}.items() if one[1]))
    with pytest.raises(plan.PlanError) as error:
        for experiment in plan.read(path):
            experiment.combinations(["1.0"])
    assert str(error.value) == "%s, %s" % (path, said.replace("FOLDER", str(tmp_path)))


def test_what_is_ended_with_the_whole_run_leaves_no_result(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "program", lambda: "true")
    monkeypatch.setattr(running, "_ending", threading.Event())
    assert running.run([], {}, tmp_path, 10) == (0, "", "")
    running.end_all()
    with pytest.raises(running.Ended):
        running.run([], {}, tmp_path, 10)


def test_combinations_are_in_the_order_of_the_file_and_versions_go_fastest(tmp_path):
    (tmp_path / "train.py").write_text("")
    path = tmp_path / "plan.toml"
    path.write_text("[[experiment]]\n" + "".join("%s = %s\n" % one for one in GOOD.items()))
    (experiment,) = plan.read(path)
    found = experiment.combinations(["1.0", "2.0"])
    assert [(one.version, one.arguments) for one in found] == [("1.0", ("1",)), ("2.0", ("1",)), ("1.0", ("2",)), ("2.0", ("2",))]
    assert (found[0].ranks, found[0].mesh, found[0].data_axes) == (4, "dp=2,sp=2", "dp") and len({one.key() for one in found}) == 4


def test_versions_are_in_the_order_of_pip(monkeypatch):
    known = "1.0, 1.0rc1, 1.0b1, 1.0a2, 1.0.dev3"
    monkeypatch.setattr(releases, "pip", lambda python, words: subprocess.CompletedProcess(words, 0, "x (1.0)\nAvailable versions: %s\n" % known, ""))
    assert releases.between("x", "1.0.dev3", "1.0", "python3") == ["1.0.dev3", "1.0a2", "1.0b1", "1.0rc1", "1.0"]
