# SPDX-License-Identifier: Apache-2.0
"""lockstep import flight-recorder, on dumps in the form that PyTorch writes them (real ones: tests/python/test_flight_recorder.py)."""

import json

import pytest

DEFAULT = ["0", "default_pg"]


def entry(record, number, name="all_reduce", sizes=((5,),), group=DEFAULT, state="completed", **more):
    return {"record_id": record, "pg_id": 0, "process_group": group, "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
            "profiling_name": f"nccl:{name}", "input_sizes": [list(size) for size in sizes], "input_dtypes": ["Float"] * len(sizes),
            "state": state, "retired": state == "completed", "is_p2p": False, **more}


def dump(folder, rank, entries, groups=None, name="trace_{}.json", **more):
    groups = groups or {"0": ("default_pg", "[0, 1]")}
    folder.mkdir(exist_ok=True)
    text = json.dumps({"version": "2.10", "pg_config": {key: {"name": key, "desc": desc, "ranks": ranks} for key, (desc, ranks) in groups.items()},
                       "pg_status": {"0": {"last_enqueued_collective": "5"}}, "entries": entries, **more})
    (folder / name.format(rank)).write_text(text)


def both(tmp_path, first, second, **more):
    dump(tmp_path / "traces", 0, first, **more)
    dump(tmp_path / "traces", 1, second, **more)


def result_of(run, *arguments):
    done = run("import", "flight-recorder", "traces", "-f", "json", *arguments)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    assert (result["verdict"] == "match") == (done.returncode == 0)
    return result


def test_collectives_that_meet_match(run, tmp_path):
    both(tmp_path, [entry(0, 1), entry(1, 2, "_all_gather_base", [(3,)])], [entry(0, 1), entry(1, 2, "all_gather", [(4,)])])
    result = result_of(run)
    assert result["verdict"] == "match" and result["calls"] == 4 and result["ranks"] == [0, 1]
    assert result["groups"] == [{"name": "0", "description": "default_pg", "ranks": [0, 1], "members_known": True, "first": 1, "last": 2}]
    assert run("import", "flight-recorder", "traces").stdout == "match  2 dumps of 2 ranks\n  4 collectives in 1 process group, Flight Recorder 2.10\n"


def test_a_group_that_is_made_anew_begins_to_count_again(run, tmp_path):
    both(tmp_path, [entry(0, 7), entry(1, 1), entry(2, 2)], [entry(0, 1), entry(1, 2)])
    result = result_of(run)
    assert result["verdict"] == "undecided"
    assert result["gaps"] == ["rank 0 numbers a collective of ranks 0 and 1 (default_pg) with 1 after 7: was the process group made anew? What came before "
                              "is not compared."]


@pytest.mark.parametrize("second, words", [
    (entry(1, 2, "broadcast", state="started"), "rank 1 broadcast of 5 float32 elements"),
    (entry(1, 2, sizes=[(1,)], state="started"), "rank 1 all_reduce of 1 float32 element"),
    (entry(1, 2, state="started", input_dtypes=["BFloat16"]), "rank 1 all_reduce of 5 bfloat16 elements"),
    (None, "rank 1 nothing"),
])
def test_the_first_collective_that_does_not_meet_is_named_and_who_waits(run, tmp_path, second, words):
    both(tmp_path, [entry(0, 1), entry(1, 2, state="started", call="train.py:9 in main")], [entry(0, 1)] + ([second] if second else []))
    result = result_of(run)
    assert result["verdict"] == "mismatch"
    assert result["collectives"] == [f"collective 2 of ranks 0 and 1 (default_pg): rank 0 calls all_reduce of 5 float32 elements at train.py:9 in main, and {words}."]
    assert "rank 0 waits in collective 2 of ranks 0 and 1 (default_pg), all_reduce of 5 float32 elements at train.py:9 in main: started." in result["waiting"]


def test_ranks_that_wait_in_a_collective_that_meets_are_undecided(run, tmp_path):
    both(tmp_path, [entry(0, 1, state="scheduled")], [entry(0, 1, state="scheduled")])
    result = result_of(run)
    assert result["verdict"] == "undecided" and result["collectives"] == []
    assert result["waiting"] == ["ranks 0 and 1 wait in collective 1 of ranks 0 and 1 (default_pg), all_reduce of 5 float32 elements: scheduled."]


def test_the_ring_may_have_lost_the_start_and_numbers_align_ranks(run, tmp_path):
    # Rank 0 still has 3 to 5, rank 1 has 1 to 5.
    whole = [entry(i, i + 1, "broadcast" if i == 2 else "all_reduce") for i in range(5)]
    both(tmp_path, whole[2:], whole)
    result = result_of(run)
    assert result["verdict"] == "match" and result["groups"][0]["first"] == 4  # of what was first in the ring, a part may be lost
    both(tmp_path, whole[2:], whole[:4] + [entry(4, 5, "reduce")])
    assert result_of(run)["collectives"][0].startswith("collective 5 of ranks 0 and 1 (default_pg): rank 0 calls all_reduce")


def test_dumps_with_nothing_in_common_are_not_compared(run, tmp_path):
    both(tmp_path, [entry(i, i + 1, state="scheduled") for i in range(20, 23)], [entry(i, i + 1) for i in range(3)])
    result = result_of(run)
    assert result["verdict"] == "undecided" and result["collectives"] == []
    assert result["gaps"] == ["rank 1 stands at collective 3 of ranks 0 and 1 (default_pg), and rank 0's dump begins with 22: "
                              "a larger TORCH_FR_BUFFER_SIZE keeps what lies between."]


def test_a_dump_that_was_written_before_others_is_no_rank_that_hangs(run, tmp_path):
    both(tmp_path, [entry(0, 1), entry(1, 2)], [entry(0, 1)])
    result = result_of(run)
    assert result["verdict"] == "undecided" and result["collectives"] == []
    assert result["gaps"] == ["the dump of rank 1 was written before others: collectives of ranks 0 and 1 (default_pg) that it lacks are over elsewhere."]


def test_groups_are_told_apart_and_missing_dumps_are_told(run, tmp_path):
    groups = {"0": ("default_pg", "[0, 1, 2, 3]"), "1": ("mesh_tp", "[0, 1]"), "2": ("mesh_tp", "[2, 3]")}
    tp = ["1", "mesh_tp"]
    dump(tmp_path / "traces", 0, [entry(0, 1, group=tp), entry(1, 1)], groups)
    dump(tmp_path / "traces", 1, [entry(0, 1, group=tp, name="broadcast"), entry(1, 1)], groups)
    dump(tmp_path / "traces", 2, [entry(0, 1)], groups)
    result = result_of(run)
    assert result["gaps"] == ["rank 3 of 4 left no dump: what it called is not known."]
    assert result["collectives"] == ["collective 1 of ranks 0 and 1 (mesh_tp): rank 0 calls all_reduce of 5 float32 elements, "
                                     "and rank 1 broadcast of 5 float32 elements."]
    assert result_of(run, "--world-size", "6")["gaps"][0].startswith("ranks 3 to 5 of 6 left no dump")


def test_calls_that_are_issued_as_one_share_a_number(run, tmp_path):
    pair = [entry(0, 1, sizes=[(2,)]), entry(1, 1, sizes=[(3,)]), entry(2, 2)]
    both(tmp_path, pair, pair)
    assert result_of(run)["verdict"] == "match"
    both(tmp_path, pair, [pair[0], entry(1, 1, sizes=[(4,)]), pair[2]])
    assert result_of(run)["collectives"][0].startswith("collective 1 of ranks 0 and 1 (default_pg): rank 0 calls all_reduce of 3 float32")


def test_sends_and_receives_are_passed_over(run, tmp_path):
    send = dict(entry(1, 1, "send 0->1"), is_p2p=True, p2p_seq_id=1)
    both(tmp_path, [entry(0, 1), send], [entry(0, 1)])
    result = result_of(run)
    assert result["verdict"] == "match" and result["calls"] == 2


def test_numbers_may_be_texts_and_groups_unknown(run, tmp_path):
    odd = [dict(entry(0, 1, group=["7", "mine"]), collective_seq_id="1", record_id="0", profiling_name="gloo:all_reduce", state="scheduled", retired=True)]
    both(tmp_path, odd, odd, groups={"": ("", "[]")}, name="nccl_trace_rank_{}.json")
    result = result_of(run)
    assert result["verdict"] == "match"
    assert result["notes"] == ["the dumps do not say which ranks belong to mine: those are compared that called something in it."]


def test_nothing_recorded_is_no_match(run, tmp_path):
    both(tmp_path, [], [])
    assert result_of(run)["gaps"] == ["no collective was recorded: was TORCH_FR_BUFFER_SIZE set?"]


@pytest.mark.parametrize("change, message", [
    (lambda text: text.replace('"2.10"', '"1.5"'), "the dump is of version 1.5; this program reads 2"),
    (lambda text: text.replace('"version"', '"versoin"'), "expected a dump of PyTorch's Flight Recorder"),
    (lambda text: text.replace('"collective_seq_id": 1', '"collective_seq_id": -1'), '"collective_seq_id" of an entry: expected a whole number up to 4611686018427387903, found'),
    (lambda text: text.replace('"collective_seq_id": 1', '"collective_seq_id": "1x"'), '"collective_seq_id" of an entry: expected a whole number up to 4611686018427387903, found'),
    (lambda text: text.replace("[[5]]", "[[99999999999, 99999999999]]"), '"input_sizes" of an entry: expected sizes'),
    (lambda text: text.replace('["0", "default_pg"]', '"0"'), '"process_group" of an entry'),
    (lambda text: text.replace('"[0, 1]"', '"[0, 0]"'), '"ranks": expected different ranks'),
    (lambda text: text.replace('"[0, 1]"', '"[0, x]"'), '"ranks": expected different ranks'),
    (lambda text: text[:-20], "traces/trace_1.json:1:"),
    (lambda text: "\x80\x04\x00", "is a binary file; expected a dump that `python3 -m lockstep.flight_recorder` has turned into JSON"),
])
def test_what_is_no_dump_is_told_with_its_place(run, tmp_path, change, message):
    both(tmp_path, [entry(0, 1)], [entry(0, 1)])
    file = tmp_path / "traces" / "trace_1.json"
    file.write_text(change(file.read_text()), encoding="latin-1")
    done = run("import", "flight-recorder", "traces")
    assert done.returncode == 2 and done.stdout == "" and message in done.stderr, done.stderr


@pytest.mark.parametrize("arguments, message", [
    ([], "none was named"),
    (["nowhere"], "there is no file or folder nowhere"),
    (["empty"], "there is no *.json file in empty"),
    (["traces", "--tp", "2"], "--tp: dumps of the Flight Recorder are no configuration"),
    (["traces", "--check"], "leave --check out"),
    (["traces", "traces/copy_1.json"], "it is of rank 1, and so is"),
    (["traces/unnamed.json"], "which rank's dump is it?"),
])
def test_wrong_usage_is_told(run, tmp_path, arguments, message):
    both(tmp_path, [entry(0, 1)], [entry(0, 1)])
    (tmp_path / "empty").mkdir()
    (tmp_path / "traces" / "copy_1.json").write_text((tmp_path / "traces" / "trace_1.json").read_text())
    (tmp_path / "traces" / "unnamed.json").write_text((tmp_path / "traces" / "trace_1.json").read_text())
    if "unnamed" not in str(arguments):
        (tmp_path / "traces" / "unnamed.json").unlink()
    if "copy" not in str(arguments):
        (tmp_path / "traces" / "copy_1.json").unlink()
    done = run("import", "flight-recorder", *arguments)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_a_misspelt_format_finds_it(run):
    assert 'did you mean "flight-recorder"?' in run("import", "fligt-recorder", "x").stderr


def test_text_of_dumps_does_not_reach_the_terminal_as_it_is(run, tmp_path):
    both(tmp_path, [entry(0, 1, "a\x1b[31m\nb")], [entry(0, 1)])
    done = run("import", "flight-recorder", "traces")
    assert done.returncode == 1 and "\x1b" not in done.stdout
