// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sites.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::transformer {

namespace {

using Kind = Site::Kind;

const std::vector<Site> rows = {
    {"attention.copy_to_tp", Kind::sum,
     "all-reduce of the gradient of the input of attention, without sequence parallelism"},
    {"attention.reduce_from_tp", Kind::sum, "all-reduce of the output of attention, without sequence parallelism"},
    {"attention.gather_sequence", Kind::gather, "all-gather of the input of attention along the sequence"},
    {"attention.gather_sequence_backward", Kind::sum, "reduce-scatter of its gradient"},
    {"attention.scatter_sequence", Kind::sum, "reduce-scatter of the output of attention along the sequence"},
    {"attention.scatter_sequence_backward", Kind::gather, "all-gather of its gradient"},
    {"mlp.copy_to_tp", Kind::sum, "all-reduce of the gradient of the input of the MLP, without sequence parallelism"},
    {"mlp.reduce_from_tp", Kind::sum, "all-reduce of the output of the MLP, without sequence parallelism"},
    {"mlp.gather_sequence", Kind::gather, "all-gather of the input of the MLP along the sequence"},
    {"mlp.gather_sequence_backward", Kind::sum, "reduce-scatter of its gradient"},
    {"mlp.scatter_sequence", Kind::sum, "reduce-scatter of the output of the MLP along the sequence"},
    {"mlp.scatter_sequence_backward", Kind::gather, "all-gather of its gradient"},
    {"shared_experts.copy_to_tp", Kind::sum,
     "all-reduce of the gradient of the input of the shared experts, without sequence parallelism"},
    {"shared_experts.reduce_from_tp", Kind::sum,
     "all-reduce of the output of the shared experts, without sequence parallelism"},
    {"shared_experts.gather_sequence", Kind::gather,
     "all-gather of the input of the shared experts along the sequence"},
    {"shared_experts.gather_sequence_backward", Kind::sum, "reduce-scatter of its gradient"},
    {"shared_experts.scatter_sequence", Kind::sum,
     "reduce-scatter of the output of the shared experts along the sequence"},
    {"shared_experts.scatter_sequence_backward", Kind::gather, "all-gather of its gradient"},
    {"head.copy_to_tp", Kind::sum,
     "all-reduce of the gradient of the output layer's input, without sequence parallelism"},
    {"head.gather_sequence", Kind::gather, "all-gather of the output layer's input along the sequence"},
    {"head.gather_sequence_backward", Kind::sum, "reduce-scatter of its gradient"},
    {"mtp.copy_to_tp", Kind::sum,
     "all-reduce of the gradient of the input of a depth's projection, without sequence parallelism"},
    {"mtp.gather_sequence", Kind::gather, "all-gather of that input along the sequence"},
    {"mtp.gather_sequence_backward", Kind::sum, "reduce-scatter of its gradient"},
    {"mtp.gather_from_tp", Kind::gather, "all-gather of the parts of the projection's output"},
    {"mtp.scatter_backward", Kind::gather, "all-gather of its gradient along the sequence"},
    {"cross_entropy.max", Kind::sum, "the largest logit over the parts of the vocabulary"},
    {"cross_entropy.sum", Kind::sum, "the sum of exponentials over the parts of the vocabulary"},
    {"embedding.reduce", Kind::sum, "all-reduce of the looked up rows over the parts of the vocabulary"},
    {"embedding.reduce_scatter", Kind::sum, "the same along the sequence, where no positions are added"},
    {"embedding.scatter_backward", Kind::gather, "all-gather of the embedding's gradient along the sequence"},
    {"embedding.positions", Kind::positions,
     "the learned position of a token; dropped: counted in the rank's own piece"},
    {"attention.rotary_positions", Kind::positions,
     "the rotary position of a token; dropped: counted in the rank's own piece"},
    {"cp.gather_key", Kind::gather, "all-gather of the keys of all cp ranks"},
    {"cp.gather_value", Kind::gather, "all-gather of their values"},
    {"cp.dkv_reduce", Kind::sum, "reduce-scatter of the gradients of keys and values"},
    {"cp.ring_key_value", Kind::message, "keys and values to the next rank of the ring"},
    {"cp.ring_key_value_backward", Kind::message, "the same once more, for the backward pass"},
    {"cp.ring_dkv", Kind::message, "their gradients, which follow them around the ring and home"},
    {"ulysses.query", Kind::exchange, "all-to-all of the query between tokens and heads"},
    {"ulysses.query_backward", Kind::exchange, "that of its gradient"},
    {"ulysses.key", Kind::exchange, "all-to-all of the key between tokens and heads"},
    {"ulysses.key_backward", Kind::exchange, "that of its gradient"},
    {"ulysses.value", Kind::exchange, "all-to-all of the value between tokens and heads"},
    {"ulysses.value_backward", Kind::exchange, "that of its gradient"},
    {"ulysses.context", Kind::exchange, "all-to-all of the context between tokens and heads"},
    {"ulysses.context_backward", Kind::exchange, "that of its gradient"},
    {"moe.dispatch", Kind::exchange, "all-to-all of the tokens to the ranks of their experts"},
    {"moe.dispatch_backward", Kind::exchange, "that of their gradients, back"},
    {"moe.gather_from_etp", Kind::exchange, "tokens shared with the ranks that hold a piece of the expert"},
    {"moe.gather_from_etp_backward", Kind::exchange, "the parts of their gradients, to be added"},
    {"moe.reduce_to_etp", Kind::exchange, "the parts of the experts' results, to be added"},
    {"moe.reduce_to_etp_backward", Kind::exchange, "the gradients of the results, shared"},
    {"moe.combine", Kind::exchange, "all-to-all of the results back to the tokens"},
    {"moe.combine_backward", Kind::exchange, "that of their gradients, to the experts"},
    {"moe.reduce_load", Kind::sum,
     "how many tokens chose each expert, over the ranks of the sequence, for the auxiliary loss"},
    {"pp.forward", Kind::message, "hidden states to the next stage"},
    {"pp.backward", Kind::message, "their gradients to the stage before"},
    {"attention.norm", Kind::part,
     "the norm before attention, with sequence parallelism on the rank's slice of the sequence; dropped: on all of it, "
     "with the whole gradient on every tp rank"},
    {"mlp.norm", Kind::part, "the norm before the MLP or the experts, likewise"},
    {"head.norm", Kind::part, "the norm before the output layer, likewise"},
    {"cross_entropy.logits", Kind::part,
     "the logits of the rank's part of the vocabulary; dropped: gathered, so that every tp rank takes all of them for "
     "its part"},
    {"pp.layer_offset", Kind::part,
     "the number of a stage's first layer; dropped: 0, so that every stage starts with the weights of the first "
     "layers"},
    {"pp.remainder", Kind::part,
     "the layers of a longer stage, where they do not divide; dropped: each stage runs as many as a whole division "
     "gives"},
};

}  // namespace

const std::vector<Site>& sites() { return rows; }

const Site* find_site(const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Site& site) { return site.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

SiteEdits read_site_edits(const Preset& preset) {
  SiteEdits edits;
  Diagnostics diagnostics;
  for (const ModelEdit& edit : preset.edits) {
    const Site* site = find_site(edit.site);
    if (site == nullptr) {
      std::vector<std::string> names;
      for (const Site& known : rows) names.emplace_back(known.name);
      diagnostics.add(edit.place, fmt::format("the transformer has no communication site \"{}\"{}", edit.site,
                                              did_you_mean(edit.site, names)));
      continue;
    }
    if (edit.action == ModelEdit::Action::duplicate && site->kind != Kind::sum) {
      diagnostics.add(edit.place, fmt::format("only a sum can be duplicated, and \"{}\" is none: it would bring the "
                                              "same values again; drop it, or give it another axis",
                                              edit.site));
      continue;
    }
    if (edit.action == ModelEdit::Action::over &&
        (site->kind == Kind::message || site->kind == Kind::positions || site->kind == Kind::part)) {
      diagnostics.add(edit.place, fmt::format("\"{}\" is no collective, so it has no axis; drop it", edit.site));
      continue;
    }
    if (edits.count(edit.site) > 0) {
      diagnostics.add(edit.place, fmt::format("\"{}\" is edited twice, and one of the two would be without effect; "
                                              "keep one",
                                              edit.site));
      continue;
    }
    SiteEdit::Kind kind = SiteEdit::Kind::drop;
    if (edit.action == ModelEdit::Action::duplicate) kind = SiteEdit::Kind::duplicate;
    if (edit.action == ModelEdit::Action::over) kind = SiteEdit::Kind::over;
    edits[edit.site] = {kind, edit.axis, edit.place};
  }
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
  return edits;
}

void check_reached(const SiteEdits& edits, const std::set<std::string>& reached) {
  Diagnostics diagnostics;
  for (const auto& [site, edit] : edits) {
    if (reached.count(site) > 0) continue;
    diagnostics.add(edit.place, fmt::format("the edit of \"{}\" changes nothing: with this layout and these sizes the "
                                            "model does the same without it; edit a site at which it does not",
                                            site));
  }
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
}

}  // namespace lockstep::transformer
