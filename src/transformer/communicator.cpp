// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/communicator.h"

namespace lockstep::transformer {

AxisGroups::AxisGroups(const Mesh& mesh) : mesh_(mesh) {
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp, Axis::pp, Axis::ep, Axis::etp})
    groups_.emplace(axis, mesh.groups(Over{{{axis, std::nullopt}}}));
}

const std::vector<int>& AxisGroups::group(Axis axis, int rank) const {
  const Groups& groups = groups_.at(axis);
  return groups.members[static_cast<std::size_t>(groups.group_of[static_cast<std::size_t>(rank)])];
}

Task<Real> Communicator::collective(Communication kind, const char* site, Axis axis, Real tensor, std::vector<int> rows,
                                    std::vector<int>* received) {
  Request request;
  request.kind = kind;
  request.site = site;
  request.group = group(axis);
  request.tensor = std::move(tensor);
  request.rows = std::move(rows);
  Runtime::Communicate call = runtime_.communicate(rank_, std::move(request), received);
  co_return co_await call;
}

const SiteEdit* Communicator::edit_of(const std::string& site) const {
  const auto found = edits_.find(site);
  return found == edits_.end() ? nullptr : &found->second;
}

bool Communicator::drops(const std::string& site) const {
  const SiteEdit* edit = edit_of(site);
  return edit != nullptr && edit->kind == SiteEdit::Kind::drop;
}

bool Communicator::duplicates(const char* site) const {
  const SiteEdit* edit = edit_of(site);
  return edit != nullptr && edit->kind == SiteEdit::Kind::duplicate;
}

Axis Communicator::axis_of(const char* site, Axis axis) const {
  if (find_site(site) == nullptr)
    throw InternalError("a communication site that is not in the table: " + std::string(site));
  const SiteEdit* edit = edit_of(site);
  return edit != nullptr && edit->kind == SiteEdit::Kind::over ? edit->axis : axis;
}

Task<Real> Communicator::all_reduce(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1 || drops(site)) co_return tensor;
  if (duplicates(site))
    tensor = co_await collective(Communication::all_reduce, site, axis, std::move(tensor), {}, nullptr);
  co_return co_await collective(Communication::all_reduce, site, axis, std::move(tensor), {}, nullptr);
}

Task<Real> Communicator::all_reduce_max(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1 || drops(site)) co_return tensor;
  co_return co_await collective(Communication::all_reduce_max, site, axis, std::move(tensor), {}, nullptr);
}

Task<Real> Communicator::all_gather(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1) co_return tensor;
  if (drops(site)) co_return Real(tensor.replicate(size(axis), 1));
  std::vector<int> rows(static_cast<std::size_t>(size(axis)), static_cast<int>(tensor.rows()));
  co_return co_await collective(Communication::all_gather, site, axis, std::move(tensor), std::move(rows), nullptr);
}

Task<Real> Communicator::reduce_scatter(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1) co_return tensor;
  const int count = static_cast<int>(tensor.rows()) / size(axis);
  if (drops(site)) co_return Real(tensor.middleRows(coordinate(axis) * count, count));
  if (duplicates(site))
    tensor = co_await collective(Communication::all_reduce, site, axis, std::move(tensor), {}, nullptr);
  std::vector<int> rows(static_cast<std::size_t>(size(axis)), count);
  co_return co_await collective(Communication::reduce_scatter, site, axis, std::move(tensor), std::move(rows), nullptr);
}

Task<Real> Communicator::all_to_all(const char* site, Axis axis, Real tensor, std::vector<int> rows,
                                    std::vector<int>& received) {
  axis = axis_of(site, axis);
  if (size(axis) == 1) {
    received = std::move(rows);
    co_return tensor;
  }
  Real result =
      co_await collective(Communication::all_to_all, site, axis, std::move(tensor), std::move(rows), &received);
  if (!drops(site)) co_return result;
  Eigen::Index row = 0;
  for (std::size_t member = 0; member < received.size(); ++member) {
    if (static_cast<int>(member) != coordinate(axis)) result.middleRows(row, received[member]).setZero();
    row += received[member];
  }
  co_return result;
}

Task<> Communicator::send(std::string site, int peer, int channel, Real tensor) {
  Request request;
  request.kind = Communication::send;
  request.site = std::move(site);
  request.peer = peer;
  request.channel = channel;
  request.tensor = std::move(tensor);
  Runtime::Communicate call = runtime_.communicate(rank_, std::move(request));
  co_await call;
}

Task<Real> Communicator::receive(std::string site, int peer, int channel) {
  Request request;
  request.kind = Communication::receive;
  request.site = std::move(site);
  request.peer = peer;
  request.channel = channel;
  Runtime::Communicate call = runtime_.communicate(rank_, std::move(request));
  co_return co_await call;
}

}  // namespace lockstep::transformer
