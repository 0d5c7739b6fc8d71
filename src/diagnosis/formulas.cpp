// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/formulas.h"

#include "src/base/at.h"

namespace lockstep::diagnosis {

const std::string& Formulas::formula(int form, int rank, int buffer, int optimizer_step) {
  const auto key = std::make_tuple(form, schedule_->model.local(rank).id, buffer, optimizer_step);
  const auto found = formulas_.find(key);
  if (found != formulas_.end()) return found->second;
  const std::vector<Term> terms = engine_->terms(form, rank, buffer);
  return formulas_[key] = print_formula(*schedule_, rank, buffer, terms, support(rank, buffer, optimizer_step));
}

const std::vector<Term>& Formulas::support(int rank, int buffer, int optimizer_step) {
  const LocalBuffer& local = schedule_->model.local(rank).buffers[at(buffer)];
  const auto key = std::make_tuple(local.logical, local.piece, optimizer_step);
  const auto found = supports_.find(key);
  if (found != supports_.end()) return found->second;
  return supports_[key] = reference_terms(*schedule_, local.logical, local.piece, optimizer_step);
}

}  // namespace lockstep::diagnosis
