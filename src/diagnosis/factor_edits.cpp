// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_editor.h"

namespace lockstep {

using Kind = Candidate::Kind;

void FactorEdits::factor() {
  if (takes("by")) {
    const Json* by = key("by");
    const Product old = by == nullptr ? Product() : Product::parse(by->text());
    for (const Product& size : values_.sizes) {
      set_factor(old.times(size));
      set_factor(old.over(size));
    }
    set_factor(Product());
    normalize(old);
  }
  if (!row_->collective || row_->value != Operation::Value::reduction) return;
  // A reduction has no factor of its own: a scale behind it.
  for (const Product& size : values_.sizes) {
    for (const Product& by : {size, Product().over(size)}) {
      Json scale =
          Json::object({{"name", {}, Json::string(step_->name + "_scale")}, {"op", {}, Json::string("scale")}});
      for (const char* word : {"params", "buffer", "when", "only"}) {
        if (const Json* value = key(word)) scale.set(word, *value);
      }
      scale.set("by", Json::string(by.to_string()));
      add(Kind::factor, Edit::insert(scale, step_->name, true));
    }
  }
}

void FactorEdits::normalize(const Product& old) {
  const bool inside = !step_->each.empty();
  for (const Product& tokens : inside ? values_.token_counts : values_.token_totals) {
    set_factor(Product().over(tokens));
    set_factor(old.times(tokens));
    set_factor(old.over(tokens));
  }
  if (!inside) return;
  for (const Product& tokens : values_.token_totals) {
    set_factor(Product().over(tokens));
    set_factor(old.over(tokens));
    for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
  }
  for (const Product& tokens : values_.token_counts) {
    for (const Product& size : values_.sizes) set_factor(Product().over(tokens).over(size));
    for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
  }
}

void FactorEdits::set_factor(const Product& by) {
  const std::string text = by.to_string();
  const Json* old = key("by");
  if (old != nullptr && Product::parse(old->text()).to_string() == text) return;
  if (old == nullptr && text == "1") return;
  set(Kind::factor, "by", text == "1" && step_->op == Op::backward ? Json() : Json::string(text));
}

void FactorEdits::reduction() {
  if (takes("reduce"))
    set(Kind::reduction, "reduce", Json::string(text_of(step_->step, "reduce") == "avg" ? "sum" : "avg"));
  if (step_->op == Op::norm)
    set(Kind::reduction, "combine", text_of(step_->step, "combine").empty() ? Json::string("mean_of_norms") : Json());
}

}  // namespace lockstep
