// SPDX-License-Identifier: Apache-2.0
#include "lockstep/mistake.h"
#include "src/base/at.h"

namespace lockstep {

namespace {

constexpr Rule table[] = {
    {Mistake::missing_reduction, "missing reduction", "LS001", "MissingReduction",
     "A rank's gradient lacks contributions of other ranks or micro-batches.",
     "A gradient that several ranks, micro-batches or uses contribute to was not summed over all of them: a "
     "collective is missing, skips the parameter, runs over too small a group, or runs before the last contribution "
     "is there. Every rank trains on its own share; replicas drift apart, or stay equal and learn from a part of the "
     "batch.",
     "Add the collective, or let the one that is there choose the parameter: over the axes along which the "
     "parameter's gradient is Partial, and over data parallelism.",
     "scenarios/megatron/1446-final-layernorm-not-reduced.json"},
    {Mistake::wrong_factor, "wrong factor", "LS002", "WrongFactor", "A gradient is one multiple of the right one.",
     "All contributions are there, in the right proportions, and the whole is divided or multiplied by a wrong "
     "number: twice by an axis, by the world where the data-parallel size is meant, by the number of micro-batches "
     "again. Adam hides a factor that never changes; weight decay, clipping and parameters with other factors do not.",
     "Divide once: by the factor that the message names.", "scenarios/accelerate/3533-divided-twice.json"},
    {Mistake::wrong_weights, "wrong weights", "LS003", "WrongWeights",
     "Contributions to a gradient stand in wrong proportions.",
     "Every contribution counts with a factor of its own, and these differ from those of the loss on one device: "
     "means of means over uneven tokens, tokens counted that the loss leaves out, one share added twice. The gradient "
     "points in another direction; nothing that looks at norms or replicas notices.",
     "Sum first and divide by the total of the tokens once; drop the second sum.",
     "scenarios/megatron/7452-c1-global-aux-averaged.json"},
    {Mistake::stale_slices, "stale slices", "LS004", "StaleSlices",
     "A collective takes in slices that an earlier reduce-scatter left stale.",
     "After a reduce-scatter only the owned slice is reduced; the rest of the buffer is what this rank had before. A "
     "later collective between buffers that are cut differently mixes reduced slices with stale ones.",
     "Run the collective before the reduce-scatter, or cut both buffers alike: a bucket of its own for the parameter.",
     "scenarios/megatron/844.json"},
    {Mistake::wrong_cut, "wrong cut", "LS005", "WrongCut",
     "A buffer holds contributions of other elements or of another parameter.",
     "Ranks that met in a collective brought buffers whose elements do not lie in the same places: other cuts, "
     "another order, a parameter absent on one of them.",
     "Let all members of the group cut and order the buffer alike.",
     "scenarios/deepspeed/545-shifted-by-an-absent-gradient.json"},
    {Mistake::leftover, "leftover", "LS006", "Leftover",
     "A gradient holds something that is no gradient of this optimizer step.",
     "A buffer was not cleared, or holds parameters, or the gradient of an earlier step, and was added to.",
     "Clear the buffer before the first backward, or copy instead of adding.",
     "scenarios/megatron/6565-placeholder-adds-old-buffer.json"},
    {Mistake::no_owner, "no owner", "LS007", "NoOwner", "Nobody owns elements of a gradient: they reach no optimizer.",
     "After reduce-scatters each element must belong to at least one rank of each group of replicas. Here none does, "
     "and these weights stay as they were initialized.",
     "Give the padding or the remainder an owner, or let the optimizer step include the parameter.",
     "docs/rules/LS007.md"},
    {Mistake::norm_count, "norm count", "LS008", "NormCount",
     "An element is counted other than once in the gradient norm.",
     "The norm is the square root of a sum of squares over ranks. Replicas counted on every rank, or shards counted "
     "on one rank alone, make it too large or too small, and clipping scales every gradient by it.",
     "Sum over the ranks that hold different elements, count replicas on one of them.",
     "scenarios/ddp/norm-of-a-shard.json"},
    {Mistake::wrong_values, "wrong values", "LS009", "WrongValues",
     "The numbers that ranks end up with are not those of one device.",
     "An engine that computes with numbers alone found it: without the symbolic engine there is no formula.",
     "Run `lockstep check` with the symbolic engine: it says what the values are made of.",
     "scenarios/accelerate/3533-divided-twice.json"},
    {Mistake::deadlock, "deadlock", "LS010", "Deadlock", "Ranks wait for each other, and none can go on.",
     "Members of a group reach their collectives in another order, or one of them never gets there.",
     "Let all members of the group call the collective, in one order.",
     "scenarios/trainverify/6-sent-to-the-wrong-rank.json"},
    {Mistake::invalid_collective, "invalid collective", "LS011", "InvalidCollective",
     "Ranks meet in collectives that do not fit together.",
     "Members of a group call different operations, or bring different sizes or types. A real backend hangs, crashes "
     "or writes beyond a buffer.",
     "Let every member bring the same parameters to the same operation.",
     "scenarios/megatron/6500-fsdp-raw-shards-of-the-tied-embedding.json"},
    {Mistake::race, "race", "LS012", "Race", "A buffer is touched while an asynchronous collective works on it.",
     "There is no wait between the start of the collective and a step that reads or writes its buffer. What comes out "
     "depends on the moment.",
     "Wait for the collective before the step.", "scenarios/megatron/3670-scaling-races-reduction.json"},
    {Mistake::in_the_model, "in the model", "LS013", "InTheModel",
     "The schedule is right and the model's own communication is wrong.",
     "A real transformer, sharded as the scenario says, yields other gradients than its placements claim: a "
     "collective of the forward or backward pass is missing, twice there, or over another group.",
     "Mend the communication inside the layer; `lockstep placements` shows what each axis really yields.",
     "scenarios/deepspeed/8357-compiled-autotp-in-the-model.json"},
    {Mistake::invalid_file, "invalid file", "LS014", "InvalidFile", "The file is no valid scenario.",
     "A key, a value or a name in it is not what the format allows, so that nothing was checked.",
     "Mend the place that the message shows; the schema gives completion in an editor.", "docs/rules/LS014.md"},
    {Mistake::unmet_expectation, "unmet expectation", "LS015", "UnmetExpectation",
     "What came out is not what the file's `expect` says.",
     "The scenario keeps a bug, or a framework's right behaviour, on record, and it behaves differently now.",
     "Find out which change did it; where the new outcome is the right one, change `expect`.", "docs/rules/LS015.md"},
    {Mistake::not_checked, "not checked", "LS016", "NotChecked", "The scenario could not be checked on this machine.",
     "An engine, its memory or a device failed, or two engines disagree, which is a bug of lockstep.",
     "See the message; a smaller layout or another engine may do.", ""},
    {Mistake::undecided, "undecided", "LS017", "Undecided",
     "A captured run does not say enough to call it right or wrong.",
     "A rank, a file or a line is missing, or rounding hides more than the difference would be.",
     "Capture all ranks to the end; with more sums where contributions cannot be told apart.", ""},
    {Mistake::clipping, "clipping", "LS018", "Clipping",
     "A gradient is not clipped once, after the reduction, by the norm of all gradients.",
     "Clipping multiplies every gradient by one factor, which depends on the norm of all of them. Here some are left "
     "out, or are clipped again, before they are whole or by a norm that other ranks do not have: the gradient points "
     "in another direction, replicas drift apart, or what should bound the update does not.",
     "Clip once, after the last reduction, all that the optimizer reads, by the norm that is summed over the ranks.",
     "scenarios/transformers/46113-clips-a-list-of-copies.json"},
    {Mistake::extra_reduction, "extra reduction", {}, {}, {}, {}, {}, {}},
    {Mistake::wrong_place, "wrong place", {}, {}, {}, {}, {}, {}},
    {Mistake::wrong_group, "wrong group", {}, {}, {}, {}, {}, {}},
    {Mistake::wrong_placement, "wrong placement", {}, {}, {}, {}, {}, {}},
};

}  // namespace

std::span<const Rule> rules() { return table; }

const Rule& rule_of(Mistake mistake) { return table[at(static_cast<int>(mistake))]; }

std::string_view name_of(Mistake mistake) { return rule_of(mistake).words; }

}  // namespace lockstep
