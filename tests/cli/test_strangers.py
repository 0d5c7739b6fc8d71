# SPDX-License-Identifier: Apache-2.0
"""Scenarios of strangers, as a pull request brings them: what they may read, and what their names may do to who reads on."""

import json
import os
import re
import shutil
from fractions import Fraction

import captured_run
import pytest

from conftest import RIGHT

SECRET = "hunter2"
FORMATS = ["text", "json", "concise", "junit", "sarif", "github", "gitlab", "markdown", "html"]
MARKED = """{ "lockstep_framework": 1, "name": "own", "batch": { "loss": "local_mean" },
  "rules": [ { "refuse": "pp > 1 or cp > 1 or sp > 1 or tp > 1", "because": "dp alone" } ], "steps": [
    { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)" } ] },
    { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] }"""
OUTSIDE = "lies outside of the scenario's folder"


def naming(framework=None, preset=None):
    """A scenario that names a file."""
    model = {"preset": preset} if preset else {"parameters": [{"name": "weight", "shape": [8]}]}
    return json.dumps({"lockstep": 1, "layout": {"dp": 2}, "model": model, "batch": {"micro_batches": 1, "tokens": "even"},
                       "schedule": {"framework": framework or "megatron"}, "expect": {"verdict": "match"}})


@pytest.fixture
def repository(tmp_path):
    """A repository with a scenario's folder in it, and what lies around: files with a secret, a pipe, links."""
    folder = tmp_path / "repository" / "scenarios"
    folder.mkdir(parents=True)
    (tmp_path / "credentials").write_text(f"[default]\nsecret = {SECRET}\n")
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "docker.json").write_text(json.dumps({"auths": {"host": {"auth": SECRET}}}))
    (tmp_path / "framework.jsonc").write_text(MARKED)
    git = tmp_path / "repository" / ".git"
    git.mkdir()
    (git / "config").write_text(f"[http]\n\textraheader = {SECRET}\n")
    (tmp_path / "repository" / "own.jsonc").write_text(MARKED)
    (tmp_path / "repository" / ".env").write_text(f"KEY={SECRET}\n")
    os.mkfifo(folder / "pipe.jsonc")
    (folder / "link.jsonc").symlink_to(tmp_path / "credentials")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "itself.jsonc").symlink_to("itself.jsonc")
    (folder / "device.jsonc").symlink_to("/dev/ptmx")
    return tmp_path


REFUSED = {
    "../../credentials": OUTSIDE,
    "../../token.json/../token": OUTSIDE,
    "../../docker.json": OUTSIDE,
    "../../framework.jsonc": OUTSIDE,
    "./link.jsonc": OUTSIDE,
    "./folder/docker.json": OUTSIDE,
    "/etc/hostname": OUTSIDE,
    "../.env": 'is no framework file: it lacks the key "lockstep_framework"',
    "../.git/config": 'lies in ".git", where no scenario may read',
    "./pipe.jsonc": "it is no regular file",
    "./itself.jsonc": "Too many levels of symbolic links",
    "./device.jsonc": "is a file of the system",
    "/dev/ptmx": "is a file of the system",
    "/dev/tty": "is a file of the system",
    "/proc/self/environ": "is a file of the system",
    "/proc/kmsg": "is a file of the system",
    "/sys/kernel/profiling": "is a file of the system",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_scenario_names_files_of_its_folder_and_repository_alone(run, repository, name):
    path = repository / "repository" / "scenarios" / "x.json"
    for text in (naming(framework=name), naming(preset=name)):
        path.write_text(text)
        done = run("check", str(path))
        said = done.stdout + done.stderr
        assert done.returncode == 2 and SECRET not in said
        assert REFUSED[name].replace("framework", "model" if "preset" in text else "framework") in said, said


@pytest.mark.parametrize("format", FORMATS)
def test_no_report_has_lines_of_a_file_that_is_no_framework(run, repository, format):
    folder = repository / "repository" / "scenarios"
    for number, name in enumerate(["../../credentials", "../../docker.json", "../.env", "../.git/config", "./link.jsonc"]):
        (folder / f"x{number}.json").write_text(naming(framework=name))
        (folder / f"y{number}.json").write_text(naming(preset=name))
    (folder / "stranger.json").symlink_to(repository / "credentials")
    (folder / "token.json").symlink_to(repository / "token")
    done = run("check", "-f", format, "--report", f"{format}=report", "--timeline", str(folder))
    assert done.returncode == 2
    for text in (done.stdout, done.stderr, (repository / "report").read_text()):
        assert SECRET not in text and "extraheader" not in text and "[default]" not in text


COMMANDS = ["check", "test", "explain", "repair", "mutate", "prove", "placements", "show", "list", "report", "diff"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_a_stranger_s_scenario_so_and_knows_include(run, repository, command):
    path = repository / "repository" / "scenarios" / "x.json"
    arguments = [str(path)] + ([str(path), "--this-layout"] if command == "diff" else [])
    path.write_text(naming(framework="../../credentials"))
    done = run(command, *arguments)
    assert done.returncode == 2 and OUTSIDE in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
    # Even where it is allowed to be read.
    done = run(command, "--include", ".", *arguments)
    assert done.returncode == 2 and "it lacks the key" in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
    path.write_text(naming(framework="../../framework.jsonc"))
    assert OUTSIDE in run(command, *arguments).stdout + run(command, *arguments).stderr
    done = run(command, "--include", ".", *arguments)
    assert OUTSIDE not in done.stdout + done.stderr
    assert done.returncode in ((2,) if command == "placements" else (0, 1) if command == "mutate" else (0,)), done.stdout + done.stderr


def test_files_below_the_folder_or_the_repository_are_read_also_from_standard_input(run, repository, binary):
    folder = repository / "repository" / "scenarios"
    (folder / "x.json").write_text(naming(framework="../own.jsonc"))
    assert run("check", "-q", str(folder / "x.json")).returncode == 0
    (repository / "framework.jsonc").write_text(MARKED)
    assert run("check", "-q", "-", input=naming(framework="./framework.jsonc")).returncode == 0
    done = run("check", "-", input=naming(framework="/etc/hostname"))
    assert done.returncode == 2 and OUTSIDE in done.stdout
    # Without a repository its own folder is all.
    (folder / "../.git/config").unlink()
    (folder / "../.git").rmdir()
    done = run("check", "-q", str(folder / "x.json"))
    assert done.returncode == 2 and "the scenario's folder; `--include FOLDER`" in done.stderr + run("check", str(folder / "x.json")).stdout


def test_include_takes_folders_that_are_there(run, files):
    done = run("check", "--include", "nowhere", "right.json")
    assert done.returncode == 2 and done.stderr == "error: --include nowhere: there is no such folder\n"


def test_a_mistake_in_an_included_file_shows_the_word_at_fault_alone(run, repository):
    path = repository / "repository" / "scenarios" / "x.json"
    path.write_text(naming(framework="../../framework.jsonc"))
    (repository / "framework.jsonc").write_text(MARKED.replace('"name": "own"', f'"name": "own", "wrong": 1, "let": {{ "x": "{SECRET}" }}'))
    done = run("check", "--include", str(repository), str(path))
    assert done.returncode == 2 and 'unknown key "wrong"' in done.stdout and SECRET + '" }' not in done.stdout
    assert re.search(r'^ +1 \| "wrong":?\n +\| \^~+$', done.stdout, re.M), done.stdout
    path.write_text(naming(framework="../own.jsonc"))
    (repository / "repository" / "own.jsonc").write_text(MARKED.replace('"name": "own"', '"name": "own", "wrong": 1'))
    assert re.search(r'^ +1 \| .*"name": "own", "wrong": 1', run("check", str(path)).stdout, re.M)


def test_a_folder_is_checked_to_its_end_whatever_lies_in_it(run, files):
    (files / "itself.json").symlink_to("itself.json")
    (files / "nothing.json").symlink_to("nowhere.json")
    (files / "log.json").symlink_to("/proc/kmsg")
    (files / "device.json").symlink_to("/dev/ptmx")
    os.mkfifo(files / "pipe.json")
    (files / "piped.json").symlink_to("pipe.json")
    done = run("check", "-q", ".")
    assert done.returncode == 2
    lines = [line.split()[:2] for line in done.stdout.splitlines()]
    assert ["match", "right.json"] in lines and ["mismatch", "wrong.json"] in lines
    assert ["error", "itself.json"] in lines and ["error", "nothing.json"] in lines
    assert not {"log.json", "device.json", "pipe.json", "piped.json"} & {line[1] for line in lines}
    assert "itself.json:1:1: error: cannot read the file: Too many levels of symbolic links" in run("check", "itself.json").stdout
    assert run("check", "-q", "*.json").stdout.count("match") == run("check", "-q", ".").stdout.count("match")


# What a runner takes as a command, what turns a text around, what is not seen.
NAMES = ["::stop-commands::x", " ::error title=x::y", "\u00a0::warning::y", "a##[stop-commands]b", "##vso[task.setvariable variable=x]y", "##teamcity[x]",
         "a\u202eb", "a\u2066b\u2069", "a\u200bb", "a\u200e\u200fb", "a\u2060b", "a\ufeffb", "a\u061cb", "a\u180eb", "a\U000e0041b", "a\u2028b",
         "a\u00adb", "a\ufe0fb", "a\u2800b", "|*_`<b>`", "w"]
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]")


def strange(reduce="avg", names=NAMES):
    """A scenario in which every name and title is a stranger's."""
    # Names of steps may have colons; the others hold whatever is no control character.
    steps = [{"name": "::stop-commands::m", "op": "each", "steps": [{"name": "::error::backward", "op": "backward"}]},
             {"name": "::warning::mean", "op": "all_reduce", "over": "dp", "reduce": reduce}]
    return json.dumps({"lockstep": 1, "name": names[0], "title": "::error::" + "".join(names), "source": "::a/b\u202e#1",
                       "layout": {"dp": 2}, "batch": {"micro_batches": 1, "tokens": "even"},
                       "model": {"parameters": [{"name": name, "shape": [8]} for name in names]}, "schedule": {"steps": steps}})


def acts(text, own=()):
    """The lines that a runner of GitHub or Azure takes as commands, but those of the report itself."""
    lines = [line.lstrip() for line in re.split("[\n\r]", text)]
    found = [line for line in lines if line.startswith("::") and not line.startswith(tuple(own))]
    return found + [line for line in lines if re.search(r"##[a-zA-Z]*\[", line)]


CALLS = [["check", "-f", format] for format in FORMATS] + [["test", "-f", format] for format in FORMATS] + [
    ["check", "-v", "--all"], ["check", "-q"], ["test"], ["explain", "--all"], ["explain", "-f", "json"], ["explain", "-f", "svg"], ["repair"],
    ["repair", "-f", "json"], ["prove", "--proof"], ["prove", "-f", "json", "--proof"], ["show", "-v"], ["show", "-f", "json"], ["show", "--resolved"],
    ["list"], ["list", "-f", "markdown"], ["list", "-f", "json"], ["list", "--corpus"], ["list", "--corpus", "-f", "markdown"], ["report"],
    ["diff"], ["diff", "-f", "json"], ["mutate", "-v"], ["mutate", "-f", "json"], ["placements"],
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("reduce", ["avg", "sum"])
def test_no_text_of_a_stranger_acts_or_hides_in_any_output(run, tmp_path, call, reduce):
    name = "::error\u202e##[x].json"
    (tmp_path / name).write_text(strange(reduce))
    (tmp_path / "other.json").write_text(strange("sum" if reduce == "avg" else "avg"))
    (tmp_path / "broken.json").write_text(strange().replace('"layout"', '"::layout\u202e##[x]": 1, "layout"'))
    for file in ([name] if call[0] != "diff" else [name, "other.json"], ["broken.json"]):
        arguments = [*call, *file] + (["broken.json"] if call[0] == "diff" and len(file) == 1 else [])
        done = run(*arguments)
        assert done.returncode in (0, 1, 2, 4), done.stderr
        assert done.stdout + done.stderr != ""
        own = ("::error file=", "::notice title=lockstep::") if "github" in call else ()
        for text in (done.stdout, done.stderr):
            assert not UNSEEN.search(text), UNSEEN.search(text)
            assert not acts(text, own), acts(text, own)
        if "json" in call and done.stdout:
            json.loads(done.stdout)


def test_names_stay_what_they_are_for_programs(run, tmp_path):
    (tmp_path / "x.json").write_text(strange("sum"))
    report = json.loads(run("check", "-f", "json", "--all", "x.json").stdout)
    assert {parameter["name"] for parameter in report["parameters"]} == set(NAMES), report["verdict"]
    plain = json.loads(run("show", "--resolved", "x.json").stdout)
    assert [parameter["name"] for parameter in plain["model"]["parameters"]] == NAMES and plain["name"] == NAMES[0]
    assert "a\\u200bb" in run("show", "--resolved", "x.json").stdout and "\\udb40\\udc41" in run("show", "--resolved", "x.json").stdout


def test_tables_for_documents_are_escaped_as_those_of_check(run, tmp_path):
    markdown_it = pytest.importorskip("markdown_it")
    title = "a | b <img src=x> [l](http://x) `c` *d* _e_ \u202e"
    file = "n`a|<b>.json"
    (tmp_path / file).write_text(strange(names=["w", "m", "b"]).replace('"::error::wmb"', json.dumps(title)))
    for call in (["list", "-f", "markdown"], ["list", "--corpus", "-f", "markdown"]):
        done = run(*call, file)
        tokens = markdown_it.MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(done.stdout)
        kinds = {inner.type for token in tokens for inner in token.children or []} | {token.type for token in tokens}
        assert not kinds & {"html_inline", "html_block", "link_open", "em_open", "strong_open", "image"}, done.stdout
        rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows[:3]}) == 1


# What GitHub and GitLab make of a text in a page: mentions, links to issues, addresses, pictures, mathematics.
ACTING = ["@torvalds", "@org/team", "https://evil.example/x", "http://evil.example", "www.evil.example", "a@evil.example", "mailto:a@b.c", "GH-12", "gh-3",
          "#12", "torvalds/linux#1", "!34", "~bug", "%v1", "&7", ":smile:", ":+1:", "$x_1$", "&#64;torvalds", "&lt;b&gt;", "$12"]
# They look for it in the texts of the page, and not in code.
REFERENCE = re.compile(r"@\w|://|www\.|mailto:\w|gh-\d|[#!~%&$]\w|:[\w+-]+:|\$", re.I)


@pytest.mark.parametrize("call", [["list"], ["list", "--corpus"], ["check"], ["test"]], ids=" ".join)
def test_no_text_of_a_stranger_mentions_links_or_is_typeset_in_markdown(run, tmp_path, call):
    markdown_it = pytest.importorskip("markdown_it")
    words = " ".join(ACTING)
    files = [f"n {word}.json".replace("/", "-") for word in ("@torvalds", ":smile:", "$x$", "www.evil.example", "#12")]
    for file in files:
        wrong = call[0] in ("check", "test")
        document = json.loads(strange("sum" if wrong else "avg", names=["w", f"{words} |"]))
        document.update(name=f"{words} |", title=words, source=f"@org/{words} #12 @torvalds")
        if call == ["test"]:
            document["expect"] = {"verdict": "match"}
        (tmp_path / file).write_text(json.dumps(document))
    done = run(*call, "-f", "markdown", *files)
    assert done.returncode in (0, 1) and "torvalds" in done.stdout, done.stderr
    page = markdown_it.MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(done.stdout)
    texts = re.split(r"<[^>]*>", re.sub(r"<code>.*?</code>", "", re.sub(r"<span>\$</span>", "", page)))
    texts = [text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&") for text in texts]
    assert not [text for text in texts if REFERENCE.search(text)], [text for text in texts if REFERENCE.search(text)]
    if call[0] == "list":
        # It reads as it was.
        seen = re.sub(r"<[^>]*>", "", page).replace("\u200b", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert words in seen


def test_links_of_the_corpus_are_links_and_one_is_not_many(run, tmp_path):
    document = json.loads(strange("sum", names=["w"]))
    document.update(name="x", title="t", source="org/project#12")
    (tmp_path / "x.json").write_text(json.dumps(document))
    said = run("list", "--corpus", "-f", "markdown", "x.json").stdout
    assert "[#12](https://github.com/org/project/issues/12)" in said
    assert "- 1 mistake from 1 source in 1 project; 0 controls that are right.\n" in said
    assert "- Of the 1 mismatch a comparison of replicas misses" in said and "Of their 1 source it misses" in said


def test_a_colon_that_comes_in_pieces_is_a_command_all_the_same(run, tmp_path):
    # Longer than what is written at once.
    names = [f"w{number}" + "x" * 997 + "\u200b" for number in range(200)] + ["::error::x"]
    (tmp_path / "x.json").write_text(strange("sum", names=["a", "b", "c", *names]))
    done = run("check", "-v", "--all", "x.json")
    assert not acts(done.stdout) and not UNSEEN.search(done.stdout) and "\\::error::x" in done.stdout


WRONG = RIGHT.replace(', "reduce": "avg"', "").replace('"match"', '"mismatch"')
REPLACING = {
    "check": ["check", "x.json", "-o", "x.json"],
    "check through a link": ["check", "x.json", "-o", "link.json"],
    "check --report": ["check", "x.json", "-o", "out", "--report", "sarif=./x.json"],
    "test": ["test", "x.json", "-o", "x.json"],
    "test --report": ["test", "x.json", "--report", "junit=link.json"],
    "report": ["report", "x.json", "-o", "x.json"],
    "explain": ["explain", "x.json", "-o", "x.json"],
    "show": ["show", "x.json", "-o", "link.json"],
    "show --resolved": ["show", "--resolved", "x.json", "-o", "x.json"],
    "list": ["list", ".", "-o", "x.json"],
    "diff": ["diff", "x.json", "own.json", "-o", "own.json"],
    "diff, the old one": ["diff", "x.json", "own.json", "-o", "x.json"],
    "repair": ["repair", "x.json", "-o", "x.json"],
    "repair --to": ["repair", "x.json", "--to", "x.json"],
    "repair --to a link": ["repair", "x.json", "-o", "out", "--to", "link.json"],
    "prove": ["prove", "x.json", "-o", "x.json"],
    "prove --counterexample": ["prove", "x.json", "-o", "out", "--counterexample", "link.json"],
    "mutate": ["mutate", "right.json", "-o", "right.json"],
    "placements": ["placements", "model.json", "-o", "model.json"],
    "import": ["import", "deepspeed", "ds.json", "--world-size", "2", "--model", "gpt2", "-o", "ds.json"],
    "hash": ["hash", "x.npy", "-o", "x.npy"],
    "a framework": ["check", "own.json", "-o", "own.jsonc"],
    "a framework, of show": ["show", "own.json", "-o", "own.jsonc"],
    "a framework, of a report": ["test", "own.json", "-o", "out", "--report", "json=out2", "--report", "html=own.jsonc"],
    "a framework, of a counterexample": ["prove", "own.json", "-o", "out", "--counterexample", "own.jsonc"],
    "a framework, of a repair": ["repair", "own.json", "-o", "out", "--to", "own.jsonc"],
}


@pytest.fixture
def inputs(files):
    (files / "x.json").write_text(WRONG)
    (files / "link.json").symlink_to("x.json")
    (files / "own.jsonc").write_text(MARKED)
    (files / "own.json").write_text(naming(framework="./own.jsonc"))
    (files / "model.json").write_text('{ "lockstep": 1, "layout": { "tp": 2 }, "schedule": { "framework": "megatron" }, "model": { "preset": '
                                      '"gpt2", "layers": 1, "hidden": 16, "heads": 2, "vocab": 32 } }')
    (files / "ds.json").write_text('{ "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 1 } }')
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    header = header.ljust(117) + b"\n"
    (files / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
    return files


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("case", REPLACING)
def test_no_output_replaces_an_input(run, inputs, case):
    before = contents(inputs)
    done = run(*REPLACING[case])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "would replace" in done.stderr and "another name" in done.stderr
    assert contents(inputs) == before and (inputs / "link.json").is_symlink()


def test_standard_input_is_not_replaced_either(run, inputs):
    before = contents(inputs)
    with open(inputs / "x.json", encoding="utf-8") as file:
        done = run("show", "-", "-o", "x.json", stdin=file)
    assert done.returncode == 2 and "would replace it" in done.stderr and contents(inputs) == before


@pytest.mark.parametrize("call", [
    ["prove", "x.json", "-o", "out", "--counterexample", "./out"], ["repair", "x.json", "-o", "out", "--to", "out"],
    ["repair", "x.json", "-o", "x.json.orig", "--write"], ["check", "x.json", "-o", "out", "--report", "json=out"],
], ids=" ".join)
def test_two_outputs_of_a_call_are_two_files(run, inputs, call):
    before = contents(inputs)
    done = run(*call)
    assert done.returncode == 2 and "cannot be written to one file" in done.stderr and contents(inputs) == before


def test_repair_still_changes_the_file_that_it_is_told_to(run, inputs):
    assert run("repair", "--write", "x.json").returncode == 0
    assert (inputs / "x.json.orig").read_text() == WRONG and (inputs / "x.json").read_text() != WRONG


def test_the_summary_of_a_job_is_no_input_and_no_other_output(run, inputs):
    before = contents(inputs)
    for arguments, name in ((["--summary"], "x.json"), (["--summary", "-o", "out"], "out")):
        done = run("check", "x.json", *arguments, env={"GITHUB_STEP_SUMMARY": str(inputs / name)})
        assert done.returncode == 2 and contents(inputs) == before


@pytest.fixture
def captured(repository):
    """A repository with the folder of a captured run, and dumps of the Flight Recorder."""
    folder = repository / "repository" / "run"
    captured_run.simple_run(folder, lambda name, rank, m: Fraction(1, 2))
    traces = repository / "repository" / "traces"
    traces.mkdir()
    return folder


LEADS = ["../.git/config", "../.env", "../../credentials", "/proc/self/environ", "/etc/passwd"]
READERS = [["verify"], ["record"], ["verify", "-f", "json"], ["verify", "-f", "html"], ["verify", "other", "--reference"]]


@pytest.mark.parametrize("call", READERS, ids=" ".join)
@pytest.mark.parametrize("leads", LEADS)
def test_a_link_out_of_the_folder_of_a_run_is_not_followed(run, repository, captured, call, leads):
    if "other" in call:
        shutil.copytree(captured, repository / "other")
    file = captured / "rank-00001.jsonl"
    file.unlink()
    file.symlink_to(leads)
    done = run(*call, str(captured), env={"TOKEN": SECRET})
    said = done.stdout + done.stderr
    assert done.returncode == 2 and f"{file}: it is a link that leads out of the folder of the run" in said, said
    assert SECRET not in said and "extraheader" not in said and "root:" not in said


def test_neither_is_one_in_the_place_of_sums(run, repository, captured):
    for file in captured.glob("*.safetensors"):
        (repository / file.name).write_bytes(file.read_bytes())
        file.unlink()
        file.symlink_to(repository / file.name)
    done = run("verify", str(captured))
    assert done.returncode == 2 and "it is a link that leads out of the folder of the run" in done.stderr


def test_links_within_a_run_and_to_a_run_are_followed(run, repository, captured):
    right = run("verify", str(captured)).stdout
    file = captured / "rank-00001.jsonl"
    file.rename(captured / "one")
    file.symlink_to("one")
    assert run("verify", str(captured)).stdout == right
    (repository / "link").symlink_to(captured)
    assert run("verify", "link").stdout == right.replace(str(captured), "link")


LEADS_OUT = "trace_0.json: it is a link that leads out of its folder"


@pytest.mark.parametrize("leads", [*LEADS, "../../docker.json"])
def test_a_link_out_of_a_folder_of_dumps_is_not_followed(run, repository, captured, leads):
    traces = repository / "repository" / "traces"
    (traces / "trace_0.json").symlink_to(leads)
    for argument in (str(traces), str(traces / "t*.json")):
        done = run("import", "flight-recorder", argument, env={"TOKEN": SECRET})
        assert done.returncode == 2 and (leads.startswith("/proc") or LEADS_OUT in done.stderr), done.stderr
        assert SECRET not in done.stderr and "extraheader" not in done.stderr
    # As a shell names it in place of *.json: nothing is shown of what is no dump.
    if not leads.startswith("/proc"):
        done = run("import", "flight-recorder", str(traces / "trace_0.json"))
        assert done.returncode == 2 and SECRET not in done.stderr and "expected a dump" in done.stderr
    os.mkfifo(traces / "trace_1.json")
    assert run("import", "flight-recorder", str(traces)).returncode == 2


@pytest.mark.parametrize("text", [f"token {SECRET}", f'{{ "auth": "{SECRET}" }}', f'"{SECRET}"', f'{{ "version": "{SECRET}" }}', f'{{ "auth": {SECRET} }}'])
def test_what_is_found_in_a_folder_and_is_no_dump_is_not_quoted(run, repository, captured, text):
    file = repository / "repository" / "traces" / "trace_0.json"
    file.write_text(text)
    done = run("import", "flight-recorder", str(file.parent))
    assert done.returncode == 2 and f"{file}:1:" in done.stderr and "name the file to see what is wrong there" in done.stderr, done.stderr
    assert SECRET not in done.stderr
    assert SECRET in run("import", "flight-recorder", str(file)).stderr
