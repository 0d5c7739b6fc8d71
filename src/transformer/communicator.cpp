// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/at.h"

namespace lockstep::transformer {

AxisGroups::AxisGroups(const Mesh& mesh) : mesh_(mesh) {
  // All of them: an edit of the model may lead a collective over any.
  for (int index = 0; index < axis_count; ++index) {
    const auto axis = static_cast<Axis>(index);
    groups_.emplace(axis, mesh.groups(Over{{{axis, std::nullopt}}}));
  }
}

const std::vector<int>& AxisGroups::group(Axis axis, int rank) const {
  const Groups& groups = groups_.at(axis);
  return groups.members[at(groups.group_of[at(rank)])];
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

void Communicator::mark(const std::string& site) const {
  if (reached_ != nullptr) reached_->insert(site);
}

bool Communicator::is_dropped(const std::string& site) const {
  const SiteEdit* edit = edit_of(site);
  return edit != nullptr && edit->kind == SiteEdit::Kind::drop;
}

bool Communicator::drops(const std::string& site) const {
  const bool dropped = is_dropped(site);
  if (dropped) mark(site);
  return dropped;
}

bool Communicator::duplicates(const char* site) const {
  const SiteEdit* edit = edit_of(site);
  return edit != nullptr && edit->kind == SiteEdit::Kind::duplicate;
}

Axis Communicator::axis_of(const char* site, Axis axis) const {
  if (find_site(site) == nullptr)
    throw InternalError("a communication site that is not in the table: " + std::string(site));
  const SiteEdit* edit = edit_of(site);
  if (edit == nullptr) return axis;
  const bool moved = edit->kind == SiteEdit::Kind::over;
  if (moved ? group(edit->axis) != group(axis) : size(axis) > 1) mark(site);
  return moved ? edit->axis : axis;
}

// What is cut into pieces, or put together, has as many of them as the model has ranks there.
void Communicator::check_size(const char* site, Axis taken, Axis axis) const {
  if (size(taken) == size(axis)) return;
  throw CommunicationError(CommunicationError::Kind::mismatch,
                           fmt::format("{} over {} has {} ranks, and the model there has pieces for the {} ranks of {}",
                                       site, name_of(taken), size(taken), size(axis), name_of(axis)),
                           {{rank_, fmt::format("{} over {}", site, name_of(taken)), 0, {}}});
}

void Communicator::expect_rows(const char* site, const std::vector<int>& received,
                               const std::vector<int>& expected) const {
  if (received == expected) return;
  throw CommunicationError(CommunicationError::Kind::mismatch,
                           fmt::format("rank {} gets {} rows in {} from the ranks of its group, and has room for {}",
                                       rank_, fmt::join(received, ", "), site, fmt::join(expected, ", ")),
                           {{rank_, site, 0, {}}});
}

Task<Real> Communicator::all_reduce(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1 || is_dropped(site)) co_return tensor;
  if (duplicates(site))
    tensor = co_await collective(Communication::all_reduce, site, axis, std::move(tensor), {}, nullptr);
  co_return co_await collective(Communication::all_reduce, site, axis, std::move(tensor), {}, nullptr);
}

Task<Real> Communicator::all_reduce_max(const char* site, Axis axis, Real tensor) {
  axis = axis_of(site, axis);
  if (size(axis) == 1 || is_dropped(site)) co_return tensor;
  co_return co_await collective(Communication::all_reduce_max, site, axis, std::move(tensor), {}, nullptr);
}

Task<Real> Communicator::all_gather(const char* site, Axis axis, Real tensor) {
  const Axis taken = axis_of(site, axis);
  check_size(site, taken, axis);
  if (is_dropped(site)) co_return repeated(tensor, size(axis));
  co_return co_await gather_whole(site, taken, std::move(tensor));
}

Task<Real> Communicator::gather_whole(const char* site, Axis axis, Real tensor) {
  if (size(axis) == 1) co_return tensor;
  std::vector<int> rows(static_cast<std::size_t>(size(axis)), static_cast<int>(tensor.rows()));
  co_return co_await collective(Communication::all_gather, site, axis, std::move(tensor), std::move(rows), nullptr);
}

Task<Real> Communicator::reduce_scatter(const char* site, Axis axis, Real tensor) {
  const Axis taken = axis_of(site, axis);
  check_size(site, taken, axis);
  if (size(taken) == 1) co_return tensor;
  const int count = static_cast<int>(tensor.rows()) / size(taken);
  if (is_dropped(site)) co_return rows_of(tensor, coordinate(taken) * count, count);
  if (duplicates(site))
    tensor = co_await collective(Communication::all_reduce, site, taken, std::move(tensor), {}, nullptr);
  std::vector<int> rows(static_cast<std::size_t>(size(taken)), count);
  co_return co_await collective(Communication::reduce_scatter, site, taken, std::move(tensor), std::move(rows),
                                nullptr);
}

Task<Real> Communicator::all_to_all(const char* site, Axis axis, Real tensor, std::vector<int> rows,
                                    std::vector<int>& received) {
  const Axis taken = axis_of(site, axis);
  check_size(site, taken, axis);
  if (size(taken) == 1) {
    received = std::move(rows);
    co_return tensor;
  }
  Real result =
      co_await collective(Communication::all_to_all, site, taken, std::move(tensor), std::move(rows), &received);
  if (!is_dropped(site)) co_return result;
  Index row = 0;
  for (std::size_t member = 0; member < received.size(); ++member) {
    if (static_cast<int>(member) != coordinate(taken)) result.set_rows(row, Real(received[member], result.cols()));
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
