# SPDX-License-Identifier: Apache-2.0
"""What a script does that a capture cannot know is undecided, with a sentence; what it can know is judged (docs/capture.md)."""

import pytest

from torch_ranks import HERE, PROGRAM, ran, torch_python

import sys

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

NOT_JUDGED = ": what the optimizers get of %s is not judged."
ALL = "0.weight and 3 others"
ZEROED = ("in optimizer step 1, gradients were set to zero before micro-batch 1, and in others not: nobody knows whether what came before is to be"
          " in it.")
SAME = ("every data-parallel rank yielded the same gradients: they read the same data, or the gradients were reduced before; whether they were added up"
        " cannot be seen")
CLIPPED = ("gradients were clipped, and the next backward pass came before any optimizer stepped with them: clip once, after the last micro-batch")
UNSAID = ("ranks along tp yield different gradients of it, and nothing says whether they hold different parts of it or shares of one gradient")
DIFFERENT = "; they begin with different weights of it, as parts do, and copies that were initialised apart"
EQUAL = "; they begin with the same weights of it, as copies do, and parts that were initialised alike"
SHARDS = ": shards= of the capture tells parts"  # where the weights say what to tell
APART = ("ranks along dp begin with different weights of 0.weight and 3 others: copies were initialised apart and train different models, or these are"
         " different parts or experts.")
CHANGED = "it was right before it was clipped, and was changed between clipping and the optimizer's step"
BROUGHT = ("in optimizer steps 0 and 1, within the backward pass its gradient gets what other ranks have put in at gaps_of_exchanges.py:%s, so that what this"
           " rank itself contributes is not known" + NOT_JUDGED % "0.weight")
SCATTERS = next(number for number, text in enumerate((HERE / "gaps_of_parts.py").read_text().splitlines(), 1) if "dist.reduce_scatter_tensor(" in text)
STAGES = ("stages along pp have 0.bias and 1 other under one name and begin with different weights: they are taken as different parameters, pp0.0.bias and"
          " so on.")
UNDIVIDED = ("the pipeline's schedule calls backward on 4 means that nothing divides by 4 (scale_grads=False): the gradient is 4 times their mean, unless"
             " something divides it afterwards: what the optimizers get is not judged.")
SEEN = ("the loss is taken for local_mean: by autograd's graph each backward is of a mean over a rank's part of the batch, divided for the micro-batches, and"
        " DistributedDataParallel averages over ranks, of which each has means of %d elements. loss= of the capture, or --loss, says what else it is.")
UNSEEN = ("whether something divides the losses of the micro-batches by their number is not known: autograd's graph does not show it, and local_mean takes it"
          " for granted.")
OF_ALL = ("what each rank differentiates is not known, so contributions are compared with each other: one coefficient for all is right. --loss says more.")
# By case: the verdict; how many results are right, wrong and undecided; the steps that were judged; and what is said as a gap, a note or a finding.
EXPECTED = {
    "head_of_its_own": ("undecided", (8, 0, 0), [0, 1], "in optimizer steps 0 and 1, an optimizer gets gradients of 2 parameters that the captured"
                        " model has not, of the shapes [2, 4], [2]."),
    "frozen_head_of_its_own": ("match", (8, 0, 0), [0, 1], None),
    "unfrozen": ("match", (6, 0, 0), [0, 1], None),
    "unfrozen_unreduced": ("mismatch", (4, 4, 0), [0, 1], "no other data-parallel rank's contribution arrived, and its own came with 1 where 1/2 was expected"),
    "unfrozen_unseen": ("undecided", (2, 0, 0), [0], "in optimizer step 0, an optimizer gets a gradient of what was frozen, and no backward pass was"
                        " seen that yields it" + NOT_JUDGED % "2.weight and 1 other"),
    "adversaries": ("match", (8, 0, 0), [0, 1, 2, 3], None),
    "in_turn": ("match", (12, 0, 0), [0, 1, 2, 3], None),
    "in_turn_unreduced": ("mismatch", (0, 24, 0), [0, 1, 2, 3], None),
    "one_call": ("match", (8, 0, 0), [0, 1], None),
    "several_calls": ("match", (24, 0, 0), [0, 1, 2, 3, 4, 5], None),
    "last_of_several": ("match", (8, 0, 0), [0, 1], None),
    "no_call": ("match", (8, 0, 0), [0, 1], None),
    "left_over": ("match", (8, 0, 0), [0, 1], "1 micro-batch after the last optimizer step: no optimizer got what it yielded."),
    "new_optimizer": ("undecided", (4, 0, 0), [0], "2 micro-batches after the last optimizer step that was captured: parameters were changed and gradients"
                      " set to zero between micro-batches; parameters were changed, and no optimizer that was captured has stepped: what an optimizer got of"
                      " what they yielded is not judged."),
    "new_optimizer_for_one_batch": ("undecided", (4, 0, 0), [0], "1 micro-batch after the last optimizer step that was captured: parameters were changed, and"
                                    " no optimizer that was captured has stepped: what an optimizer got of what it yielded is not judged."),
    "stepped_by_hand_past_torch": ("undecided", (4, 0, 0), [0], "1 micro-batch after the last optimizer step that was captured: parameters were changed, and"
                                   " no optimizer that was captured has stepped: what an optimizer got of what it yielded is not judged."),
    "leaves": ("match", (4, 0, 0), [0], None),
    "leaves_with_0": ("match", (4, 0, 0), [0], None),
    "leaves_with_1": ("undecided", (4, 0, 0), [0], "ranks 0 and 1 did not end the capture: the last lines are missing."),
    "begins_in_the_middle": ("undecided", (4, 0, 4), [0, 1], "in optimizer step 0, gradients of before the capture are not zero as its first backward"
                             " pass begins" + NOT_JUDGED % ALL),
    "begins_with_zeros": ("match", (8, 0, 0), [0, 1], None),
    "skipped_batch": ("undecided", (8, 0, 4), [0, 1, 2], ZEROED),
    "skipped_batch_of_zeros": ("undecided", (8, 0, 4), [0, 1, 2], ZEROED),
    "skipped_batch_of_tokens": ("undecided", (8, 0, 4), [0, 1, 2], ZEROED),
    "skipped_batch_without_numbers": ("match", (12, 0, 0), [0, 1, 2], "in optimizer step 1, micro-batches with elements that are infinite or no numbers"
                                      " were left out: gradients were set to zero after them."),
    "skipped_every_second_batch": ("mismatch", (0, 8, 0), [0, 1], "the last micro-batch alone arrived"),
    "skipped_batches_that_were_used": ("undecided", (0, 0, 8), [0, 1], "in optimizer steps 0 and 1, parameters were changed and gradients set to zero between"
                                       " micro-batches" + NOT_JUDGED % ALL),
    "norm_for_a_log": ("match", (8, 0, 0), [0, 1], None),
    "norm_below_the_limit": ("match", (8, 0, 0), [0, 1], None),
    "clipped_before_the_reduction": ("undecided", (0, 0, 24), [0, 1, 2, 3], "in optimizer steps 0 and 2, " + CLIPPED + NOT_JUDGED % ALL),
    "clipped_after_the_reduction": ("match", (8, 0, 0), [0, 1], None),
    "clipped_by_layers_and_values": ("match", (8, 0, 0), [0, 1], None),
    "clipped_with_a_loss_scale": ("match", (8, 0, 0), [0, 1], None),
    "stepped_past_the_loss_scaler": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 512 where 1/2 was expected: uniform factor 1024,"
                                     " invisible to Adam"),
    "stepped_past_the_loss_scaler_and_fused": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 512 where 1/2 was expected: uniform factor"
                                               " 1024, invisible to Adam"),
    "stepped_past_the_loss_scaler_and_divided": ("match", (8, 0, 0), [0, 1], None),
    "stepped_by_the_loss_scaler_and_fused": ("match", (8, 0, 0), [0, 1], None),
    "stepped_by_the_loss_scaler_and_divided": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 1/2048 where 1/2 was expected: uniform factor"
                                               " 1/1024, invisible to Adam"),
    "stepped_by_the_loss_scaler_in_wrappers": ("match", (8, 0, 0), [0, 1], None),
    "scaled_after_clipping_with_a_loss_scale": ("undecided", (0, 0, 8), [0, 1], CHANGED),
    "scaled_after_clipping": ("undecided", (0, 0, 8), [0, 1], CHANGED),
    "reduced_again_after_clipping": ("undecided", (0, 0, 8), [0, 1], CHANGED),
    "replaced_after_clipping": ("undecided", (0, 0, 8), [0, 1], CHANGED),
    "dropped_after_clipping": ("undecided", (6, 0, 2), [0, 1], CHANGED),
    "clipped_to_another_norm_on_each_rank": ("undecided", (0, 0, 8), [0, 1], "it was right before it was clipped, and ranks clipped the same gradient to"
                                             " different ones"),
    "clipped_on_one_rank": ("undecided", (0, 0, 8), [0, 1], "it was right before it was clipped, and ranks clipped the same gradient to different ones"),
    "hook_after_the_capture_began": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 3/2 where 1/2 was expected: uniform factor 3, invisible"
                                     " to Adam"),
    "hook_after_the_capture_began_that_reduces": ("match", (8, 0, 0), [0, 1], None),
    "hook_after_the_capture_began_and_clipping": ("undecided", (0, 0, 8), [0, 1], CHANGED),
    "values_below_the_limit": ("match", (8, 0, 0), [0, 1], None),
    "gradients_of_torch_func": ("undecided", (0, 0, 8), [0, 1], "the optimizer gets a gradient, and no backward pass was seen that yields one"),
    "same_data": ("undecided", (0, 0, 8), [0, 1], SAME),
    "same_data_unreduced": ("undecided", (0, 0, 8), [0, 1], SAME),
    "same_data_in_one_step": ("undecided", (4, 0, 4), [0, 1], SAME),
    "loss_of_all": ("undecided", (0, 0, 8), [0, 1], SAME),
    "tensor_parallel_by_hand": ("undecided", (4, 0, 4), [0, 1], UNSAID + DIFFERENT + SHARDS),
    "tensor_parallel_by_hand_that_is_told": ("match", (8, 0, 0), [0, 1], None),
    "tensor_parallel_by_hand_of_equal_parts": ("undecided", (4, 0, 4), [0, 1], UNSAID + EQUAL + SHARDS),
    "tensor_parallel_by_hand_of_equal_parts_that_is_told": ("match", (8, 0, 0), [0, 1], "ranks begin with the same numbers in different parts of"
                                                            " embedding.weight: parts that were initialised alike train alike until something tells them"
                                                            " apart."),
    "copies_of_a_layer_that_were_initialised_apart": ("undecided", (4, 0, 8), [0, 1], UNSAID + DIFFERENT + SHARDS),
    "copies_that_were_initialised_apart": ("undecided", (8, 0, 0), [0, 1], APART),
    "reduced_in_a_backward_of_its_own": ("undecided", (4, 0, 4), [0, 1], "in optimizer steps 0 and 1, within the backward pass its gradient gets what other"
                                         " ranks have put in at gaps_of_parts.py:%d in backward, so that what this rank itself contributes is not known"
                                         % SCATTERS + NOT_JUDGED % "part"),
    "scattered_and_gathered_in_backward": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "16 in scattered_and_gathered"),
    "gathered_in_backward": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "22 in gathered"),
    "gathered_and_averaged_in_backward": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "22 in gathered"),
    "broadcast_in_backward": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "28 in from_the_first"),
    "exchanged_by_two_in_backward": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "35 in with_the_other"),
    "gathered_by_a_hook_of_before": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "22 in gathered"),
    "gathered_in_backward_with_a_pass_within": ("undecided", (6, 0, 2), [0, 1], BROUGHT % "22 in gathered"),
    "tokens_that_are_exchanged": ("match", (8, 0, 0), [0, 1], None),
    "gathered_in_step": ("undecided", (0, 0, 16), [0, 1], "in optimizer steps 0 and 1, a collective exchanges the gradient within the optimizer's own step,"
                         " after the capture has looked at it" + NOT_JUDGED % ALL),
    "shares_of_a_sum": ("mismatch", (0, 2, 0), [0, 1], "every contribution came with 1 where 1/2 was expected: uniform factor 2, invisible to Adam"),
    "shares_of_a_mean": ("undecided", (0, 0, 2), [0, 1], 'in optimizer steps 0 and 1, the gradient that its optimizer gets is Partial("avg"): captures know'
                         " shares of a sum alone" + NOT_JUDGED % "weight"),
    "shares_that_the_optimizer_averages": ("undecided", (0, 0, 2), [0, 1], "in optimizer steps 0 and 1, its optimizer gets shares of the gradient, and what"
                                           " its own step makes of them is not seen" + NOT_JUDGED % "weight"),
    "experts_by_hand": ("undecided", (0, 0, 16), [0, 1], APART),
    "stages_of_torch": ("match", (8, 0, 0), [0, 1], "stages along pp have 0.bias and 1 other under one name and begin with different weights: they are taken"
                        " as different parameters, pp0.0.bias and so on."),
    "stages_of_torch_that_are_not_divided": ("undecided", (0, 0, 8), [0, 1], "on rank 1, in optimizer steps 0 and 1, " + UNDIVIDED),
    "stages_of_torch_that_are_divided_by_hand": ("undecided", (0, 0, 8), [0, 1], "on rank 1, in optimizer steps 0 and 1, " + UNDIVIDED),
    "stages_of_torch_that_add_up_two_means": ("undecided", (0, 0, 8), [0, 1], "on rank 1, in optimizer steps 0 and 1, " + UNDIVIDED),
    "stages_of_torch_that_their_loss_divides": ("match", (8, 0, 0), [0, 1], STAGES),
    "stages_of_torch_that_are_divided_twice": ("undecided", (0, 0, 8), [0, 1], "on rank 1, in optimizer steps 0 and 1, the pipeline's schedule calls backward"
                                               " on 4 means that are divided by 4, and divides the gradients by 4 once more: the gradient is 1/4 of their"
                                               " mean, unless something multiplies it afterwards: what the optimizers get is not judged."),
    "stages_of_torch_with_sums": ("match", (8, 0, 0), [0, 1], STAGES),
    "stages_of_torch_with_sums_that_are_divided": ("undecided", (0, 0, 8), [0, 1], "on rank 1, in optimizer steps 0 and 1, the pipeline's schedule calls"
                                                   " backward on 4 sums, and divides the gradients by 4: the gradient is 1/4 of what they add up to"
                                                   " (scale_grads=False leaves it whole), unless something multiplies it afterwards: what the optimizers get"
                                                   " is not judged."),
    "stages_of_torch_that_are_mixed": ("mismatch", (0, 8, 0), [0, 1], "stages along pp have 0.bias and 1 other under one name and begin with different"
                                       " weights: they are taken as different parameters, pp0.0.bias and so on."),
    "stages_of_torch_that_begin_alike": ("undecided", (0, 0, 8), [0, 1], "stages along pp have it under one name and begin with the same weights, yield"
                                         " different gradients of it, and no collective adds these up: it may be one parameter, whose gradient is then not"
                                         " complete, or several that were initialised alike"),
    "stages_of_torch_and_a_loss_of_their_own": ("match", (8, 0, 0), [0, 1], "stages along pp have 0.bias and 1 other under one name and begin with"
                                                " different weights: they are taken as different parameters, pp0.0.bias and so on."),
    "stages_of_torch_with_norms": ("match", (16, 0, 0), [0, 1], "stages along pp have 0.bias and 1 other under one name and begin with different weights:"
                                   " they are taken as different parameters, pp0.0.bias and so on; so are 2.bias and 1 other, which begin with one number"
                                   " everywhere, as biases and norms do: if they are tied, their gradients are not complete."),
    "copies_of_which_one_is_zero": ("undecided", (2, 0, 0), [0, 1], "ranks along dp begin with different weights of weight: copies were initialised apart and"
                                    " train different models, or these are different parts or experts."),
    "optimizer_that_one_rank_leaves_out": ("undecided", (12, 0, 0), [0, 1, 2], "in optimizer step 1 the optimizer of 2.weight and 1 other did not step on rank 1,"
                                           " and did on other ranks."),
    "means_that_are_divided_within": ("match", (8, 0, 0), [0, 1], UNSEEN),
    "graph_tells_the_loss": ("match", (8, 0, 0), [0, 1], SEEN % 384),
    "graph_tells_the_loss_and_it_is_averaged_again": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 1/4 where 1/2 was expected: uniform factor"
                                                      " 1/2, invisible to Adam"),
    **{name: ("match", (8, 0, 0), [0, 1], OF_ALL) for name in ("halves_of_means_may_have_a_weight", "quarters_of_means_may_have_a_weight",
                                                               "a_third_within_may_be_a_weight", "means_of_uneven_parts", "means_of_uneven_ranks",
                                                               "means_that_a_hook_reduces", "sums_over_rows_that_may_be_elements",
                                                               "means_that_leave_out_what_is_ignored",
                                                               "sums_that_are_added_up_over_ranks", "means_over_what_others_have")},
    "graph_tells_nothing_as_nothing_divides": ("match", (8, 0, 0), [0, 1], OF_ALL),
    "last_micro_batch_is_short": ("match", (8, 0, 0), [0, 1], None),
    "sums_over_the_rows_of_all": ("match", (8, 0, 0), [0, 1], SEEN % 160),
    "sums_over_the_tokens_of_all": ("match", (8, 0, 0), [0, 1], None),
    "sums_that_are_said_to_be": ("match", (8, 0, 0), [0, 1], None),
    "losses_that_no_graph_tells": ("match", (8, 0, 0), [0, 1], UNSEEN),
    "losses_that_come_from_a_generator": ("match", (8, 0, 0), [0, 1], None),
    "constant_gradients_that_nobody_zeroed": ("mismatch", (4, 4, 0), [0, 1], "what earlier optimizer steps left is still in it: nobody zeroed the gradient"),
    "means_that_are_divided": ("match", (8, 0, 0), [0, 1], None),
    "means_of_half_a_square": ("match", (8, 0, 0), [0, 1], UNSEEN),
    "means_that_are_to_be_added_up": ("match", (8, 0, 0), [0, 1], None),
    "sampled": ("match", (8, 0, 0), [0, 1], None),
    "sampled_and_not_divided": ("mismatch", (0, 8, 0), [0, 1], "every contribution came with 1 where 1/2 was expected: uniform factor 2, invisible to Adam"),
    "gradient_for_a_log": ("undecided", (4, 0, 4), [0, 1], "in optimizer steps 0 and 1, torch.autograd.grad was called for these parameters beside"
                           " backward passes, and may have added to no gradient" + NOT_JUDGED % "2.weight and 1 other"),
    "recomputed_in_backward": ("match", (8, 0, 0), [0, 1], None),
    "recomputed_and_added_by_hand": ("undecided", (4, 0, 4), [0, 1], "in optimizer steps 0 and 1, torch.autograd.grad was called for these parameters within"
                                     " a backward pass, which has yielded nothing of them itself" + NOT_JUDGED % "0.weight and 1 other"),
    "forgotten_layer": ("undecided", (4, 0, 4), [0, 1], "in optimizer steps 0 and 1, gradients were set to zero between micro-batches"
                        + NOT_JUDGED % "0.weight and 1 other"),
    "reduced_in_step": ("undecided", (0, 0, 16), [0, 1], "in optimizer steps 0 and 1, a collective reduces the gradient within the optimizer's own step,"
                        " after the capture has looked at it" + NOT_JUDGED % ALL),
    "sharded_optimizer": ("match", (8, 0, 0), [0, 1], None),
    "in_a_thread": ("undecided", (8, 0, 0), [0, 1], "backward passes run in another thread than the one in which the capture began, where no collective"
                    " is seen (collectives=False records none)."),
    "in_a_thread_without_collectives": ("match", (8, 0, 0), [0, 1], None),
}


MEANS = {
    "means_that_nothing_divides": "2 means that it does not divide by 2: if they are parts of one batch, the gradient is 2",
    "means_that_are_divided_twice": "3 means that are divided by 9, which is twice by 3: if the parts of one batch are divided once here and once in a"
                                    " framework, the gradient is 1/3 of its mean",
    "sums_over_own_rows": "2 sums, each divided by the rows of its own micro-batch, and not by those of all: if they are parts of one batch, the gradient is 2",
    "sums_over_own_elements": "2 sums, each divided by the elements of its own micro-batch, and not by those of all",
    "sums_over_own_tokens": "2 sums, each divided by the tokens of its own micro-batch, and not by those of all",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    ran(folder, 2, [*EXPECTED, "clipped_twice", *MEANS], program="gaps_worker.py")
    return folder


def verified(folder, name):
    for error in sorted(folder.glob(f"{name}.error-*")):
        pytest.fail(error.read_text())
    return verify(folder / name, program=PROGRAM)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_cannot_be_known_is_undecided_and_the_rest_is_judged(folder, name):
    verdict, counts, steps, said = EXPECTED[name]
    found = verified(folder, name)
    report = found.report
    everything = report["gaps"] + report["notes"] + [finding["what"] for finding in report["findings"]]
    assert (found.verdict, tuple(report["counts"].values()), report["steps"]) == (verdict, counts, steps), everything
    if said is None:
        assert not report["gaps"] and not report["notes"], everything
    else:
        assert said in everything


@pytest.mark.parametrize("name", MEANS)
def test_means_of_several_micro_batches_that_are_not_divided_once_are_told(folder, name):
    found = verified(folder, name)
    gap, = found.report["gaps"]
    assert found.verdict == "undecided" and found.report["counts"]["right"] == 8
    assert " calls backward on " + MEANS[name] in gap


def test_a_constant_gradient_that_nobody_zeroed_is_one_mistake_with_the_others(folder):
    found = verified(folder, "constant_gradients_that_nobody_zeroed")
    assert [finding["what"] for finding in found.findings] == ["what earlier optimizer steps left is still in it: nobody zeroed the gradient"]
    assert found.report["blame"], found.report["not_blamed"]


def test_what_was_sampled_is_said(folder):
    found = verified(folder, "sampled")
    assert found.report["one_of"] == 16
    assert "4 parameters, 8 distinct results compared, 1 of the parameters in one of 16 elements: 8 right" in str(found)
    assert verified(folder, "left_over").report["one_of"] == 1


def test_gradients_that_are_clipped_while_more_is_added_are_not_judged_after_that(folder):
    found = verified(folder, "clipped_twice")
    assert found.verdict == "undecided" and found.report["counts"]["wrong"] == 0, found.findings
    assert any("gradients were clipped, and more was added to them before their optimizer stepped" in gap for gap in found.report["gaps"])
