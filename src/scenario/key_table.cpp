// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/key_table.h"

#include <algorithm>

#include "lockstep/operation.h"

namespace lockstep {

namespace {

const std::vector<ObjectRow> rows = {
    {Object::scenario, "scenario", "One training step: a layout, a model, a batch, a schedule, and what must come out.",
     {
         {"$schema", Type::text, "", "", "Where the JSON Schema of this format lies, for editors."},
         {"lockstep", Type::version, "*", "", "Version of the format."},
         {"name", Type::name, "", "the file's name", "Short name of the scenario in reports."},
         {"title", Type::text, "", "", "One line that says what the scenario shows."},
         {"source", Type::text, "", "", "Where the case comes from, such as an issue of a framework."},
         {"layout", Type::layout, "", "{}", "Sizes of the axes."},
         {"model", Type::model, "*", "", "The parameters: a preset or a list."},
         {"batch", Type::batch, "", "{}", "Micro-batches, token counts and losses."},
         {"schedule", Type::schedule, "*", "", "What happens to the gradients: a framework's schedule or a list of steps."},
         {"expect", Type::expect, "", "", "What must come out; `lockstep test` compares it."},
     }},
    {Object::layout, "layout", "Sizes of the axes of the dense mesh (tp, cp, sp, dp, pp) and the expert mesh (etp, ep, edp, pp).",
     {
         {"tp", Type::axis_size, "", "1", "Tensor parallel size."},
         {"cp", Type::axis_size, "", "1", "Context parallel size."},
         {"sp", Type::axis_size, "", "1", "Ulysses sequence parallel degree."},
         {"dp", Type::axis_size, "", "1", "Data parallel size: the product of dp_shard and dp_replicate."},
         {"pp", Type::axis_size, "", "1", "Number of pipeline stages."},
         {"ep", Type::axis_size, "", "1", "Expert parallel size; edp = world / (etp * ep * pp) must be whole."},
         {"etp", Type::axis_size, "", "1", "Tensor parallel size of the experts."},
         {"dp_shard", Type::axis_size, "", "dp", "The fast part of dp, over which a hybrid framework shards."},
         {"dp_replicate", Type::axis_size, "", "1", "The slow part of dp, over which a hybrid framework replicates."},
         {"order", Type::text, "", "tp-cp-sp-ep-dp-pp",
          "Axes from the fastest to the slowest; the expert mesh reads tp as etp and dp as edp."},
         {"sequence_parallel", Type::boolean, "", "false", "Megatron's sequence parallelism, a property of the tp axis."},
         {"virtual_stages", Type::count, "", "1", "Virtual pipeline stages (model chunks) on each rank."},
     }},
    {Object::model, "model", "A preset with its sizes, or parameters.",
     {
         {"preset", Type::name, "", "", "Name of a model, or the path of a model file; its sizes are further keys."},
         {"parameters", Type::parameters, "", "", "The parameters, in model order."},
     }},
    {Object::parameter, "parameter", "A parameter: a logical tensor and where it lies.",
     {
         {"name", Type::name, "*", "", "Logical name, unique."},
         {"shape", Type::shape, "*", "", "Logical shape; `[]` is a scalar."},
         {"dtype", Type::one_of, "", "float32", "Type of its gradient.", "float32 float64 bfloat16"},
         {"stage", Type::stage, "", "0", "Pipeline stage, negative from the end, or `\"all\"`."},
         {"chunk", Type::index, "", "0", "Virtual stage on that rank."},
         {"shard", Type::shard, "", "{}", "Axis to dimension: each rank holds its piece; the first written cuts first."},
         {"partial", Type::axes, "", "[]", "Axes over which each rank's backward yields only its own share, to be summed."},
         {"dispatch", Type::axes, "", "[]", "Expert-mesh axes whose tokens arrive through the all-to-all."},
         {"tied", Type::name, "", "", "Group name: parameters with the same one are one logical parameter."},
         {"uses", Type::identifiers, "", "[\"main\"]", "Sites or loss terms that yield a contribution each."},
         {"micro_batches", Type::indices, "", "all", "Micro-batches, from 0 in each optimizer step, in which it takes part."},
         {"only", Type::only, "", "{}", "Coordinates of the holding ranks on which it takes part."},
         {"frozen", Type::boolean, "", "false", "No contribution, in no buffer, in no norm."},
         {"tags", Type::names, "", "[]", "Words for selectors: norm, bias, embedding, head, router, expert, position and others."},
     }},
    {Object::uneven_shard, "uneven_shard", "A dimension that is cut as torch.chunk does.",
     {
         {"dim", Type::index, "*", "", "The dimension that the axis cuts."},
         {"uneven", Type::boolean, "", "false", "Whether the pieces may differ in size."},
     }},
    {Object::batch, "batch", "Micro-batches, token counts and losses.",
     {
         {"micro_batches", Type::micro_batch_counts, "", "2", "Micro-batches of an optimizer step, or a list with one count each."},
         {"steps", Type::count, "", "1", "Optimizer steps."},
         {"tokens", Type::tokens, "", "uneven", "Token counts of the pieces, for all uses or by use."},
         {"loss", Type::loss, "", "token_mean", "What one device minimizes, for all uses or by use."},
         {"weight", Type::weights, "", "{}", "Factor on the loss of a use."},
     }},
    {Object::schedule, "schedule", "A framework's schedule or a list of steps, and edits on it.",
     {
         {"framework", Type::name, "", "", "Name of a framework, or the path of a framework file."},
         {"options", Type::options, "", "{}", "Options of the framework, in its own spelling."},
         {"steps", Type::steps, "", "", "Steps that every rank runs in order."},
         {"edits", Type::edits, "", "[]", "Changes to the steps and parameters, applied in order."},
         {"result", Type::identifier, "", "grad", "The buffer that the optimizer reads."},
     }},
    {Object::step, "step", "One step of the schedule.",
     {
         {"name", Type::step_name, "*", "", "Name of the step, unique; a `wait` needs none."},
         {"op", Type::one_of, "*", "", "What the step does.",
          "backward scale all_reduce reduce_scatter all_gather broadcast reduce own copy accumulate zero leftover norm all_to_all "
          "wait each"},
         {"params", Type::selectors, "", "all", "Selectors: whose buffers it acts on."},
         {"over", Type::over, "all_reduce reduce_scatter all_gather broadcast reduce own all_to_all", "",
          "Axes of one mesh, or coordinates on axes; `[]` is each rank alone."},
         {"reduce", Type::one_of, "", "sum", "How the members' buffers are put together.", "sum avg"},
         {"by", Type::expression, "scale", "1", "Factor; not 0 in `backward`."},
         {"uses", Type::identifiers, "", "all", "The uses whose contributions `backward` adds."},
         {"when", Type::expression, "", "true", "Condition under which a rank runs the step."},
         {"only", Type::only, "", "{}", "Coordinates of the ranks that run the step."},
         {"root", Type::root, "broadcast reduce", "", "Position in the group, or coordinates of one member."},
         {"geometry", Type::geometry, "", "{ \"kind\": \"parameter\" }", "How the members' slices are cut."},
         {"on", Type::one_of, "", "all", "Whether the op acts on the whole buffer or on what the rank owns.", "all owned"},
         {"async", Type::boolean, "", "false", "In flight until the `wait` for it."},
         {"buffer", Type::identifier, "", "grad", "The buffer that it acts on."},
         {"from", Type::identifier, "copy accumulate", "", "The buffer that is read."},
         {"to", Type::identifier, "", "grad", "The buffer that is written."},
         {"what", Type::identifier, "leftover", "", "Name of the unknown that is added."},
         {"per", Type::one_of, "", "", "`rank`: another unknown on each rank.", "rank"},
         {"count", Type::expression, "", "true", "Condition under which a rank counts its elements."},
         {"combine", Type::one_of, "", "sum", "How the ranks' parts of the norm are put together.", "sum mean_of_norms"},
         {"for", Type::step_name, "wait", "", "The asynchronous step that ends here."},
         {"steps", Type::steps, "each", "", "Steps that run once for each micro-batch."},
     }},
    {Object::geometry, "geometry", "How a reduction cuts; n, the group's size, may stand in its expressions.",
     {
         {"kind", Type::one_of, "*", "", "How the selected parameters are laid out.", "parameter rows flat bucket"},
         {"align", Type::expression, "", "n", "The total is rounded up to a multiple of it.", "", "flat"},
         {"size", Type::expression, "", "one bucket", "Elements after which a bucket closes.", "", "bucket"},
         {"align_parameter", Type::expression, "", "64", "Each parameter starts at a multiple of it.", "", "bucket"},
         {"align_bucket", Type::expression, "", "lcm(n, 128)", "Each bucket ends at a multiple of it.", "", "bucket"},
         {"separate", Type::selector_list, "", "[]", "Parameters that get a bucket of their own.", "", "bucket"},
     },
     "parameter rows flat bucket"},
    {Object::edit, "edit", "One change to the schedule or the model.",
     {
         {"drop", Type::name, "drop", "", "The step to leave out.", "", "drop"},
         {"duplicate", Type::name, "duplicate", "", "The step to run twice; the second is named STEP.2.", "", "duplicate"},
         {"move", Type::name, "move", "", "The step to move.", "", "move"},
         {"set", Type::name, "set", "", "The step whose keys are replaced; null removes a key.", "", "set"},
         {"insert", Type::step, "insert", "", "The new step.", "", "insert"},
         {"parameter", Type::selectors, "parameter", "", "The parameters whose keys are replaced; null removes a key.", "",
          "parameter"},
         {"before", Type::name, "", "", "The step in front of which it goes; `STEP[0]` names one iteration.", "", "move insert"},
         {"after", Type::name, "", "", "The step behind which it goes; `STEP[0]` names one iteration.", "", "move insert"},
     },
     "drop duplicate move set insert parameter"},
    {Object::expect, "expect", "What must come out. What is absent is not compared.",
     {
         {"verdict", Type::one_of, "*", "", "The verdict.", "match mismatch deadlock invalid_collective race"},
         {"parameters", Type::selector_list, "", "", "Selectors of exactly the parameters that are wrong."},
         {"ranks", Type::indices, "", "", "Exactly the ranks that own a wrong element."},
         {"formula", Type::formula, "", "", "What ranks hold in the wrong elements of parameters."},
         {"ratio", Type::exact_number, "", "", "Got divided by expected, one number for all wrong elements."},
         {"replicas_agree", Type::boolean, "", "", "Whether all owners of each logical element hold equal values."},
         {"norm", Type::norm_counts, "", "", "How often the gradient norm counts parameters."},
         {"step", Type::index, "", "", "The first wrong optimizer step."},
         {"stuck", Type::names, "", "", "The steps in which ranks wait."},
         {"blame", Type::names, "", "", "The steps at fault."},
     }},
    {Object::framework_file, "framework file", "The schedule of a framework (frameworks/NAME.jsonc).",
     {
         {"lockstep_framework", Type::version, "*", "", "Version of the format."},
         {"name", Type::name, "*", "", "Name of the framework."},
         {"help", Type::text, "", "", "What the file describes."},
         {"options", Type::object, "", "{}", "Options by name."},
         {"layout", Type::object, "", "{}", "Defaults of the layout."},
         {"batch", Type::object, "", "{}", "Defaults of the batch, such as the loss."},
         {"let", Type::object, "", "{}", "Derived names, worked out in order."},
         {"rules", Type::list, "", "[]", "Combinations that are refused."},
         {"result", Type::identifier, "", "grad", "The buffer that the optimizer reads."},
         {"steps", Type::list, "*", "", "The steps; their values may be conditional and may use options."},
     }},
    {Object::model_file, "model file", "The parameters of a model (models/NAME.jsonc).",
     {
         {"lockstep_model", Type::version, "*", "", "Version of the format."},
         {"name", Type::name, "*", "", "Name of the model."},
         {"help", Type::text, "", "", "What the file describes."},
         {"base", Type::name, "", "", "Model whose sizes, names, rules and parameters it takes over."},
         {"sizes", Type::object, "", "{}", "Sizes by name, or new defaults of the base's."},
         {"let", Type::object, "", "{}", "Derived names, worked out in order."},
         {"rules", Type::list, "", "[]", "Combinations that are refused."},
         {"parameters", Type::list, "", "", "Parameters and loops over them."},
     }},
    {Object::option, "option", "An option of a framework.",
     {
         {"type", Type::one_of, "*", "", "Type of its values.", "boolean integer number string"},
         {"default", Type::scalar, "*", "", "Its value where none is given; null is no value."},
         {"allowed", Type::list, "", "", "List of the values that it may have."},
         {"help", Type::text, "", "", "What it does."},
     }},
    {Object::size, "size", "A size of a model.",
     {
         {"default", Type::scalar, "*", "", "Its value where none is given; values must be of its type."},
         {"allowed", Type::list, "", "", "List of the values that it may have."},
         {"help", Type::text, "", "", "What it is."},
     }},
    {Object::rule, "rule", "A combination that is refused.",
     {
         {"refuse", Type::expression, "*", "", "Condition under which it is refused."},
         {"because", Type::name, "*", "", "The sentence for the user; `{EXPR}` is replaced by its value."},
     }},
    {Object::conditional, "conditional", "A value that depends on a condition, anywhere in a framework or model file.",
     {
         {"if", Type::expression, "*", "", "The condition."},
         {"then", Type::any, "", "nothing", "The value where it holds."},
         {"else", Type::any, "", "nothing", "The value where it does not hold."},
     }},
    {Object::parameter_loop, "parameter loop", "Parameters of a model file that repeat.",
     {
         {"for", Type::object, "*", "", "Variables and their counts: each runs from 0 to the count less 1."},
         {"when", Type::expression, "", "true", "Leaves an iteration out where it does not hold."},
         {"parameters", Type::list, "*", "", "The parameters of one iteration, and further loops."},
     }},
};

bool contains_word(std::string_view words, std::string_view word) {
  const std::vector<std::string> list = split_words(words);
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// Keys that most ops have are listed by the ops that lack them; all others stand in the
/// operation table.
bool op_has_key(std::string_view op, std::string_view key) {
  if (key == "name" || key == "op" || key == "when" || key == "only") return true;
  if (key == "params" || key == "async") return op != "wait" && op != "each";
  if (key == "buffer") return !contains_word("copy accumulate all_to_all wait each", op);
  if (key == "on") return !contains_word("norm all_to_all wait each", op);
  const std::optional<Op> row = op_named(op);
  return row && contains_word(operation(*row).keys, key);
}

}  // namespace

const std::vector<ObjectRow>& object_rows() { return rows; }

const ObjectRow& object_row(Object object) { return rows[static_cast<std::size_t>(object)]; }

bool has_key(const ObjectRow& object, const KeyRow& key, std::string_view variant) {
  if (object.object == Object::step) return op_has_key(variant, key.name);
  return key.variants.empty() || contains_word(key.variants, variant);
}

bool needs_key(const KeyRow& key, std::string_view variant) {
  if (key.required == "*") return !(variant == "wait" && key.name == "name");
  return !key.required.empty() && contains_word(key.required, variant);
}

const KeyRow* find_key(const ObjectRow& object, std::string_view name) {
  for (const KeyRow& key : object.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string> variants_of(const ObjectRow& object) {
  if (object.object == Object::step) {
    std::vector<std::string> ops;
    for (const Operation& row : operations()) ops.emplace_back(row.name);
    return ops;
  }
  if (object.variants.empty()) return {""};
  return split_words(object.variants);
}

}  // namespace lockstep
