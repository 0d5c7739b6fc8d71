# SPDX-License-Identifier: Apache-2.0
"""How a reduction cuts, as the section "schedule" of the scenario format describes it."""

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    message,
    messages,
    owned,
    parameter,
    run,
    scenario,
    show,
    step,
    verdicts,
    write,
)


def scattered(geometry, sizes, n, **keys):
    """A scenario whose parameters a, b, … of these sizes (or shapes) are scattered over n ranks."""
    shapes = [size if isinstance(size, list) else [size] for size in sizes]
    parameters = [parameter("abcdefgh"[index], shape) for index, shape in enumerate(shapes)]
    steps = [
        backward(),
        step("x", "reduce_scatter", over="dp", reduce="avg", **({"geometry": geometry} if geometry else {})),
    ]
    return scenario(steps, keys.pop("parameters", parameters), {"dp": n, **keys.pop("layout", {})}, **keys)


def slices(geometry, sizes, n, **keys):
    """{parameter: [[begin, end] of each rank]}, from the report and from `show`, which agree."""
    content = scattered(geometry, sizes, n, **keys)
    report = check(content)
    assert report["verdict"] == "match", report["errors"]
    result = {}
    for entry in report["parameters"]:
        mine = owned(report, entry["name"])
        result[entry["name"]] = [mine[rank][0] if rank in mine else [] for rank in range(n)]
        assert all(len(intervals) == 1 for intervals in mine.values())
    for entry in show(content)["geometry"][0]["parameters"]:
        assert [part if part[0] < part[1] else [] for part in entry["slices"]] == result[entry["name"]]
    return result


def buckets(geometry, sizes, n, **keys):
    """[(begin, end, [(name, begin)])] of each bucket."""
    found = show(scattered(geometry, sizes, n, **keys))["geometry"][0]
    return [
        (
            bucket["begin"],
            bucket["end"],
            sorted((entry["name"], entry["begin"]) for entry in found["parameters"] if entry["bucket"] == number),
        )
        for number, bucket in enumerate(found["buckets"])
    ]


def test_the_example_of_three_ways_to_cut():
    plain = {"align_parameter": 1, "align_bucket": "n"}
    assert slices({"kind": "parameter"}, [2, 4], 2) == {"a": [[0, 1], [1, 2]], "b": [[0, 2], [2, 4]]}
    assert slices({"kind": "flat"}, [2, 4], 2) == {"a": [[0, 2], []], "b": [[0, 1], [1, 4]]}
    assert slices({"kind": "bucket", **plain}, [2, 4], 2) == {"a": [[], [0, 2]], "b": [[0, 3], [3, 4]]}


def test_parameter_is_the_default_and_gives_ceil_of_numel_over_n_elements_each():
    # ceil(10/4) = 3: 3, 3, 3, 1. ceil(9/4) = 3: 3, 3, 3, nothing. A parameter smaller than the group; a scalar.
    expected = {
        "a": [[0, 3], [3, 6], [6, 9], [9, 10]],
        "b": [[0, 3], [3, 6], [6, 9], []],
        "c": [[0, 1], [1, 2], [], []],
        "d": [[0, 1], [], [], []],
    }
    sizes = [10, [3, 3], 2, []]
    assert slices(None, sizes, 4) == slices({"kind": "parameter"}, sizes, 4) == expected
    # ceil(5/4) = 2: 2, 2, 1, nothing.
    assert slices(None, [5], 4) == {"a": [[0, 2], [2, 4], [4, 5], []]}


def test_rows_cuts_rows_of_dimension_0_of_the_local_tensor():
    # 5 rows of 3 over 2: 3 rows and 2. 1 row over 2. A vector's rows are its elements. A scalar.
    assert slices({"kind": "rows"}, [[5, 3], [1, 7], [3], []], 2) == {
        "a": [[0, 9], [9, 15]],
        "b": [[0, 7], []],
        "c": [[0, 2], [2, 3]],
        "d": [[0, 1], []],
    }
    # Rows of the local tensor: 6 rows over tp 2 are 3; 4 columns over tp 2 are rows of 2.
    parameters = [parameter("rows", [6, 2], shard={"tp": 0}), parameter("columns", [3, 4], shard={"tp": 1})]
    report = check(scattered({"kind": "rows"}, [], 2, parameters=parameters, layout={"tp": 2}))
    # 3 local rows of 2 over dp 2: 2 rows and 1. Rank = tp + 2 dp.
    for name in ("rows", "columns"):
        assert owned(report, name) == {0: [[0, 4]], 1: [[0, 4]], 2: [[4, 6]], 3: [[4, 6]]}


def test_flat_lays_the_selected_parameters_out_in_model_order_without_gaps():
    # a [0,5), b [5,7), c [7,11); 11 rounded up to 12, cut at 4 and 8.
    # b lies in [4,8) whole, of c one element.
    assert slices({"kind": "flat"}, [5, 2, 4], 3) == {
        "a": [[0, 4], [4, 5], []],
        "b": [[], [0, 2], []],
        "c": [[], [0, 1], [1, 4]],
    }
    # Only the selected ones.
    content = scenario(
        [
            backward(),
            step("x", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "flat"}, params=["c", "a"]),
            step("y", "all_reduce", over="dp", reduce="avg", params=["b"]),
        ],
        [parameter("a", [3]), parameter("b", [9]), parameter("c", [3])],
        {"dp": 2},
    )
    assert show(content)["geometry"][0]["buckets"][0]["end"] == 6
    assert owned(check(content), "a") == {0: [[0, 3]]} and owned(check(content), "c") == {1: [[0, 3]]}


def test_flat_rounds_the_total_up_to_align_which_is_n_by_default():
    assert buckets({"kind": "flat"}, [5, 2], 4)[0][:2] == (0, 8)
    assert buckets({"kind": "flat", "align": 10}, [5, 2], 2)[0][:2] == (0, 10)
    assert buckets({"kind": "flat", "align": "3*n"}, [5, 2], 4)[0][:2] == (0, 12)
    assert slices({"kind": "flat", "align": 12}, [5, 2], 2) == {"a": [[0, 5], []], "b": [[0, 1], [1, 2]]}


def test_bucket_is_in_reverse_model_order_with_aligned_starts_and_ends():
    # c [0,10), b from 64 [64,70), a from 128 [128,228): 228 rounded up to 256 = lcm(4, 128) * 2.
    assert buckets({"kind": "bucket"}, [100, 6, 10], 4) == [(0, 256, [("a", 128), ("b", 64), ("c", 0)])]
    # Slices of 64: c on rank 0, b on rank 1, a on ranks 2 and 3.
    assert slices({"kind": "bucket"}, [100, 6, 10], 4) == {
        "a": [[], [], [0, 64], [64, 100]],
        "b": [[], [0, 6], [], []],
        "c": [[0, 10], [], [], []],
    }


def test_one_bucket_where_no_size_is_given():
    assert len(buckets({"kind": "bucket"}, [1000, 2000, 3000], 2)) == 1


def test_the_defaults_are_64_and_lcm_of_n_and_128():
    given = {"kind": "bucket", "align_parameter": 64, "align_bucket": "lcm(n,128)", "separate": []}
    for n in (2, 3):
        assert buckets({"kind": "bucket"}, [100, 6, 10], n) == buckets(given, [100, 6, 10], n)
    assert buckets({"kind": "bucket"}, [6], 3) == [(0, 384, [("a", 0)])]
    assert buckets({"kind": "bucket", "align_parameter": 1, "align_bucket": "n"}, [5, 2, 4], 4) == [
        (0, 12, [("a", 6), ("b", 4), ("c", 0)])
    ]


def test_a_bucket_closes_after_the_parameter_that_brings_its_length_to_size():
    exact = {"kind": "bucket", "align_parameter": 1, "align_bucket": 2, "size": 10}
    # d 4, c 6: exactly 10, closed. b 9: one short, so a joins: 9 + 2, rounded up to 12.
    assert buckets(exact, [2, 9, 6, 4], 2) == [(0, 10, [("c", 4), ("d", 0)]), (10, 22, [("a", 19), ("b", 10)])]
    # One element more is wanted: d, c and b together, rounded up to 20.
    assert buckets({**exact, "size": 11}, [2, 9, 6, 4], 2) == [
        (0, 20, [("b", 10), ("c", 4), ("d", 0)]),
        (20, 22, [("a", 20)]),
    ]
    # The length runs from the bucket's begin to the parameter's end, gaps included: 10, then from 64: 64 + 10 = 74.
    assert buckets({"kind": "bucket", "size": 74}, [1, 10, 10], 2) == [
        (0, 128, [("b", 64), ("c", 0)]),
        (128, 256, [("a", 128)]),
    ]
    assert buckets({"kind": "bucket", "size": 75}, [1, 10, 10], 2) == [(0, 256, [("a", 128), ("b", 64), ("c", 0)])]


def test_positions_run_through_all_buckets():
    # Each bucket ends at a multiple of 3, a start is rounded up to 2: from 3 to 4, from 9 to 10.
    found = buckets({"kind": "bucket", "align_parameter": 2, "align_bucket": 3, "size": 1}, [1, 5, 2], 3)
    assert found == [(0, 3, [("c", 0)]), (3, 9, [("b", 4)]), (9, 12, [("a", 10)])]


def test_a_bucket_closes_before_and_after_a_separate_parameter():
    one = {"kind": "bucket", "align_parameter": 1, "align_bucket": 2}
    assert buckets({**one, "separate": ["c"]}, [2, 2, 2, 2, 2], 2) == [
        (0, 4, [("d", 2), ("e", 0)]),
        (4, 6, [("c", 4)]),
        (6, 10, [("a", 8), ("b", 6)]),
    ]
    # At an end, and two of them side by side: no empty buckets.
    assert buckets({**one, "separate": ["e", "d"]}, [2, 2, 2, 2, 2], 2) == [
        (0, 2, [("e", 0)]),
        (2, 4, [("d", 2)]),
        (4, 10, [("a", 8), ("b", 6), ("c", 4)]),
    ]
    assert buckets({**one, "separate": ["numel>2"]}, [2, 4, 2], 2) == [
        (0, 2, [("c", 0)]),
        (2, 6, [("b", 2)]),
        (6, 8, [("a", 6)]),
    ]


def test_each_bucket_is_cut_equally():
    one = {"kind": "bucket", "align_parameter": 1, "align_bucket": 4, "separate": ["b"]}
    # c 3 in [0,4), b 5 in [4,12), a 2 in [12,16): halves at 2, 8 and 14.
    assert slices(one, [2, 5, 3], 2) == {"a": [[0, 2], []], "b": [[0, 4], [4, 5]], "c": [[0, 2], [2, 3]]}


def test_n_is_the_groups_size_and_all_numbers_may_be_expressions():
    geometry = {"kind": "bucket", "size": "5*n", "align_parameter": "n", "align_bucket": "max(n, 2)*3"}
    # n 2: c [0,4), b [4,9), 9 rounded up to 12 ... c brings 4, b starts at 4 and brings 9, a at 10 brings 13: closed at 18.
    assert buckets(geometry, [3, 5, 4], 2) == [(0, 18, [("a", 10), ("b", 4), ("c", 0)])]
    # It is the group's, not the world's.
    content = scenario(
        [
            backward(),
            step("x", "reduce_scatter", over="dp_shard", reduce="avg", geometry={"kind": "flat", "align": "3*n"}),
            step("y", "all_reduce", over="dp_replicate", reduce="avg"),
        ],
        [W],
        {"dp_shard": 2, "dp_replicate": 3},
    )
    assert show(content)["geometry"][0]["buckets"][0]["end"] == 6
    assert verdicts(content) == ["match"]
    assert messages(scattered({"kind": "flat", "align": "0"}, [4], 2))
    assert messages(scattered({"kind": "flat", "align": "n/4"}, [4], 2))


def test_flat_and_bucket_are_built_per_chunk_and_dtype():
    parameters = [
        parameter("a", [3]),
        parameter("b", [3], chunk=1),
        parameter("c", [3], dtype="float64"),
        parameter("d", [3]),
    ]
    for geometry, expected in (
        ({"kind": "flat"}, [(0, "float32", 6), (0, "float64", 4), (1, "float32", 4)]),
        (
            {"kind": "bucket", "align_parameter": 1, "align_bucket": 2},
            [(0, "float32", 6), (0, "float64", 4), (1, "float32", 4)],
        ),
    ):
        content = scattered(geometry, [], 2, parameters=parameters, layout={"virtual_stages": 2})
        found = show(content)["geometry"][0]["buckets"]
        assert sorted((entry["chunk"], entry["dtype"], entry["end"] - entry["begin"]) for entry in found) == expected
        report = check(content)
        assert report["verdict"] == "match"
        assert owned(report, "b") == owned(report, "c") == {0: [[0, 2]], 1: [[2, 3]]}
    # A parameter by itself has no neighbours to be apart from.
    assert slices({"kind": "parameter"}, [3], 2) == {"a": [[0, 2], [2, 3]]}


def test_a_bucket_that_n_does_not_divide_is_an_error():
    for geometry, key in (
        ({"kind": "bucket", "align_bucket": 128}, "align_bucket"),
        ({"kind": "flat", "align": 4}, "align"),
    ):
        text = message(scattered(geometry, [4], 3))
        assert key in text and "3" in text
    assert verdicts(scattered({"kind": "bucket", "align_bucket": 129}, [4], 3)) == ["match"]


def by_counts(counts, sizes, n, **keys):
    content = scattered({"kind": "counts", "counts": counts}, sizes, n, **keys)
    next(each for each in content["schedule"]["steps"] if each["name"] == "x")["op"] = "reduce_scatter_v"
    return content


def test_counts_give_each_member_its_parts():
    content = by_counts([2, 0, 1], [6, 3], 3)
    report = check(content)
    assert report["verdict"] == "match", report["errors"]
    assert owned(report, "a") == {0: [[0, 4]], 2: [[4, 6]]}
    assert owned(report, "b") == {0: [[0, 2]], 2: [[2, 3]]}
    shown = show(content)["geometry"][0]["parameters"]
    assert [part for part in shown[0]["slices"] if part[0] < part[1]] == [[0, 4], [4, 6]]
    # An all_gather puts them together again, and lengths are counts of one element each.
    content["schedule"]["steps"].append(step("gather", "all_gather", over="dp"))
    assert owned(check(content), "a") == {rank: [[0, 6]] for rank in range(3)}
    assert owned(check(by_counts([1, 3, 3], [7], 3)), "a") == {0: [[0, 1]], 1: [[1, 4]], 2: [[4, 7]]}


def test_counts_must_fit_the_group_and_divide_the_parameter():
    assert "expected a count for each member of the group, 3" in message(by_counts([1, 1], [6], 3))
    assert "cannot be cut into 4 equal parts" in message(by_counts([2, 1, 1], [6], 3))
    assert "nobody would get anything" in message(by_counts([0, 0, 0], [6], 3))
    assert "fewer than 2^31" in message(by_counts([2**30, 2**30, 0], [2**31], 3))
    assert "2^31" not in message(by_counts([2**30, 2**30 - 1, 0], [2**31], 3))


def test_counts_are_for_reduce_scatter_v_which_meets_only_its_like():
    assert "reduce_scatter_v" in message(scattered({"kind": "counts", "counts": [2, 1]}, [6], 2))
    # The same slices, by another call.
    content = scattered({"kind": "rows"}, [6], 2)
    other = {**next(each for each in content["schedule"]["steps"] if each["name"] == "x"), "name": "y"}
    other.update(op="reduce_scatter_v", when="rank.dp == 1")
    content["schedule"]["steps"][-1]["when"] = "rank.dp == 0"
    content["schedule"]["steps"].append(other)
    assert verdicts(content) == ["invalid_collective"]
    other["when"] = content["schedule"]["steps"][-2]["when"] = "true"
    content["schedule"]["steps"].remove(content["schedule"]["steps"][-2])
    assert verdicts(content) == ["match"]


def test_prove_does_not_follow_counts():
    done = run("prove", str(write(by_counts([2, 1], [6], 2))))
    assert "no proof for every size" in done.stdout and "fit groups of one size" in done.stdout
    content = by_counts([2, 1], [6], 2)
    content["schedule"]["steps"][1]["geometry"] = {"kind": "rows"}
    assert "no proof for every size" not in run("prove", str(write(content))).stdout


def test_all_gather_uses_the_cut_of_what_it_undoes():
    for geometry in (
        {"kind": "flat"},
        {"kind": "bucket"},
        {"kind": "rows"},
        {"kind": "bucket", "size": 1, "align_parameter": 1, "align_bucket": "n"},
    ):
        content = scattered(geometry, [[5, 2], 7, []], 3)
        # The gather's own geometry does not matter, nor which of the parameters it takes.
        content["schedule"]["steps"] += [
            step("g", "all_gather", over="dp", params=["b"], geometry={"kind": "parameter"}),
            step("h", "all_gather", over="dp", params=["!b"]),
        ]
        report = check(content)
        assert report["verdict"] == "match"
        assert owned(report, "a") == {rank: [[0, 10]] for rank in range(3)}
        assert_held(report, "b", {rank: "1/3: g0 g1 g2" for rank in range(3)})
