# SPDX-License-Identifier: Apache-2.0
"""`check --engine transformer` and `placements`, as a user runs them."""

import json

MODEL = {"preset": "llama", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32}
MEGATRON = {"framework": "megatron", "options": {"calculate_per_token_loss": True}}


def write(folder, layout, schedule=None, **model):
    path = folder / "scenario.json"
    path.write_text(json.dumps({"lockstep": 1, "layout": layout, "model": {**MODEL, **model},
                                "schedule": schedule or MEGATRON}))
    return str(path)


def test_a_right_schedule_matches_within_the_bound_on_rounding(run, tmp_path):
    path = write(tmp_path, {"tp": 2, "dp": 2, "pp": 2})
    result = run("check", "--engine", "transformer,symbolic", path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "symbolic match, transformer match" in result.stdout
    assert "gradients that are right differ from one device by at most" in result.stdout
    report = json.loads(run("check", "--engine", "transformer", "-f", "json", path).stdout)
    assert report["engines"] == {"transformer": "match"}
    assert 0 < float(report["transformer"]["largest_right"]) < 0.25
    assert report["transformer"]["wrong"] == []


def test_a_wrong_schedule_is_told_with_its_formula(run, tmp_path):
    schedule = {**MEGATRON, "edits": [{"drop": "dp_all_reduce"}]}
    path = write(tmp_path, {"dp": 2}, schedule)
    result = run("check", "--engine", "transformer", path)
    assert result.returncode == 1
    assert "wrong ones by at least" in result.stdout
    report = json.loads(run("check", "--engine", "transformer", "-f", "json", path).stdout)
    assert report["verdict"] == "mismatch"
    names = {(wrong["parameter"], wrong["rank"]) for wrong in report["transformer"]["wrong"]}
    assert ("output_layer.weight", 0) in names and ("output_layer.weight", 1) in names
    exact = json.loads(run("check", "--engine", "symbolic", "-f", "json", path).stdout)
    formula = {(entry["name"], rank["rank"]): rank["pieces"][0]["formula"]
               for entry in exact["parameters"] for rank in entry["ranks"]}
    for wrong in report["transformer"]["wrong"]:
        if wrong["parameter"] == "output_layer.weight":
            assert wrong["pieces"][0]["formula"] == formula[wrong["parameter"], wrong["rank"]]


def test_a_fault_in_the_model_is_found_without_asking_for_the_engine(run, tmp_path):
    path = write(tmp_path, {"tp": 2}, edits=[{"drop": "mlp.copy_to_tp"}])
    result = run("check", path)
    assert result.returncode == 1
    assert "symbolic match, host match, transformer mismatch" in result.stdout
    assert "no combination of the contributions" in result.stdout


def test_ranks_of_the_model_that_do_not_meet_are_an_invalid_collective_or_a_deadlock(run, tmp_path):
    path = write(tmp_path, {"tp": 2, "pp": 2}, edits=[{"set": "attention.copy_to_tp", "over": "pp"}])
    result = run("check", path)
    assert result.returncode == 1
    assert "The model itself cannot go on" in result.stdout
    verdict = json.loads(run("check", "-f", "json", path).stdout)
    assert verdict["verdict"] in ("deadlock", "invalid_collective")
    assert verdict["transformer"]["failure"] in result.stdout
    assert "attention.copy_to_tp" in result.stdout


def test_what_the_engine_cannot_run_is_said_at_its_place(run, tmp_path):
    path = write(tmp_path, {"dp": 2}, hidden=4096, vocab=128256)
    result = run("check", "--engine", "transformer", path)
    assert result.returncode == 2
    assert "give it smaller sizes" in result.stdout + result.stderr
    wrong_site = write(tmp_path, {"tp": 2}, edits=[{"drop": "mlp.copy_to_pp"}])
    result = run("check", wrong_site)
    assert result.returncode == 2
    assert 'did you mean "mlp.copy_to_tp"?' in result.stdout + result.stderr


def test_placements_prints_what_is_claimed_and_what_is_seen(run, tmp_path):
    path = write(tmp_path, {"tp": 2, "dp": 2, "sequence_parallel": True})
    result = run("placements", path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "placements are as claimed, and the gradients add up to those of one device" in result.stdout
    schedule = {**MEGATRON, "edits": [{"parameter": "*input_layernorm.weight", "partial": []},
                                      {"drop": "norm_all_reduce"}]}
    path = write(tmp_path, {"tp": 2, "sequence_parallel": True}, schedule)
    result = run("placements", path)
    assert result.returncode == 1
    assert "R, is P" in result.stdout
    rows = json.loads(run("placements", "-f", "json", path).stdout)["placements"]
    wrong = [row for row in rows if not row["agrees"]]
    assert {row["parameter"] for row in wrong} == {f"decoder.layers.{i}.input_layernorm.weight" for i in range(2)}
    assert all((row["axis"], row["claimed"], row["observed"]) == ("tp", "R", "P") for row in wrong)


def test_the_resolved_form_of_a_fault_in_the_model_has_the_same_verdict_and_wrong_parameters(run, tmp_path):
    path = write(tmp_path, {"tp": 2, "sequence_parallel": True}, edits=[{"drop": "attention.norm"}])
    resolved = tmp_path / "resolved.json"
    resolved.write_text(run("show", path, "--resolved").stdout)
    model = json.loads(resolved.read_text())["model"]
    assert model["edits"] == [{"drop": "attention.norm"}]
    assert model["architecture"]["family"] == "gpt" and model["architecture"]["hidden"] == 16
    assert "preset" not in model and len(model["parameters"]) == 15
    first, second = (json.loads(run("check", "-f", "json", str(file)).stdout) for file in (path, resolved))
    assert first["verdict"] == second["verdict"] == "mismatch"
    assert first["engines"] == second["engines"] == {"symbolic": "match", "host": "match", "transformer": "mismatch"}
    assert first["transformer"] == second["transformer"]


def test_an_empty_list_of_edits_asks_for_the_engine_and_a_plain_model_does_not(run, tmp_path):
    assert json.loads(run("check", "-f", "json", write(tmp_path, {"tp": 2})).stdout)["engines"] == {"symbolic": "match", "host": "match"}
    twin = write(tmp_path, {"tp": 2}, edits=[])
    for engines in ((), ("--engine", "symbolic")):
        assert json.loads(run("check", "-f", "json", *engines, twin).stdout)["engines"]["transformer"] == "match"


def test_list_has_faults_in_the_model(run, tmp_path):
    row = json.loads(run("list", "-f", "json", write(tmp_path, {"tp": 2}, edits=[{"drop": "mlp.copy_to_tp"}])).stdout)[0]
    assert (row["verdict"], row["mistake"], row["factor"], row["replicas"]) == ("mismatch", "in the model", None, "differ")
    row = json.loads(run("list", "-f", "json", write(tmp_path, {"tp": 2}, edits=[])).stdout)[0]
    assert (row["verdict"], row["mistake"], row["factor"]) == ("match", "none", "1")


def test_placements_looks_at_the_edited_model(run, tmp_path):
    result = run("placements", write(tmp_path, {"tp": 2, "sequence_parallel": True}, edits=[{"drop": "head.norm"}]))
    assert result.returncode == 1
    assert "P, is R" in result.stdout
    stuck = run("placements", write(tmp_path, {"cp": 2, "dp": 4}, edits=[{"set": "cp.gather_key", "over": "dp"}]))
    assert stuck.returncode == 2
    assert "cp.gather_key over dp has 4 ranks, and the model there has pieces for the 2 ranks of cp" in stuck.stderr


def test_a_model_that_cannot_go_on_is_no_deadlock_of_the_schedule(run, tmp_path):
    result = run("check", write(tmp_path, {"cp": 2, "dp": 4}, edits=[{"set": "cp.gather_key", "over": "dp"}]))
    assert result.returncode == 1
    assert "symbolic match, host match, transformer invalid_collective" in result.stdout
    assert "The model itself cannot go on" in result.stdout and "invalid collective:" not in result.stdout


def test_show_lists_the_edits_of_the_model(run, tmp_path):
    edits = [{"drop": "head.norm"}, {"duplicate": "head.gather_sequence_backward"}, {"set": "cp.dkv_reduce", "over": "dp"}]
    shown = run("show", write(tmp_path, {"tp": 2, "sequence_parallel": True}, edits=edits)).stdout
    assert shown.endswith("edits of the model\n  drop head.norm\n  duplicate head.gather_sequence_backward\n"
                          "  set cp.dkv_reduce over dp\n")
    assert "edits of the model" not in run("show", write(tmp_path, {"tp": 2}, edits=[])).stdout
