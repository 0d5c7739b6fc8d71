// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/product.h"
#include "src/diagnosis/step_editor.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

using Kind = Candidate::Kind;

void FactorEdits::factor() {
  const std::vector<Product> sizes = values_.sizes_for(values_.is_of_experts(step_));
  if (takes("by")) {
    const Product old = Product::of(step_.by);
    for (const Product& size : sizes) {
      set_factor(old.times(size));
      set_factor(old.over(size));
    }
    for (const Product& size : values_.axis_sizes) {  // upside down
      if (old.multiplies_by(size)) set_factor(old.over(size).over(size));
      if (old.divides_by(size)) set_factor(old.times(size).times(size));
    }
    set_factor(Product());
    set_factor(Product().over(old));
    if (values_.replaces_numbers) replace_numbers(old);
    normalize(old);
  }
  if (!row_.collective || row_.value != Operation::Value::reduction) return;
  // A reduction has no factor of its own: a scale behind it.
  for (const Product& size : sizes) {
    for (const Product& by : {size, Product().over(size)}) {
      Step scale =
          scenario::with(scenario::with({}, "name", &Step::name, step_.name + "_scale"), "op", &Step::op, Op::scale);
      for (const char* key : {"params", "buffer", "when", "only"}) {
        if (has(key)) scenario::set_key(scale, key, step_);
      }
      scale = scenario::with(std::move(scale), "by", &Step::by, std::optional(by.expression()));
      add(Kind::factor, Edit::insert(std::move(scale), step_.name, true));
    }
  }
}

void FactorEdits::replace_numbers(const Product& old) {
  const Product others = old.without_numbers();
  if (others.to_string() == old.to_string()) return;
  for (const Product& size : values_.axis_sizes) {
    set_factor(others.over(size));
    set_factor(others.times(size));
    for (const Product& other : values_.axis_sizes) {
      if (&other > &size) set_factor(others.over(size).over(other));
    }
  }
}

void FactorEdits::normalize(const Product& old) {
  const bool inside = !listed_.each.empty();
  for (const Product& tokens : inside ? values_.token_counts : values_.token_totals) {
    set_factor(Product().over(tokens));
    set_factor(old.times(tokens));
    set_factor(old.over(tokens));
  }
  if (!inside) return;
  count_everywhere(old);
  for (const Product& tokens : values_.token_totals) {
    set_factor(Product().over(tokens));
    set_factor(old.over(tokens));
    set_factor(old.times(tokens));
    for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
  }
  for (const Product& tokens : values_.token_counts) {
    for (const Product& size : values_.sizes) set_factor(Product().over(tokens).over(size));
    for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
  }
}

void FactorEdits::count_everywhere(const Product& old) {
  // Sums over the same axes follow each other for each of the words, the own count first.
  std::vector<Product> own;
  for (const Product& tokens : values_.token_counts) {
    if (tokens.to_string().find('(') == std::string::npos) own.push_back(tokens);
  }
  if (own.empty()) return;
  const std::size_t lists = values_.token_totals.size() / own.size();
  for (std::size_t list = 0; list < lists; ++list) {
    Product by = old;
    for (std::size_t word = 0; word < own.size(); ++word) {
      const Product& total = values_.token_totals[word * lists + list];
      if (old.multiplies_by(own[word])) by = by.times(total).over(own[word]);
      if (old.divides_by(own[word])) by = by.over(total).times(own[word]);
    }
    set_factor(by);
  }
}

void FactorEdits::set_factor(const Product& by) {
  const std::string text = by.to_string();
  if (Product::of(step_.by).to_string() == text) return;
  if (text == "1" && step_.op == Op::backward) return remove(Kind::factor, "by");
  set(Kind::factor, "by", &Step::by, std::optional(by.expression()));
}

void FactorEdits::reduction() {
  const bool sums = step_.reduction == Reduction::sum;
  if (takes("reduce")) set(Kind::reduction, "reduce", &Step::reduction, sums ? Reduction::average : Reduction::sum);
  if (step_.op != Op::norm) return;
  if (!has("combine")) return set(Kind::reduction, "combine", &Step::mean_of_norms, true);
  remove(Kind::reduction, "combine");
}

std::vector<Candidate> normalizing_edits(const std::vector<Step>& steps, const CandidateValues& values) {
  std::vector<Candidate> candidates;
  for (const ListedStep& step : listed_steps(steps)) {
    if (step.each.empty() || step.name().empty() || (step.op() != Op::scale && step.op() != Op::backward)) continue;
    for (const Product& tokens : values.token_totals) {
      for (const Product& size : values.axis_sizes) {
        Step changed = scenario::with({}, "by", &Step::by, std::optional(size.over(tokens).expression()));
        candidates.push_back({Candidate::Kind::factor, step.name(), Edit::set(step.name(), std::move(changed))});
      }
    }
    for (const Product& tokens : values.token_counts) {
      for (const Product& size : values.axis_sizes) {
        const Product by = size.over(tokens).over(Product::parse("micro_batches"));
        Step changed = scenario::with({}, "by", &Step::by, std::optional(by.expression()));
        candidates.push_back({Candidate::Kind::factor, step.name(), Edit::set(step.name(), std::move(changed))});
      }
    }
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
