// SPDX-License-Identifier: Apache-2.0
#include "src/device/watch.h"

#include "src/base/at.h"
#include "src/device/gpu.h"

namespace lockstep::device {

namespace {

std::string seconds_text(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

/// "a, b and c"
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

}  // namespace

void Watch::begin(const Processes& group, const ReplayPlace& place) {
  group_ = group;
  place_ = place;
  board_.write(process_, Board::State::waits, place_);
  moves_ = board_.moves();
  since_ = Clock::now();
}

void Watch::end() { board_.write(process_, Board::State::works, place_); }

void Watch::look() {
  if (const auto why = board_.failure()) throw OtherFailure(*why);
  const std::uint64_t moves = board_.moves();
  const Clock::time_point now = Clock::now();
  if (moves != moves_) {
    moves_ = moves;
    since_ = now;
  }
  if (now - since_ > patience_) throw NetworkFailure(who_is_where());
}

std::string Watch::who_is_where() const {
  std::vector<std::string> missing, there, unknown;
  for (const int other : group_) {
    if (other == process_) continue;
    const std::string& name = names_[at(other)];
    const Board::Entry entry = board_.read(other);
    const bool same_place = !(entry.place < place_) && !(place_ < entry.place);
    if (entry.state == Board::State::unknown) {
      unknown.push_back(name);
    } else if (entry.state == Board::State::ended) {
      missing.push_back(name + ", which has ended");
    } else if (same_place && entry.state == Board::State::waits) {
      there.push_back(name);
    } else {
      missing.push_back(name + ", which is in " + entry.place.what);
    }
  }
  std::string text = names_[at(process_)] + " waits in " + place_.what;
  if (!missing.empty()) {
    text += " for " + listed(missing);
  } else if (!unknown.empty()) {
    text += " for " + listed(unknown) + ", of which nothing is known here";
  } else if (!there.empty()) {
    text += ", and " + listed(there) + (there.size() == 1 ? " is" : " are") + " there too";
  }
  text += "; nobody has moved for " + seconds_text(patience_) +
          ". The communicators were aborted. LOCKSTEP_NCCL_TIMEOUT=SECONDS in the environment waits longer, and "
          "NCCL_DEBUG=WARN says more";
  return text;
}

}  // namespace lockstep::device
