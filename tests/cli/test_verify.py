# SPDX-License-Identifier: Apache-2.0
"""lockstep verify, on runs written in plain Python: verdicts, words, JSON, options, exit statuses, hostile folders."""

import json
import os
import random
import re
import shutil
import struct
import time
from array import array
from fractions import Fraction
from pathlib import Path

import captured_run
import pytest

HALF = Fraction(1, 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    captured_run.simple_run(folder / "right", lambda name, rank, m: HALF)
    captured_run.simple_run(folder / "twice", lambda name, rank, m: HALF / 2)
    captured_run.simple_run(folder / "norms", lambda name, rank, m: 0 if "norm" in name and rank == 1 else HALF)
    captured_run.simple_run(folder / "unknown", lambda name, rank, m: HALF, loss=None)
    return folder


def result_of(run, runs, name, *options):
    finished = run("verify", str(runs / name), "-f", "json", *options)
    return finished.returncode, json.loads(finished.stdout)


def test_a_right_run_is_a_match(run, runs):
    finished = run("verify", str(runs / "right"))
    assert finished.returncode == 0
    assert finished.stdout.startswith("match  ")
    assert "3 parameters, 3 distinct results compared: 3 right" in finished.stdout
    status, result = result_of(run, runs, "right")
    assert status == 0 and result["verdict"] == "match" and result["complete"] is True
    assert {piece["formula"] for piece in result["results"]} == {"(g0+g1)/2"}
    assert result["counts"] == {"right": 3, "wrong": 0, "undecided": 0}
    assert result["results"][0]["coefficients"] == []
    _, result = result_of(run, runs, "right", "-v")
    assert {one["exact"] for one in result["results"][0]["coefficients"]} == {"1/2"}


def test_the_summary_comes_first_then_the_formulas(run, runs):
    finished = run("verify", str(runs / "twice"))
    assert finished.returncode == 1
    summary = "every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam"
    assert finished.stdout.index(summary) < finished.stdout.index("got       (g0+g1)/4   (half of the right gradient)")
    assert "all 3 parameters, on every rank" in finished.stdout
    assert "expected  (g0+g1)/2" in finished.stdout


def test_the_parameters_at_fault_are_named_with_layers_folded(run, runs):
    finished = run("verify", str(runs / "norms"))
    assert finished.returncode == 1
    assert "✗ the share of dp 1 is missing\n    layers.*.norm.weight (2), on every rank\n" in finished.stdout
    assert "✗ layers.*.norm.weight (2)  ranks 0, 1\n    got       g0/2" in finished.stdout
    _, result = result_of(run, runs, "norms")
    assert [(one["what"], one["parameters"], one["ranks"]) for one in result["findings"]] == [
        ("the share of dp 1 is missing", ["layers.0.norm.weight", "layers.1.norm.weight"], [0, 1])]
    wrong = [piece for piece in result["results"] if piece["verdict"] == "wrong"]
    assert [one["exact"] for one in wrong[0]["coefficients"]] == ["1/2", "1/2", "0", "0"]


def rewritten(source, folder, change):
    """The run again, each of its lines as `change(rank, line)` leaves it."""
    shutil.copytree(source, folder)
    for rank, file in enumerate(sorted(folder.glob("*.jsonl"))):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            change(rank, line)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def test_a_loss_scale_is_taken_out_of_the_sums(run, tmp_path):
    captured_run.simple_run(tmp_path / "scaled", lambda name, rank, m: HALF / 1024)
    assert run("verify", str(tmp_path / "scaled")).returncode == 1

    def scale(rank, line):
        if line["event"] == "contribution":
            line["loss_scale"] = 1024
    finished = run("verify", rewritten(tmp_path / "scaled", tmp_path / "told", scale))
    assert finished.returncode == 0 and finished.stdout.startswith("match  ")

    def of_all(rank, line):
        if line["event"] in ("contribution", "result"):
            line["loss_scale"] = 1024.0
    assert run("verify", rewritten(tmp_path / "scaled", tmp_path / "all", of_all)).returncode == 1

    def zero(rank, line):
        if line["event"] == "contribution":
            line["loss_scale"] = 0
    finished = run("verify", rewritten(tmp_path / "scaled", tmp_path / "zero", zero))
    assert finished.returncode == 2
    assert '"loss_scale" of a "contribution" line: expected a number greater than 0, found the number 0' in finished.stderr


def test_a_step_that_loss_scalers_skip_is_not_looked_at(run, runs, tmp_path):
    def skip(ranks):
        def change(rank, line):
            if line["event"] == "step" and rank in ranks:
                line["skipped"] = True
        return change
    finished = run("verify", rewritten(runs / "twice", tmp_path / "all", skip((0, 1))))
    assert "optimizer step 0 was skipped: loss scalers found infinite gradients." in finished.stdout
    assert "no optimizer step was captured" in finished.stdout and finished.returncode == 1
    finished = run("verify", rewritten(runs / "right", tmp_path / "some", skip((1,))))
    assert finished.returncode == 1 and finished.stdout.startswith("mismatch  ")
    assert "rank 1 skipped the optimizer step, for its loss scaler found infinite gradients, and rank 0 stepped" in finished.stdout


def test_skipped_steps_are_not_compared_with_a_reference(run, runs, tmp_path):
    def skip(rank, line):
        if line["event"] == "step":
            line["skipped"] = True
    skipped = rewritten(runs / "right", tmp_path / "skipped", skip)
    finished = run("verify", skipped, "--step", "0")
    assert finished.returncode == 2
    assert finished.stderr == f"error: {skipped}: optimizer step 0 was skipped by loss scalers; the run has none\n"
    captured_run.simple_run(tmp_path / "one", lambda name, rank, m: 1, world=1)
    one = rewritten(tmp_path / "one", tmp_path / "one-skipped", skip)
    finished = run("verify", str(runs / "right"), "--reference", one)
    assert finished.returncode == 1 and finished.stdout.startswith("undecided  ")
    assert "the reference has no complete optimizer step that is looked at" in finished.stdout


def added(source, folder, line, before="result"):
    """The run again, on each rank with a line before the first of a kind."""
    shutil.copytree(source, folder)
    for file in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(text) for text in file.read_text().splitlines()]
        lines.sort(key=lambda one: {"contribution": 1, "collective": 2, "result": 3, "step": 4, "end": 5}.get(one["event"], 0))
        place = next(i for i, one in enumerate(lines) if one["event"] == before)
        lines.insert(place, line)
        lines[0]["collectives"] = True
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return str(folder)


def all_reduce(dtype, parameters):
    return {"event": "collective", "step": 0, "op": "all_reduce", "reduce": "sum", "group": [0, 1], "elements": 8, "dtype": dtype,
            "call": "train.py:1", "parameters": parameters}


def test_activations_that_are_reduced_in_bfloat16_do_not_excuse_gradients(run, tmp_path):
    noisy = tmp_path / "noisy"
    captured_run.simple_run(noisy, lambda name, rank, m: HALF, noise=lambda element: Fraction((-1) ** element, 500))
    assert run("verify", str(noisy), "-q").returncode == 1
    assert run("verify", added(noisy, tmp_path / "activations", all_reduce("bfloat16", [])), "-q").returncode == 1
    assert run("verify", added(noisy, tmp_path / "gradients", all_reduce("bfloat16", [0, 1, 2])), "-q").returncode == 0


def without_result(source, folder, rank, parameter):
    shutil.copytree(source, folder)
    file = folder / f"rank-{rank:05}.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    lines = [one for one in lines if not (one["event"] == "result" and one["parameter"] == parameter)]
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return str(folder)


def test_a_rank_whose_optimizer_lacks_a_parameter_is_no_match(run, runs, tmp_path):
    added(runs / "right", tmp_path / "reduced", all_reduce("float32", [0, 1, 2]))
    assert run("verify", str(tmp_path / "reduced")).returncode == 0
    finished = run("verify", without_result(tmp_path / "reduced", tmp_path / "behind", 1, 2))
    assert finished.returncode == 1 and finished.stdout.startswith("undecided  ")
    assert ("not complete: the optimizer of rank 1 never gets layers.1.norm.weight, others' do, and nothing that was recorded brings it the new "
            "values.") in finished.stdout
    gather = {**all_reduce("float32", []), "op": "broadcast", "root": 0}
    added(tmp_path / "reduced", tmp_path / "sent", gather, before="end")
    assert run("verify", without_result(tmp_path / "sent", tmp_path / "owned", 1, 2)).returncode == 0


def test_gradients_that_cross_in_a_reduction_are_named(run, tmp_path):
    captured_run.simple_run(tmp_path / "right", lambda name, rank, m: HALF, (("left", 64), ("right", 64), ("norm", 8)))

    def crossed(name, of_ranks, elements):
        added(tmp_path / "right", tmp_path / name, {**all_reduce("float32", []), "elements": elements})
        for rank, parameters in enumerate(of_ranks):
            file = tmp_path / name / f"rank-{rank:05}.jsonl"
            file.write_text(file.read_text().replace('"parameters": []', f'"parameters": {parameters}'))
        return run("verify", str(tmp_path / name)).stdout
    assert ("collective 1 of ranks 0 and 1, in optimizer step 0: in the all_reduce of 64 float32 elements at train.py:1, rank 0 puts left and rank 1 puts "
            "right: gradients are mixed.") in crossed("mixed", ([0], [1]), 64)
    assert "rank 0 puts left and 1 other and rank 1 puts right" in crossed("several", ([0, 2], [1]), 64)
    for name, of_ranks, elements in (("same", ([0], [0]), 64), ("elsewhere", ([0], [1]), 128), ("in-common", ([0, 2], [1, 2]), 64), ("unknown", ([0], []), 64)):
        assert "mixed" not in crossed(name, of_ranks, elements)


def test_contributions_that_cannot_be_told_apart_are_not_said_to_be_missing(run, tmp_path):
    def two_of_four(name, rank, m):
        return Fraction(1, 4) if name != "norm" or rank in (0, 2) else 0
    for loss, verdict, what in (("local_mean", "mismatch", "it is not the expected sum, and no simple formula explains it"),
                                (None, "undecided", "no simple formula explains it")):
        captured_run.simple_run(tmp_path / verdict, two_of_four, (("weight", 64), ("norm", 4)), world=4, loss=loss)
        finished = run("verify", str(tmp_path / verdict))
        assert finished.returncode == 1 and finished.stdout.startswith(verdict + "  ") and what in finished.stdout
        assert "8 contributions cannot be told apart in 4 elements; the nearest of the formulas that were tried leaves" in finished.stdout
        assert "none of the recorded" not in finished.stdout


def test_without_a_loss_a_tie_is_undecided(run, tmp_path):
    names = (("a", 64), ("b", 64), ("c", 64))
    captured_run.simple_run(tmp_path / "tie", lambda name, rank, m: HALF / (1 if name == "a" else 2), names[:2], loss=None)
    finished = run("verify", str(tmp_path / "tie"))
    assert finished.returncode == 1 and finished.stdout.startswith("undecided  ")
    assert "every contribution came with 1/4, and with other numbers elsewhere: only the loss says which is right" in finished.stdout
    captured_run.simple_run(tmp_path / "most", lambda name, rank, m: HALF / (1 if name == "a" else 2), names, loss=None)
    finished = run("verify", str(tmp_path / "most"))
    assert finished.stdout.startswith("mismatch  ")
    assert "every contribution came with 1/2, and in most parameters with 1/4" in finished.stdout


def test_a_pipe_or_a_folder_among_the_files_is_refused(run, runs, tmp_path):
    for name, make in (("pipe", os.mkfifo), ("folder", os.mkdir)):
        shutil.copytree(runs / "right", tmp_path / name)
        file = tmp_path / name / "rank-00001.jsonl"
        file.unlink()
        make(file)
        finished = run("verify", str(tmp_path / name))
        assert finished.returncode == 2 and finished.stderr == f"error: {file}: it cannot be read\n"


def test_a_scalar_may_be_a_box_and_names_are_declared_once(run, runs, tmp_path):
    captured_run.simple_run(tmp_path / "scalar", lambda name, rank, m: HALF, (("scale", 1), ("weight", 40)))

    def box(rank, line):
        if line["event"] == "parameter" and line["name"] == "scale":
            line["shape"], line["pieces"] = [], [{"box": []}]
        if line["event"] == "run":
            line["collectives"] = True
    assert run("verify", rewritten(tmp_path / "scalar", tmp_path / "box", box)).returncode == 0
    added(tmp_path / "box", tmp_path / "reduced", {**all_reduce("float32", [0, 1]), "elements": 41})
    finished = run("record", str(tmp_path / "reduced"))
    assert finished.returncode == 0 and json.loads(finished.stdout)["model"]["parameters"][0]["shape"] in ([], [1])

    def same(rank, line):
        if line["event"] == "parameter":
            line["name"] = "weight"
    finished = run("verify", rewritten(tmp_path / "scalar", tmp_path / "same", same))
    assert finished.returncode == 2 and 'error: a parameter "weight" is declared twice' in finished.stderr


def test_options_choose_loss_parameters_and_step(run, runs):
    assert run("verify", str(runs / "right"), "--loss", "sum").returncode == 1
    assert run("verify", str(runs / "norms"), "--parameter", "embedding*").returncode == 0
    assert run("verify", str(runs / "norms"), "--parameter", "!*norm*").returncode == 0
    assert run("verify", str(runs / "norms"), "--step", "0").returncode == 1
    assert run("verify", str(runs / "right"), "-q").stdout.count("\n") == 1
    verbose = run("verify", str(runs / "right"), "-v").stdout
    assert "rank 0 micro-batch 0: 0.5" in verbose and "1/2 within noise" in verbose
    noise = re.findall(r"unexplained (\S+), rounding leaves at most (\S+)\n", verbose)
    assert noise and all(float(left) <= float(most) for left, most in noise)
    assert any(float(left) < float(most) for left, most in noise)
    assert "loss is not known" not in run("verify", str(runs / "right")).stdout
    unknown = run("verify", str(runs / "unknown"))
    assert unknown.returncode == 0 and "contributions come with 1/2 in 3 of 3 results" in unknown.stdout


def test_the_older_name_of_the_loss_is_taken_and_that_of_today_said(run, runs):
    old, now = (run("verify", str(runs / "unknown"), "--loss", loss) for loss in ("mean", "local_mean"))
    assert old.returncode == 0 and old.stdout == now.stdout and "loss local_mean" in old.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--loss", "local_maen"], 'did you mean "local_mean"?'),
    (["--parameter", "embeding.weight"], 'did you mean "embedding.weight"?'),
    (["--step", "4"], "optimizer step 4 was not captured; the run has 0"),
    (["--step", "x"], "--step"),
    (["--parameter", "numel>"], "--parameter numel>"),
])
def test_wrong_options_are_told(run, runs, arguments, message):
    finished = run("verify", str(runs / "right"), *arguments)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert finished.stdout == ""


def test_what_cannot_be_read_is_told_with_its_place(run, runs, tmp_path):
    assert run("verify", "nowhere").returncode == 2
    shutil.copytree(runs / "right", tmp_path / "garbled")
    file = tmp_path / "garbled" / "rank-00001.jsonl"
    file.write_text(file.read_text().replace('"row":1,', '"row":"one",'))
    finished = run("verify", "garbled")
    assert finished.returncode == 2
    assert "garbled/rank-00001.jsonl:" in finished.stderr
    assert '"row" of a "contribution" line: expected a whole number from 0 to 2147483647, found the string "one"' in finished.stderr
    assert "^~~~~" in finished.stderr


def test_a_run_that_is_not_complete_is_never_a_match(run, runs, tmp_path):
    shutil.copytree(runs / "right", tmp_path / "died")
    file = tmp_path / "died" / "rank-00001.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-2]) + lines[-2][:20])
    finished = run("verify", "died")
    assert finished.returncode == 1
    assert finished.stdout.startswith("undecided  died  not complete\n")
    assert "the last line is not complete" in finished.stdout
    os.remove(file)
    finished = run("verify", "died", "-f", "json")
    assert finished.returncode == 1
    result = json.loads(finished.stdout)
    assert result["complete"] is False and result["counts"]["wrong"] == 0
    assert "rank 1 of 2 left no file: what it contributed is not known." in result["gaps"]


def test_text_from_the_run_does_not_reach_the_terminal_as_it_is(run, tmp_path):
    captured_run.simple_run(tmp_path / "run", lambda name, rank, m: 1, parameters=[("a\x1b[31m\nb", 96)])
    finished = run("verify", "run")
    assert finished.returncode == 1
    assert "\x1b" not in finished.stdout
    assert json.loads(run("verify", "run", "-f", "json").stdout)["results"][0]["parameter"] == "a\x1b[31m\nb"


RUNS = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2]) / "tests" / "live" / "runs"


def test_contributions_are_compared_with_a_run_on_one_device(run):
    halved, one = str(RUNS / "halved"), str(RUNS / "one")
    assert run("verify", halved).returncode == 0
    finished = run("verify", halved, "--reference", one, "-f", "json")
    assert finished.returncode == 1
    result = json.loads(finished.stdout)
    assert result["verdict"] == "mismatch" and result["counts"]["wrong"] == 0
    assert [(one["what"], one["parameters"], one["results"]) for one in result["findings"]] == [
        ("the contributions add up to 1/2 of the true gradient", ["norm.weight", "norm.bias"], 0)]
    parts = {parameter["parameter"]: parameter["part"] for parameter in result["reference"]["parameters"]}
    assert parts == dict.fromkeys(["norm.weight", "norm.bias"], "1/2") | dict.fromkeys(
        ["base.weight", "base.bias", "down.weight", "up.weight"])
    assert run("verify", halved, "--reference", one, "--parameter", "base*").returncode == 0
    assert run("verify", one, "--reference", one).returncode == 0
    assert "all contributions differ" in run("verify", halved, "--reference", one, "--parameter", "norm*").stdout
    doubled = run("verify", halved, "--reference", one, "--loss", "sum")
    assert "the contributions add up to 2 × the true gradient" in doubled.stdout


@pytest.mark.parametrize("reference, message", [
    ("nowhere", "nowhere: there is no such folder"),
    (str(RUNS / "norm"), "the run has 2 ranks; expected a reference on one"),
    ("seed", 'its "seed" is 7, and that of'),
])
def test_what_is_no_reference_is_refused(run, tmp_path, reference, message):
    shutil.copytree(RUNS / "one", tmp_path / "seed")
    file = tmp_path / "seed" / "rank-00000.jsonl"
    file.write_text(file.read_text().replace('"seed":0', '"seed":7'))
    finished = run("verify", str(RUNS / "halved"), "--reference", reference)
    assert finished.returncode == 2 and finished.stdout == ""
    assert message in finished.stderr


def test_thousands_of_parameters(run, tmp_path, capsys):
    """5,000 parameters, 4 ranks, 2 micro-batches: the sketches are drawn, for verify sees nothing else."""
    folder, count, sums, generator = tmp_path / "large", 5000, 128, random.Random(0)
    folder.mkdir()

    def drawn():
        return array("d", array("h", generator.randbytes(2 * sums)))
    contributions = [[drawn() for _ in range(8)] for _ in range(count)]
    results = [array("d", (sum(values) / 4 for values in zip(*of))) for of in contributions]
    for rank in range(4):
        lines = [{"event": "run", "lockstep_capture": 1, "rank": rank, "world": 4, "adapter": "ddp", "versions": {}, "sums": sums, "seed": 0,
                  "mesh": {"axes": ["dp"], "sizes": [4], "ranks": [0, 1, 2, 3]}, "data_axes": ["dp"], "loss": "local_mean"}]
        lines += [{"event": "parameter", "id": number, "name": f"layers.{number}.weight", "aliases": [], "shape": [4096], "dtype": "float32",
                   "frozen": False, "pieces": [{"range": [0, 4096]}]} for number in range(count)]
        rows = array("d")
        for number in range(count):
            for micro in (0, 1):
                tensor = {"step": 0, "parameter": number, "piece": 0, "dtype": "float32", "nonfinite": 0}
                lines.append({"event": "contribution", "micro_batch": micro, "row": len(rows) // sums, "hash": "%032x" % (1 + 8 * number + 2 * rank + micro),
                              **tensor})
                rows.extend(contributions[number][2 * rank + micro])
            lines.append({"event": "result", "row": len(rows) // sums, "hash": "f" * 24 + "%08x" % number, **tensor})
            rows.extend(results[number])
        lines += [{"event": "step", "step": 0, "micro_batches": 2, "tokens": [None, None]}, {"event": "end", "steps": 1, "seconds": 1, "overhead": 1}]
        (folder / f"rank-{rank:05}.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        header = json.dumps({"sketches": {"dtype": "F64", "shape": [len(rows) // sums, sums], "data_offsets": [0, 8 * len(rows)]}}).encode()
        header += b" " * (-len(header) % 8)
        (folder / f"rank-{rank:05}.step-00000.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + rows.tobytes())
    start = time.monotonic()
    finished = run("verify", "large")
    with capsys.disabled():
        print(f"\n  verify of 5000 parameters, 4 ranks, 2 micro-batches: {time.monotonic() - start:.1f} s")
    assert finished.returncode == 0 and "5000 parameters, 5000 distinct results compared: 5000 right" in finished.stdout
