# SPDX-License-Identifier: Apache-2.0
"""Every report format, read by programs that are not ours: jsonschema, lxml, markdown-it, and for GitHub's workflow
commands a reader of the grammar that GitHub documents. The schemas are in tests/cli/formats."""

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from lxml import etree
from markdown_it import MarkdownIt

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
SCHEMAS = Path(__file__).resolve().parent / "formats"
FORMATS = ["concise", "junit", "sarif", "github", "gitlab", "markdown"]
# One file for each verdict, one that is shown by the parametric engine alone, one whose model is edited.
CORPUS = [
    "megatron/844.json", "megatron/844-fixed-order.json", "accelerate/3533-divided-twice.json", "ddp/norm-of-a-shard.json",
    "trainverify/6-sent-to-the-wrong-rank.json", "megatron/6500-fsdp-raw-shards-of-the-tied-embedding.json",
    "megatron/3670-scaling-races-reduction.json", "deepspeed/8357-compiled-autotp-in-the-model.json",
    "scale/llama3-405b-tied-844.json",
]
# A name with everything that some format gives a meaning to.
STRANGE = """od d,a:b%c|d`e<f>&"g'*_é$.json"""


def schema(name):
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


def sarif_run(text):
    """The run of a SARIF file, valid by its schema and by what the schema cannot say."""
    log = json.loads(text)
    jsonschema.Draft7Validator(schema("sarif.schema.json"), format_checker=jsonschema.FormatChecker()).validate(log)
    run = log["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted({rule["id"] for rule in rules})
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] == region["endLine"] and region["startColumn"] < region["endColumn"]
    return run


def junit_suites(text):
    tree = etree.fromstring(text.encode())
    etree.XMLSchema(etree.parse(str(SCHEMAS / "junit.xsd"))).assertValid(tree)
    for element in [tree, *tree.iter("testsuite")]:
        for attribute, path in (("tests", ".//testcase"), ("failures", ".//failure"), ("errors", ".//error"), ("skipped", ".//skipped")):
            assert attribute not in element.attrib or int(element.get(attribute)) == len(element.findall(path))
    return tree


def gitlab_findings(text):
    findings = json.loads(text)
    jsonschema.Draft7Validator(schema("gitlab.schema.json")).validate(findings)
    fingerprints = [finding["fingerprint"] for finding in findings]
    assert len(set(fingerprints)) == len(fingerprints)
    return findings


def github_commands(text):
    """The workflow commands of a log, as GitHub's runner reads them: at the start of a line, properties between commas."""
    commands = []
    for line in text.split("\n"):
        if not line.startswith("::"):
            continue
        head, message = line[2:].split("::", 1)
        name, _, properties = head.partition(" ")
        values = dict(part.split("=", 1) for part in properties.split(",") if part)
        for key, value in values.items():
            values[key] = value.replace("%2C", ",").replace("%3A", ":").replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
        message = message.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
        commands.append((name, values, message))
    return commands


def concise_findings(text):
    """FILE:LINE:COLUMN: RULE sentence, as editors' problem matchers take it, and the last line."""
    lines = text.splitlines()
    matches = [re.fullmatch(r"(.+?):(\d+):(\d+): (LS\d{3}) (.+)", line) for line in lines[:-1]]
    assert all(matches), text
    return [match.groups() for match in matches], lines[-1]


class Table:
    """The first table of a markdown text, its cells as the reader sees them, and the HTML of all of it."""

    def __init__(self, text):
        reader = MarkdownIt("commonmark", {"html": True}).enable("table")
        self.html = reader.render(text)
        tokens = reader.parse(text)
        self.rows, self.code = [], []
        for token in tokens:
            if token.type == "tr_open":
                self.rows.append([])
            if token.type == "inline" and self.rows and token.level >= 4:
                self.rows[-1].append("".join(child.content for child in token.children))
            if token.type == "inline":
                self.code += [child.content for child in token.children if child.type == "code_inline"]


@pytest.fixture
def reports(run, tmp_path):
    """The report in each format, of one run: reports("check", "wrong.json")."""

    def reports_of(command, *names, status=1):
        for old in (tmp_path / "reports").glob("*"):
            old.unlink()
        (tmp_path / "reports").mkdir(exist_ok=True)
        options = [word for format in FORMATS for word in ("--report", f"{format}=reports/{format}")]
        done = run(command, *names, "-f", "concise", *options)
        assert done.returncode == status, done.stderr
        return {format: (tmp_path / "reports" / format).read_bytes().decode("utf-8") for format in FORMATS}

    return reports_of


def read_all(texts):
    """The files, rules and lines of the findings of reports, by format."""
    found = {}
    found["sarif"] = [
        (unquote(place["artifactLocation"]["uri"]), result["ruleId"], place["region"]["startLine"])
        for result in sarif_run(texts["sarif"])["results"]
        for place in [result["locations"][0]["physicalLocation"]]
    ]
    found["gitlab"] = [
        (one["location"]["path"], one["check_name"], one["location"]["lines"]["begin"]) for one in gitlab_findings(texts["gitlab"])
    ]
    found["github"] = [
        (values["file"], values["title"].split()[0], int(values["line"]))
        for name, values, _ in github_commands(texts["github"]) if name == "error"
    ]
    found["concise"] = [(file, rule, int(line)) for file, line, _, rule, _ in concise_findings(texts["concise"])[0]]
    found["junit"] = []
    for problem in junit_suites(texts["junit"]).iter("failure", "error"):
        place = re.match(rf"{problem.get('type')} (.*?):(\d+): ", problem.text, re.DOTALL)
        found["junit"].append((place[1], problem.get("type"), int(place[2])))
    return found


def test_all_formats_say_the_same_of_every_kind_of_result(reports):
    texts = reports("check", *[str(ROOT / "scenarios" / name) for name in CORPUS])
    found = read_all(texts)

    def strip(path):
        return path.replace("file://", "").removeprefix(str(ROOT) + "/scenarios/")

    expected = [
        ("megatron/844.json", "LS004"), ("accelerate/3533-divided-twice.json", "LS002"), ("ddp/norm-of-a-shard.json", "LS008"),
        ("trainverify/6-sent-to-the-wrong-rank.json", "LS010"),
        ("megatron/6500-fsdp-raw-shards-of-the-tied-embedding.json", "LS011"), ("megatron/3670-scaling-races-reduction.json", "LS012"),
        ("deepspeed/8357-compiled-autotp-in-the-model.json", "LS013"),
        ("scale/llama3-405b-tied-844.json", "LS004"),
    ]
    for format, findings in found.items():
        assert sorted((strip(file), rule) for file, rule, _ in findings) == sorted(expected), format
    assert sorted((strip(file), rule, line) for file, rule, line in found["sarif"]) == sorted(
        (strip(file), rule, line) for file, rule, line in found["concise"])
    rows = Table(texts["markdown"]).rows
    assert [(Path(row[1]).name, row[2]) for row in rows[1:]][:2] == [("844.json", "mismatch"), ("844-fixed-order.json", "match")]
    assert len(rows) == len(CORPUS) + 1


def many(files, number, text):
    for index in range(number):
        (files / "many").mkdir(exist_ok=True)
        (files / "many" / f"{index:02}.json").write_text(text, encoding="utf-8")


def test_a_strange_file_name_comes_back_from_every_format(reports, files):
    (files / STRANGE).write_text((files / "wrong.json").read_text())
    texts = reports("check", "./" + STRANGE)
    found = read_all(texts)
    assert set(found) == {"sarif", "gitlab", "github", "concise", "junit"}
    for format, findings in found.items():
        assert [(file.removeprefix("./"), rule) for file, rule, _ in findings] == [(STRANGE, "LS002")], format
    table = Table(texts["markdown"])
    assert table.rows[1][1].replace("\u200b", "").replace("<span>$</span>", "$") == "./" + STRANGE
    # As code: what is no code may mention and link.
    summary = re.search(r"<summary>(.*?)</summary>", table.html)[1].replace("<code>", "").replace("</code>", "")
    assert summary.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&") == f"./{STRANGE}: mismatch"


def test_bytes_that_are_no_text_break_no_format(reports, files):
    name = os.fsdecode(b"bad\xff\x01\x1b[31m\xef\xbf\xbf\n::error::x.json")
    (files / name).write_text((files / "wrong.json").read_text())
    texts = reports("check", name)
    found = read_all(texts)
    for format in ("gitlab", "concise", "github", "junit"):
        assert [(file, rule) for file, rule, _ in found[format]] == [("bad\ufffd\\u0001\\u001b[31m\ufffd ::error::x.json", "LS002")], format
    assert found["sarif"][0][1] == "LS002"
    assert Table(texts["markdown"]).rows[1][1] == "bad\ufffd\\u0001\\u001b[31m\ufffd ::error::x.json"


def test_strange_names_of_parameters_and_steps_come_back(reports, files):
    parameter, step = "w<&>\"'`|%0A::,*_{}[x](y)#~", "me_an:a/b-c.d"
    text = (files / "wrong.json").read_text()
    text = text.replace('"name": "weight"', '"name": ' + json.dumps(parameter))
    text = text.replace('"name": "backward"', '"name": ' + json.dumps(step)).replace('"name": "mean"', '"name": ' + json.dumps(step + "2"))
    (files / "strange.json").write_text(text)
    texts = reports("check", "strange.json")
    sentence = f"The gradient of {parameter} is wrong on ranks 0, 1: 2 × the right gradient."
    assert sarif_run(texts["sarif"])["results"][0]["message"]["text"].split("\n")[0] == sentence
    assert gitlab_findings(texts["gitlab"])[0]["description"] == sentence
    assert [command[2].split("\n")[0] for command in github_commands(texts["github"])] == [sentence]
    assert concise_findings(texts["concise"])[0][0][4] == sentence
    assert next(junit_suites(texts["junit"]).iter("failure")).get("message") == sentence
    assert f"at fault: {step}" in next(junit_suites(texts["junit"]).iter("failure")).text
    table = Table(texts["markdown"])
    assert table.rows[1][3].startswith("as expected: " + step)
    text = re.sub(r"<[^>]*>", "", table.html).replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert sentence in text.replace("\u200b", "") and "<b>" not in table.html
    assert any(code.startswith(f"at fault: {step}") for code in table.code)


def test_github_is_told_what_it_will_not_show(run, files):
    many(files, 12, (files / "wrong.json").read_text())
    commands = github_commands(run("check", "-f", "github", "many").stdout)
    assert [name for name, _, _ in commands] == ["error"] * 10 + ["notice"]
    assert commands[-1][2].startswith("2 more findings are not shown")
    many(files, 10, (files / "wrong.json").read_text())
    (files / "many" / "10.json").unlink()
    (files / "many" / "11.json").unlink()
    assert [name for name, _, _ in github_commands(run("check", "-f", "github", "many").stdout)] == ["error"] * 10


def test_github_marks_the_columns_of_the_step(run, files):
    (name, values, _), = github_commands(run("check", "-f", "github", "wrong.json").stdout)
    line = (files / "wrong.json").read_text().splitlines()[int(values["line"]) - 1]
    marked = line[int(values["col"]) - 1: int(values["endColumn"])]
    assert name == "error" and marked == '{ "name": "mean", "op": "all_reduce", "over": "dp" }'


def test_what_a_file_expects_is_no_finding_and_is_counted(reports, files):
    (files / "unmet.json").write_text((files / "wrong.json").read_text().replace('"expect": { "verdict": "mismatch"', '"expect": { "verdict": "match"'))
    (files / "without.json").write_text(re.sub(r',\s*"expect": \{[^}]*\}', "", (files / "wrong.json").read_text()))
    names = ["right.json", "wrong.json", "stuck.json", "unmet.json", "without.json", "invalid.json"]
    sentence = "6 files: 1 matches, 5 do not; 2 findings; 2 files expect a mistake; 1 file has no `expect` and is left out"
    texts = reports("test", *names, status=2)
    line = [number for number, text in enumerate((files / "unmet.json").read_text().splitlines(), 1) if '"expect"' in text][0]
    for format, findings in read_all(texts).items():
        assert findings == [("unmet.json", "LS015", line), ("invalid.json", "LS014", 4)], format
    assert concise_findings(texts["concise"])[1] == sentence
    assert texts["github"].splitlines()[-1] == sentence
    assert sentence + "." in Table(texts["markdown"]).html.replace("<code>", "`").replace("</code>", "`")
    run_object = sarif_run(texts["sarif"])
    assert [one["message"]["text"] for one in run_object["invocations"][0]["toolExecutionNotifications"]] == [sentence]
    tree = junit_suites(texts["junit"])
    assert [(one.get("name"), one.get("value")) for one in tree.iter("property")] == [("files that expect a mistake", "2")]
    assert [(case.get("name"), [child.tag for child in case]) for case in tree.iter("testcase")] == [
        ("right.json", []), ("wrong.json", ["system-out"]), ("stuck.json", ["system-out"]), ("unmet.json", ["failure"]),
        ("without.json", ["skipped"]), ("invalid.json", ["error"])]


def test_check_finds_what_a_file_expects_and_counts_it(run, files):
    findings, last = concise_findings(run("check", "-f", "concise", "wrong.json").stdout)
    assert [finding[3] for finding in findings] == ["LS002"]
    assert last == "1 file: 0 match, 1 does not; 1 finding; 1 file expects a mistake"


def results_of(run, name):
    return sarif_run(run("check", "-f", "sarif", name).stdout)["results"]


def fingerprints(run, name):
    return [(one["ruleId"], one["partialFingerprints"]["primaryLocationLineHash"]) for one in results_of(run, name)]


TIED = """{{
  "lockstep": 1, "name": "tied", "layout": {{ "pp": 2, "dp": {dp} }},
  "model": {{ "preset": "gpt2", "layers": {layers}, "hidden": 96, "vocab": 1001, "tied_embeddings": true }},
  "schedule": {{ "framework": "megatron", "options": {{ "use_distributed_optimizer": true }},
    "edits": [ {edit} ] }}
}}
"""


@pytest.mark.parametrize("edit", [
    '{ "drop": "dp_scale" }', '{ "drop": "embedding_all_reduce" }', '{ "duplicate": "backward" }',
    '{ "set": "dp_reduce_scatter", "only": { "dp": [0, 1] } }', '{ "set": "grad_norm", "over": ["pp"] }',
    '{ "move": "dp_reduce_scatter", "before": "micro_batches" }'])
def test_a_fingerprint_stays_when_lines_ranks_and_layers_change(run, files, edit):
    (files / "a.json").write_text(TIED.format(dp=4, layers=2, edit=edit))
    (files / "b.json").write_text("// a comment\n\n" + TIED.format(dp=8, layers=4, edit="\n\n      " + edit))
    before, after = results_of(run, "a.json"), results_of(run, "b.json")
    assert before and fingerprints(run, "a.json") == fingerprints(run, "b.json")
    assert before[0]["locations"][0]["physicalLocation"]["region"] != after[0]["locations"][0]["physicalLocation"]["region"]


def test_other_mistakes_have_other_fingerprints(run, files):
    seen = set()
    for edit in ('{ "drop": "dp_scale" }', '{ "drop": "embedding_all_reduce" }', '{ "set": "grad_norm", "over": ["pp"] }'):
        (files / "a.json").write_text(TIED.format(dp=4, layers=2, edit=edit))
        found = fingerprints(run, "a.json")
        assert not seen & set(found)
        seen |= set(found)
    (files / "a.json").write_text((files / "a.json").read_text().replace('"name": "tied"', '"name": "other"'))
    assert not seen & set(fingerprints(run, "a.json"))


def test_a_layout_of_any_size_is_marked_where_the_file_has_it(reports, files):
    (files / "any.json").write_text((files / "wrong.json").read_text().replace('"dp": 2', '"dp": "any"'))
    texts = reports("check", "any.json")
    for format, findings in read_all(texts).items():
        assert findings == [("any.json", "LS002", 9)], format
    for format in ("sarif", "github", "junit", "markdown"):
        assert "With any dp" in texts[format], format


def test_a_step_of_a_framework_file_is_marked_there(reports, files):
    (files / "frameworks").mkdir()
    (files / "frameworks" / "ours.jsonc").write_text("""{
  "lockstep_framework": 1,
  "name": "ours",
  "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "dp_sum", "op": "all_reduce", "over": "dp" }
  ]
}
""")
    text = (files / "wrong.json").read_text()
    steps = text.index('"schedule"')
    (files / "ours.json").write_text(text[:steps] + '"schedule": { "framework": "./frameworks/ours.jsonc" } }')
    texts = reports("check", "./ours.json")
    findings = read_all(texts)
    for format in ("sarif", "gitlab", "github", "junit"):
        assert findings[format] == [("frameworks/ours.jsonc", "LS002", 6)], format
    assert "frameworks/ours.jsonc" in texts["markdown"]


def test_several_reports_of_one_run_and_a_summary(run, files):
    (files / "summary.md").write_text("before\n")
    done = run("check", "-f", "github", "--report", "sarif=out.sarif", "--report", "junit=out.xml", "--report", "gitlab=out.json",
               "--summary", "wrong.json", env={"GITHUB_STEP_SUMMARY": str(files / "summary.md")})
    assert done.returncode == 1
    assert len(github_commands(done.stdout)) == 1
    assert len(sarif_run((files / "out.sarif").read_text())["results"]) == 1
    assert len(list(junit_suites((files / "out.xml").read_text()).iter("failure"))) == 1
    assert len(gitlab_findings((files / "out.json").read_text())) == 1
    assert (files / "summary.md").read_text() == "before\n" + run("check", "-f", "markdown", "wrong.json").stdout
    assert not list(files.glob("*.tmp"))


def test_a_summary_needs_to_know_where_it_goes(run, files):
    done = run("check", "--summary", "wrong.json", env={"GITHUB_STEP_SUMMARY": ""})
    assert done.returncode == 2
    assert "$GITHUB_STEP_SUMMARY" in done.stderr


def test_exit_zero_changes_one_to_zero_and_nothing_else(run, files):
    for command in ("check", "test"):
        assert run(command, "--exit-zero", "invalid.json").returncode == 2
        assert run(command, "--exit-zero", "no-such-file.json").returncode == 2
    (files / "empty").mkdir()
    assert run("check", "--exit-zero", "empty").returncode == 4
    assert run("check", "wrong.json").returncode == 1
    done = run("check", "--exit-zero", "-f", "concise", "wrong.json")
    assert done.returncode == 0 and len(concise_findings(done.stdout)[0]) == 1
    (files / "unmet.json").write_text((files / "right.json").read_text().replace('"match"', '"mismatch"'))
    assert run("test", "unmet.json").returncode == 1
    assert run("test", "--exit-zero", "unmet.json").returncode == 0


def test_an_unknown_format_is_told_with_the_nearest(run, files):
    done = run("check", "--report", "sariff=out", "right.json")
    assert done.returncode == 2 and "sarif" in done.stderr and "sariff" in done.stderr
    assert run("check", "-f", "sariff", "right.json").returncode == 2


def test_nothing_wrong_is_an_empty_report_in_every_format(reports, files):
    texts = reports("check", "right.json", status=0)
    for format, findings in read_all(texts).items():
        assert findings == [], format
    assert sarif_run(texts["sarif"])["invocations"][0]["executionSuccessful"] is True


def test_a_step_whose_name_looks_like_a_copy_has_its_own_line(run, files):
    (files / "dot.json").write_text(
        """{
  "lockstep": 1,
  "layout": { "dp": 4 },
  "model": { "parameters": [ { "name": "w", "shape": [8] } ] },
  "batch": { "tokens": "even" },
  "schedule": { "steps": [ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "bucket", "op": "scale", "by": "1/4" },
    { "name": "all_reduce", "op": "all_reduce", "over": "dp" },
    { "name": "bucket.2", "op": "scale", "by": 3 } ] }
}
"""
    )
    assert run("check", "-f", "concise", "dot.json").stdout.startswith("dot.json:9:")
    report = json.loads(run("check", "-f", "json", "--timeline", "dot.json").stdout)
    assert [(mark["line"], mark["what"]) for mark in report["marks"]] == [(9, "step at fault")]
