// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "lockstep/rational.h"

namespace lockstep {

/// A budget is used up, or something grows beyond what fits into one. what() is half a sentence: `it would take more
/// than 20 million units of work in step "mean"`. It is neither a mistake of the user's nor one of lockstep.
class OverBudget : public std::runtime_error {
 public:
  explicit OverBudget(const std::string& why) : std::runtime_error(why) {}
  OverBudget(const std::string& most, const std::string& place);
};

/// Work that may be done for one answer, while this object lives, by the thread that made it. It is counted in units
/// and not in seconds, so that the same input is cut off at the same place on every machine: a unit is some tens of
/// nanoseconds. What is spent counts for each budget that the thread has at that time, and once one of them is used up
/// every further spend() throws. Each allocation of the thread counts as well (base/allocations.h), and so do the bytes
/// that it has taken and not given back since its outermost budget began; both are looked at by the next spend(). Other
/// threads that work on the same answer count nothing.
class Budget {
 public:
  /// For one run of an engine: about a second, and at most a gigabyte.
  static constexpr std::int64_t run = 20'000'000;
  /// For the replay of every rank whose contents are to be shown, or compared.
  static constexpr std::int64_t replay = 50'000'000;
  /// For a search, which makes many runs one after the other.
  static constexpr std::int64_t search = 150'000'000;

  /// For the cases of a proof, and for the search for a counterexample after it: less than ten seconds together.
  static constexpr std::int64_t proof = 280'000'000;
  static constexpr std::int64_t counterexample = 60'000'000;

  /// For all that is done with one file, most of which has a budget of its own.
  static constexpr std::int64_t file = 2'500'000'000;

  /// The bytes that may be live at a time, whatever may be spent; and while there is a proof.
  static constexpr std::int64_t memory = 3'000'000'000;
  static constexpr std::int64_t memory_of_a_proof = 1'000'000'000;

  /// `memory`: with what is live since the outermost budget of the thread began.
  explicit Budget(std::int64_t most, std::int64_t memory = Budget::memory);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget();

  std::int64_t spent() const { return spent_; }
  /// Whether it was this one that threw; where it was not, what it says belongs to one around it.
  bool used_up() const { return spent_ > most_; }

  /// Throws OverBudget where that is more than any budget of this thread has left; a thread without one may do all.
  static void spend(std::int64_t units);
  /// For loops whose work is what they allocate: throws as spend() does.
  static void checkpoint() { spend(0); }

  /// What is made once for all answers counts for none of them: a budget must not depend on what was asked before.
  /// While this object lives, the thread has no budget.
  class Uncounted {
   public:
    Uncounted();
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;
    ~Uncounted();

   private:
    Budget* suspended_;
    std::int64_t live_;
  };

  /// Names what work is done for, while this object lives: `step "mean"`. The innermost is the one that is told.
  class Place {
   public:
    Place(const char* kind, const std::string& name);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

   private:
    friend class Budget;
    const char* kind_;
    const std::string* name_;
    const Place* outer_;
  };

 private:
  /// Takes in what was allocated. No place to throw from.
  static void settle(std::int64_t units);

  std::int64_t most_, memory_, spent_ = 0, live_at_begin_;
  Budget* outer_;
};

/// A table that is made when it is first asked for: `static const Rows rows = made_once([] { … });`.
template <class Make>
auto made_once(const Make& make) {
  const Budget::Uncounted for_none;
  return make();
}

/// For one operation with a number: one of many digits costs as much as they do squared.
void spend_on(const Rational& number);

/// "20 million"; "1500".
std::string units_text(std::int64_t units);

}  // namespace lockstep
