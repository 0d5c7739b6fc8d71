// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/collectives.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

namespace lockstep::transformer {

namespace {

Index first_row(const std::vector<int>& rows, std::size_t member) {
  return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(member), Index{0});
}

/// In the order of the group, whoever came first, so that the result does not depend on the scheduler.
Real sum(const std::vector<const Request*>& members) {
  Real total = members.front()->tensor;
  for (std::size_t i = 1; i < members.size(); ++i) total += members[i]->tensor;
  return total;
}

std::vector<Real> exchange(const std::vector<const Request*>& members, std::vector<std::vector<int>>& received) {
  std::vector<Real> results;
  for (std::size_t to = 0; to < members.size(); ++to) {
    Index count = 0;
    for (const Request* from : members) {
      received[to].push_back(from->rows[to]);
      count += from->rows[to];
    }
    Real result(count, members[to]->tensor.cols());
    Index row = 0;
    for (const Request* from : members) {
      result.set_rows(row, rows_of(from->tensor, first_row(from->rows, to), from->rows[to]));
      row += from->rows[to];
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

std::string describe(const Request& request) {
  const std::string call = fmt::format("{} {}", name_of(request.kind), request.site);
  if (request.kind == Communication::receive) return fmt::format("{} from rank {}", call, request.peer);
  const std::string shape = fmt::format("{} of {} x {}", call, request.tensor.rows(), request.tensor.cols());
  return request.kind == Communication::send ? fmt::format("{} to rank {}", shape, request.peer) : shape;
}

bool agree(const Request& a, const Request& b) {
  if (a.kind != b.kind || a.site != b.site || a.tensor.cols() != b.tensor.cols()) return false;
  if (a.kind == Communication::all_to_all) return true;  // each sends what it has
  if (a.rows != b.rows) return false;
  return a.kind == Communication::all_gather || a.tensor.rows() == b.tensor.rows();
}

std::vector<Real> perform(const std::vector<const Request*>& members, std::vector<std::vector<int>>& received) {
  const Request& lead = *members.front();
  std::vector<Real> results;
  switch (lead.kind) {
    case Communication::all_reduce:
      return std::vector<Real>(members.size(), sum(members));
    case Communication::all_reduce_max: {
      Real largest = lead.tensor;
      for (const Request* member : members) largest = maximum(std::move(largest), member->tensor);
      return std::vector<Real>(members.size(), largest);
    }
    case Communication::all_gather: {
      Real whole(first_row(lead.rows, members.size()), lead.tensor.cols());
      for (std::size_t i = 0; i < members.size(); ++i) whole.set_rows(first_row(lead.rows, i), members[i]->tensor);
      return std::vector<Real>(members.size(), whole);
    }
    case Communication::reduce_scatter: {
      const Real total = sum(members);
      for (std::size_t i = 0; i < members.size(); ++i)
        results.push_back(rows_of(total, first_row(lead.rows, i), lead.rows[i]));
      return results;
    }
    case Communication::all_to_all:
      return exchange(members, received);
    case Communication::send:
    case Communication::receive:
      break;
  }
  throw std::logic_error("a message is no collective");
}

}  // namespace lockstep::transformer
