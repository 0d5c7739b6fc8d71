// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <tuple>

#include "lockstep/numeric.h"
#include "src/base/at.h"
#include "src/diagnosis/formulas.h"
#include "src/report/findings.h"
#include "src/report/json_sections.h"

namespace lockstep::report {

namespace {

class ParametersWriter {
 public:
  ParametersWriter(const CheckResult& result, bool all, JsonWriter& json)
      : result_(result), schedule_(*result.scenario->schedule), model_(schedule_.model), all_(all), json_(json) {
    if (exact_of(result) != nullptr) formulas_.emplace(schedule_, *forms_of(result));
  }

  void write(const ParameterFinding& finding) {
    const Parameter& parameter = model_.parameters()[at(finding.parameter)];
    const int logical = model_.logical_of(finding.parameter);
    json_.begin_object();
    json_.key("name").string(parameter.name);
    json_.key("tied").string_or_null(parameter.tied);
    if (!parameter.copy.empty()) {
      json_.key("copy").string(parameter.copy);
    }
    json_.key("verdict").string(finding.wrong ? "mismatch" : "match");
    json_.key("replicas_agree");
    const SymbolicResult* symbolic = symbolic_of(result_);
    const bool compared = symbolic != nullptr && static_cast<std::size_t>(logical) < symbolic->replicas_agree.size();
    if (compared) {
      json_.boolean(symbolic->replicas_agree[at(logical)]);
    } else {
      json_.null();
    }
    json_.key("unowned").intervals(finding.unowned);
    json_.key("reference");
    reference(finding, logical);
    if (finding.like >= 0) {
      json_.key("like").string(model_.parameters()[at(finding.like)].name);
    }
    json_.key("ranks").begin_array();
    for (const RankGroup& group : finding.groups) rank(group);
    json_.end_array();
    json_.end_object();
  }

 private:
  /// What one device computes for the piece that the first listed rank holds, else any rank.
  void reference(const ParameterFinding& finding, int logical) {
    json_.begin_object(true);
    json_.key("formula").string_or_null(reference_formula(finding, logical));
    json_.key("hash");
    const HostResult* numbers = numbers_of(result_);
    if (hashed() && static_cast<std::size_t>(logical) < numbers->reference.size()) {
      json_.string(numbers->reference[at(logical)].to_string());
    } else {
      json_.null();
    }
    json_.end_object();
  }

  std::string reference_formula(const ParameterFinding& finding, int logical) {
    if (!formulas_ || finding.like >= 0 || !finding.not_shown.empty()) return "";
    int rank = -1, buffer = -1;
    if (!finding.groups.empty()) {
      rank = finding.groups.front().ranks.front();
      buffer = finding.groups.front().buffer;
    }
    for (int candidate = 0; buffer < 0 && candidate < schedule_.mesh.world(); ++candidate) {
      rank = candidate;
      buffer = model_.buffer_of(candidate, logical);
    }
    if (buffer < 0) return "";
    const int piece = model_.local(rank).buffers[at(buffer)].piece;
    try {
      return formulas_->formula(forms_of(result_)->reference(logical, piece, result_.step), rank, buffer, result_.step);
    } catch (const InputError&) {
      return "";  // the engine of all ranks together cannot tell it of this parameter
    }
  }

  void rank(const RankGroup& group) {
    json_.begin_object();
    if (group.ranks.size() == 1) {
      json_.key("rank").number(group.ranks.front());
      json_.key("at").begin_object(true);
      for (const auto& [axis, coordinate] : coordinates(schedule_.mesh, group.ranks.front())) {
        json_.key(axis).number(coordinate);
      }
      json_.end_object();
    } else {
      json_.key("ranks").numbers(group.ranks);
    }
    json_.key("owned");
    if (group.symbolic != nullptr) {
      json_.intervals(group.symbolic->owned);
    } else {
      const std::size_t step = at(result_.step);
      json_.intervals(result_.timeline->owned[step][at(group.ranks.front())][at(group.buffer)]);
    }
    json_.key("verdict").string(group.wrong ? "mismatch" : "match");
    if (!group.unowned.empty()) {
      json_.key("unowned").intervals(group.unowned);
    }
    json_.key("pieces").begin_array();
    if (group.symbolic != nullptr) {
      for (const PieceResult& piece : group.symbolic->pieces) {
        if (all_ || !piece.right) this->piece(group, piece);
      }
    }
    json_.end_array();
    hashes(group);
    json_.end_object();
  }

  /// A sampled replay has no hash of all that a rank owns.
  bool hashed() const {
    const HostResult* numbers = numbers_of(result_);
    return numbers != nullptr && !numbers->sampled;
  }

  void hashes(const RankGroup& group) {
    json_.key("hash");
    if (group.host != nullptr && group.host->replayed && hashed()) {
      json_.string(group.host->hash.to_string());
    } else {
      json_.null();
    }
    json_.key("expected_hash");
    if (group.host != nullptr && group.host->replayed && hashed()) {
      json_.string(group.host->expected_hash.to_string());
    } else {
      json_.null();
    }
  }

  void piece(const RankGroup& group, const PieceResult& piece) {
    const int rank = group.ranks.front();
    json_.begin_object();
    json_.key("elements").interval(piece.elements);
    json_.key("verdict").string(piece.right ? "match" : "mismatch");
    json_.key("formula").string(formulas_->formula(piece.form, rank, group.buffer, result_.step));
    json_.key("ratio").string_or_null(piece.ratio ? piece.ratio->to_string() : "");
    json_.key("coefficients").begin_array();
    std::vector<Term> terms = forms_of(result_)->terms(piece.form, rank, group.buffer);
    // By rank, micro-batch and use, whosever element a term belongs to; leftovers have none of these and come last.
    std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
      return std::tuple(!a.leftover.empty(), a.rank, a.micro_batch, a.site_use) <
             std::tuple(!b.leftover.empty(), b.rank, b.micro_batch, b.site_use);
    });
    for (const Term& term : terms) coefficient(term);
    json_.end_array();
    json_.end_object();
  }

  void coefficient(const Term& term) {
    const Logical& logical = model_.logicals()[at(term.logical)];
    json_.begin_object(true);
    if (term.leftover.empty()) {
      json_.key("rank").number(term.rank);
      json_.key("micro_batch").number(term.micro_batch);
    } else {
      json_.key("leftover").string(term.leftover);
      if (term.rank >= 0) {
        json_.key("of_rank").number(term.rank);
      }
    }
    const SiteUse& site = logical.uses[at(term.site_use)];
    const std::string& name = model_.parameters()[at(site.parameter)].name;
    json_.key("use").string(site.use == "main" ? name : name + ":" + site.use);
    if (term.foreign) {
      json_.key("foreign").boolean(true);
      // Of several copies, in the name of whose first one all of them get gradients, the one that has this use.
      json_.key("of").string(model_.logicals()[at(model_.logical_of(site.parameter))].name);
      json_.key("offset").number(term.offset);
    }
    json_.key("value").string(term.coefficient.to_string());
    if (!term.clips.empty()) {
      json_.key("clips").begin_array(true);
      for (const ClipFactor& factor : term.clips) json_.string(name_of(factor, result_.step));
      json_.end_array();
    }
    json_.end_object();
  }

  const CheckResult& result_;
  const Schedule& schedule_;
  const Model& model_;
  bool all_;
  JsonWriter& json_;
  std::optional<diagnosis::Formulas> formulas_;
};

}  // namespace

void write_json_parameters(const CheckResult& result, bool all, JsonWriter& json) {
  json.begin_array();
  if (result.timeline != nullptr || sample_of(result) != nullptr) {
    ParametersWriter writer(result, all, json);
    for (const ParameterFinding& finding : collect_findings(result, all)) writer.write(finding);
  }
  json.end_array();
}

}  // namespace lockstep::report
