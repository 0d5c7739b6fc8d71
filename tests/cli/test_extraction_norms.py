# SPDX-License-Identifier: Apache-2.0
"""lockstep check of the norms by which an extraction's ranks clip gradients: what is counted, over all ranks, against one device."""

import json

import extraction
from extraction import Program

AT = "the norm by which gradients are clipped at train.py:20 in main "


def checked(run, tmp_path, *programs, status=1, **more):
    path = extraction.write(tmp_path / "step.json", *programs, **more)
    finished = run("check", path, "-f", "json")
    assert finished.returncode == status, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def found(report):
    """What is wrong: what, of which parameters, on which ranks."""
    return [(one["what"].removeprefix(AT), one["parameters"], one["ranks"]) for one in report["findings"]]


def replicas(*ranks, world=2, over=None, reduce="sum", names=("weight", "bias"), left_out=(), axes=None):
    """Gradients that all ranks have reduced whole; each takes the squares of its own, and sums them over the ranks along `over`."""
    program = Program(*ranks)
    reduced = {}
    for name in names:
        program.parameter(name, 8)
        source = program.contribution(name)
        reduced[name] = program.call("all_reduce", 8, [[0, 8, [["1/%d" % world, source, 0]]]], 8, reduce="sum", group={"axes": axes or ["dp"]})
    squares = [["1", program.square(name), 0] for name in names if name not in left_out]
    if over:
        squares = [["1", program.call("all_reduce", 1, [[0, 1, squares]], 1, reduce=reduce, group={"axes": over}), 0]]
    for name in names:
        program.result(name, [[0, 8, [["1", reduced[name], 0]]]])
    return program.norm(*squares).step().end()


def test_replicas_that_each_take_the_norm_of_all_are_right(run, tmp_path):
    report = checked(run, tmp_path, replicas((0, 2)), status=0)
    assert report["verdict"] == "match" and report["notes"] == [AT + "counts each element of 2 parameters once."]


def test_replicas_are_counted_once(run, tmp_path):
    report = checked(run, tmp_path, replicas((0, 2), over=["dp"]))
    assert report["verdict"] == "mismatch" and {one["verdict"] for one in report["results"]} == {"right"}
    assert found(report) == [("counts elements 2 times instead of once", ["weight", "bias"], [0, 1])]
    finished = run("check", "step.json")
    assert finished.returncode == 1 and "✗ %scounts elements 2 times instead of once\n    " % AT in finished.stdout
    assert found(checked(run, tmp_path, replicas((0, 4), world=4, over=["dp"], reduce="avg"), status=0)) == []


def test_a_parameter_that_is_left_out_is_told(run, tmp_path):
    assert found(checked(run, tmp_path, replicas((0, 2), left_out=["bias"]))) == [("leaves out elements", ["bias"], [0, 1])]


def test_what_has_no_gradient_need_not_be_counted(run, tmp_path):
    """A bias that no pass used, on all ranks, or on the half that one of two ranks owns."""
    program = Program((0, 2)).parameter("weight", 8).parameter("bias", 3)
    source = program.contribution("weight")
    reduced = program.call("all_reduce", 8, [[0, 8, [["1/2", source, 0]]]], 8, reduce="sum", group={"axes": ["dp"]})
    program.norm(["1", program.square("weight"), 0])
    program.result("weight", [[0, 8, [["1", reduced, 0]]]]).result("bias", None)
    assert found(checked(run, tmp_path, program.step().end(), status=0)) == []
    # Of a parameter that has one on another rank the norm leaves something out.
    def with_bias(rank, used):
        own = Program((rank, rank + 1)).parameter("weight", 8).parameter("bias", 3)
        source, bias = own.contribution("weight"), own.contribution("bias") if used else None
        reduced = own.call("all_reduce", 8, [[0, 8, [["1/2", source, 0]]]], 8, reduce="sum", group={"axes": ["dp"]})
        own.norm(["1", own.square("weight"), 0]).result("weight", [[0, 8, [["1", reduced, 0]]]])
        return own.result("bias", [[0, 3, [["1", bias, 0]]]] if used else None).step().end()
    assert ("leaves out elements", ["bias"], [0, 1]) in found(checked(run, tmp_path, with_bias(0, True), with_bias(1, False)))
    halves = []
    for rank in (0, 1):
        own = Program((rank, rank + 1)).parameter("weight", 8, pieces=[{"range": [4 * rank, 4 * rank + 4]}])
        own.result("weight", None)
        halves.append(own.norm().step().end())
    assert found(checked(run, tmp_path, *halves, status=0)) == []


def shards(rank, over=True, whole=False):
    """A reduce-scatter, and the norm of each rank's own half, summed or not; one may have the squares of all."""
    program = Program((rank, rank + 1)).parameter("weight", 8, pieces=[{"range": [0, 8]}, {"range": [4 * rank, 4 * rank + 4]}])
    own = program.contribution("weight")
    part = program.call("reduce_scatter", 8, [[0, 8, [["1/2", own, 0]]]], 4, reduce="sum")
    all_of_it = program.call("all_gather", 4, [[0, 4, [["1", part, 0]]]], 8)
    square = ["1", program.square("weight"), 0]
    if over:
        square = ["1", program.call("all_reduce", 1, [[0, 1, [square]]], 1, reduce="sum"), 0]
    if whole:
        program.result("weight", [[0, 8, [["1", all_of_it, 0]]]], piece=0)
    else:
        program.result("weight", [[0, 4, [["1", part, 0]]]], piece=1)
    return program.norm(square).step().end()


def test_shards_are_summed_over_all_ranks(run, tmp_path):
    assert checked(run, tmp_path, shards(0), shards(1), status=0)["verdict"] == "match"
    assert found(checked(run, tmp_path, shards(0, over=False), shards(1, over=False))) == [("leaves out elements", ["weight"], [0, 1])]
    assert found(checked(run, tmp_path, shards(0, whole=True), shards(1))) == [("counts elements 2 times instead of once", ["weight"], [0, 1])]


def stage(rank, over):
    """A stage of a pipeline, which has a parameter of its own."""
    name = "stage%d.weight" % rank
    program = Program((rank, rank + 1)).parameter(name, 8)
    own = program.contribution(name)
    square = ["1", program.square(name), 0]
    if over:
        square = ["1", program.call("all_reduce", 1, [[0, 1, [square]]], 1, reduce="sum", group={"axes": ["pp"]}), 0]
    return program.result(name, [[0, 8, [["1", own, 0]]]]).norm(square).step().end()


def test_whether_the_norm_of_one_stage_alone_leaves_out_the_others_nobody_says(run, tmp_path):
    """One device may clip them by one norm, or each by its own."""
    axes = {"dp": 1, "pp": 2}
    assert checked(run, tmp_path, stage(0, True), stage(1, True), axes=axes, status=0)["verdict"] == "match"
    report = checked(run, tmp_path, stage(0, False), stage(1, False), axes=axes)
    assert report["verdict"] == "undecided" and found(report) == []
    unknown = "whether the norm by which gradients are clipped at train.py:20 in main is right is not known: "
    assert report["gaps"] == [unknown + "rank 0 clips stage0.weight by it, and no rank that does has stage1.weight, which rank 1 steps with: nothing says"
                              " whether one device would clip both by one norm."]
    # Of one that counts the other and one that does not it is known.
    report = checked(run, tmp_path, stage(0, False), both_stages(1), axes=axes)
    assert [one for one in found(report) if "elements" in one[0]] == [("leaves out elements", ["stage1.weight"], [0])]


def both_stages(rank):
    """A stage that has a copy of the other's parameter, and clips both."""
    program = Program((rank, rank + 1)).parameter("stage0.weight", 8).parameter("stage1.weight", 8)
    own = [program.contribution(name) for name in ("stage0.weight", "stage1.weight")]
    squares = [["1", program.square(name), 0] for name in ("stage0.weight", "stage1.weight")]
    for name, source in zip(("stage0.weight", "stage1.weight"), own):
        program.result(name, [[0, 8, [["1", source, 0]]]])
    return program.norm(*squares).step().end()


def test_what_nobody_knows_of_a_norm_is_a_note(run, tmp_path):
    program = replicas((0, 2))
    norm = next(event for event in program.events if event["event"] == "norm")
    norm["content"] = [[0, 1, "aten::exp at train.py:19 in main"]]
    unknown = "whether the norm by which gradients are clipped at train.py:20 in main is right is not known: "
    assert checked(run, tmp_path, program, status=0)["notes"] == [unknown + "aten::exp at train.py:19 in main."]
    norm["content"] = [[0, 1, [["1", 0, 0]]]]  # a contribution
    assert checked(run, tmp_path, program, status=0)["notes"] == [unknown + "a gradient is added to sums of squares."]
    norm["content"] = []
    assert checked(run, tmp_path, program, status=0)["notes"] == [unknown + "what is there was not followed."]
    program = replicas((0, 2))
    next(event for event in program.events if event["event"] == "norm")["parameters"] = [0]
    assert checked(run, tmp_path, program, status=0)["notes"] == [unknown + "squares of a parameter that it does not clip are in it."]
    one, other = replicas((0, 1)), replicas((1, 2))
    other.events = [event for event in other.events if event["event"] != "norm"]
    report = checked(run, tmp_path, one, other)
    assert report["notes"] == [unknown + "1 of 2 ranks clip by it."] and report["verdict"] == "undecided"
    assert "rank 0 clips it by a norm, and rank 1, which steps with it too, does not" in json.dumps(report["findings"])


def test_squares_are_no_gradients(run, tmp_path):
    program = replicas((0, 2))
    square = next(event for event in program.events if event["event"] == "square")["source"]
    result = next(event for event in program.events if event["event"] == "result")
    result["content"][0][2] = []
    result["content"] = [[0, 1, [["1", square, 0]]], [1, 7, []]]
    report = checked(run, tmp_path, program)
    assert "what the optimizer gets is not known: sums of squares are added to gradients" in json.dumps(report)


def test_two_clippings_are_told_apart(run, tmp_path):
    program = replicas((0, 2))
    program.events = [event for event in program.events if event["event"] not in ("norm", "step", "end")]
    squares = [event["source"] for event in program.events if event["event"] == "square"]
    program.norm(["1", squares[0], 0], names=["weight"], call="a.py:1 in a").norm(["2", squares[1], 0], names=["bias"], call="b.py:1 in b").step().end()
    report = checked(run, tmp_path, program)
    assert [one["what"] for one in report["findings"]] == ["the norm by which gradients are clipped at b.py:1 in b counts elements 2 times instead of once"]
    assert report["notes"] == ["the norm by which gradients are clipped at a.py:1 in a counts each element of 1 parameter once."]


def clipped_apart(rank, first, second):
    """Replicas, of which a rank clips these names by one norm, and then those by another."""
    program = replicas((rank, rank + 1))
    squares = dict(zip(("weight", "bias"), [event["source"] for event in program.events if event["event"] == "square"]))
    program.events = [event for event in program.events if event["event"] not in ("norm", "step", "end")]
    for names in filter(None, (first, second)):
        program.norm(*(["1", squares[name], 0] for name in names), names=names)
    return program.step().end()


def test_clippings_are_known_by_what_they_clip(run, tmp_path):
    report = checked(run, tmp_path, clipped_apart(0, ["weight"], ["bias"]), clipped_apart(1, ["bias"], ["weight"]), status=0)
    assert report["notes"] == [AT + "counts each element of 1 parameter once."]
    report = checked(run, tmp_path, clipped_apart(0, ["weight"], ["bias"]), clipped_apart(1, ["weight", "bias"], []))
    assert found(report) == [("leaves out elements", ["weight", "bias"], [0])]
    report = checked(run, tmp_path, clipped_apart(0, ["weight"], ["weight"]), clipped_apart(1, ["weight"], []))
    assert report["verdict"] == "undecided" and "rank 1, which steps with weight too, does not clip it by that norm" in report["gaps"][0]


def test_the_norm_of_what_a_loss_scaler_has_scaled_is_wrong(run, tmp_path):
    program = replicas((0, 2))
    next(event for event in program.events if event["event"] == "norm").update(loss_scale=1024, content=[[0, 1, "the scale is in it"]])
    assert found(checked(run, tmp_path, program)) == [("is 1024 times that of the gradients: a loss scaler's scale is in them", ["weight", "bias"], [0, 1])]


def test_mistakes_in_a_file_are_told_with_their_place(run, tmp_path):
    for change, said in ((lambda square, norm: square.update(parameter=9), "parameter 9 was not declared"),
                         (lambda square, norm: square.update(source=7), "expected source 4, the next one, found the number 7"),
                         (lambda square, norm: norm.update(parameters=[9]), "parameter 9 was not declared"),
                         (lambda square, norm: norm.update(content=[[0, 2, []]]), "how many elements: expected a whole number from 1 to 1"),
                         (lambda square, norm: norm.update(step=1), 'a norm of optimizer step 1, which has no "step" event'),
                         (lambda square, norm: square.update(step=1), 'squares of optimizer step 1, which has no "step" event'),
                         (lambda square, norm: norm.update(loss_scale=0), "loss_scale"),
                         (lambda square, norm: norm.pop("content"), 'missing key "content" in a "norm" event'),
                         (lambda square, norm: square.pop("source"), 'missing key "source" in a "square" event')):
        program = replicas((0, 2))
        change(*(next(event for event in program.events if event["event"] == kind) for kind in ("square", "norm")))
        path = extraction.write(tmp_path / "step.json", program)
        finished = run("check", path)
        assert finished.returncode == 2 or "error" in finished.stdout + finished.stderr
        assert said in finished.stdout + finished.stderr, said


def test_what_no_optimizer_gets_is_told_as_such_and_not_of_the_norm(run, tmp_path):
    program = Program((0, 2)).parameter("weight", 8).parameter("bias", 3)
    source, bias = program.contribution("weight"), program.contribution("bias")
    reduced = program.call("all_reduce", 8, [[0, 8, [["1/2", source, 0]]]], 8, reduce="sum", group={"axes": ["dp"]})
    assert bias is not None
    program.norm(["1", program.square("weight"), 0], ["1", program.square("bias"), 0]).result("weight", [[0, 8, [["1", reduced, 0]]]])
    assert [one["what"] for one in checked(run, tmp_path, program.step().end())["findings"] if "norm" in one["what"]] == []
