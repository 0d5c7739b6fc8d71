// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <random>

#include "src/base/at.h"
#include "src/symbolic/program_forms.h"
#include "src/symbolic/program_operations.h"
#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::symbolic;

namespace {

using Numbers = std::vector<Rational>;

/// Two by two ranks, whose groups run along either axis or both, and what they hold: programs are drawn, and run in
/// plain numbers as they are drawn, one call of all ranks after the other.
class DrawnPrograms {
 public:
  DrawnPrograms(std::uint64_t seed, bool shared) : generator_(seed), shared_(shared), memory_(world) {
    programs.program_of = shared ? std::vector<int>(world, 0) : std::vector<int>{0, 1, 2, 3};
    programs.programs.resize(shared ? 1 : world);
    programs.members = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {0, 1, 2, 3}, {2, 0, 3, 1}};
    programs.groups = {{-1, {0, 0, 1, 1}}, {-1, {2, 3, 2, 3}}, {4, {}}, {5, {}}};
    for (int i = 0; i < 2; ++i) contribute();
    const int calls = below(7);
    for (int i = 0; i < calls; ++i) {
      if (below(4) == 0) contribute();
      if (!shared && below(5) == 0) {
        pair();
      } else {
        collective();
      }
    }
    results.resize(world);
    each_program([&](int program) {
      const std::int64_t elements = 1 + below(9);
      own(program).order.push_back(~static_cast<int>(own(program).results.size()));
      own(program).results.push_back(draw_content(program, elements));
      for (const int rank : ranks(program)) results[at(rank)] = numbers(rank, own(program).results.back(), elements);
    });
  }

  static constexpr int world = 4;
  RankPrograms programs;
  std::vector<Numbers> results;  // by rank
  const Numbers& held(int rank, int source) const { return memory_[at(rank)][at(source)]; }

 private:
  int below(int most) { return static_cast<int>(generator_() % static_cast<std::uint64_t>(most)); }
  RankProgram& own(int program) { return programs.programs[at(program)]; }
  std::vector<int> ranks(int program) const {
    return shared_ ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{program};
  }
  template <class Do>
  void each_program(const Do& todo) {
    for (int program = 0; program < static_cast<int>(programs.programs.size()); ++program) todo(program);
  }

  void contribute() {
    each_program([&](int program) {
      const std::int64_t elements = 4 + below(9);
      own(program).sources.push_back({-1, elements});
      for (const int rank : ranks(program)) {
        Numbers drawn;
        for (std::int64_t i = 0; i < elements; ++i) drawn.emplace_back(below(2001) - 1000);
        memory_[at(rank)].push_back(drawn);
      }
    });
  }

  /// Covers all elements, with sums that begin anywhere in their sources.
  ProgramContent draw_content(int program, std::int64_t elements) {
    ProgramContent content;
    for (std::int64_t first = 0; first < elements;) {
      ContentPart part;
      part.first = first;
      part.count = 1 + below(static_cast<int>(std::min<std::int64_t>(elements - first, 4)));
      const int terms = below(4);
      for (int i = 0; i < terms; ++i) {
        const int source = below(static_cast<int>(own(program).sources.size()));
        const std::int64_t room = own(program).sources[at(source)].elements - part.count;
        if (room < 0) continue;
        part.terms.push_back({Rational(below(7) - 3, 1 + below(3)), source, below(static_cast<int>(room) + 1)});
      }
      first += part.count;
      content.push_back(part);
    }
    return content;
  }

  Numbers numbers(int rank, const ProgramContent& content, std::int64_t elements) const {
    Numbers sum(at(elements), Rational(0));
    for (const ContentPart& part : content) {
      for (const SourceTerm& term : part.terms) {
        for (std::int64_t i = 0; i < part.count; ++i)
          sum[at(part.first + i)] += term.coefficient * held(rank, term.source)[at(term.offset + i)];
      }
    }
    return sum;
  }

  void define(int program, ProgramCall& call, std::int64_t elements) {
    call.output = static_cast<int>(own(program).sources.size());
    own(program).sources.push_back({static_cast<int>(own(program).calls.size()), elements});
  }

  void keep(int program, const ProgramCall& call) {
    own(program).order.push_back(static_cast<int>(own(program).calls.size()));
    own(program).calls.push_back(call);
  }

  void pair() {
    const int from = below(world), to = (from + 1 + below(world - 1)) % world;
    ProgramCall call;
    call.elements = 1 + below(5);
    call.op = ProgramOp::send;
    call.peer.only = to;
    call.async = below(2) == 0;
    call.input = draw_content(from, call.elements);
    const Numbers sent = numbers(from, call.input, call.elements);
    keep(from, call);
    call.op = ProgramOp::recv;
    call.peer.only = from;
    call.input.clear();
    define(to, call, call.elements);
    keep(to, call);
    memory_[at(to)].push_back(sent);
  }

  void collective() {
    static constexpr ProgramOp ops[] = {ProgramOp::all_reduce, ProgramOp::reduce_scatter, ProgramOp::all_gather,
                                        ProgramOp::broadcast,  ProgramOp::reduce,         ProgramOp::gather,
                                        ProgramOp::scatter,    ProgramOp::all_to_all,     ProgramOp::barrier};
    ProgramCall drawn;
    drawn.op = ops[below(9)];
    drawn.group = below(4);
    const std::int64_t members = drawn.group < 2 ? 2 : 4;
    const bool has_splits = below(2) == 0;
    static constexpr const char* reductions[] = {"sum", "avg", "premul_sum"};
    drawn.reduce = reductions[below(3)];
    drawn.factor = Rational(1 + below(3), 1 + below(5));
    drawn.root = below(static_cast<int>(members));
    drawn.async = below(2) == 0;
    drawn.elements = members * (1 + below(3));
    // What member i sends member j, as all of them know it.
    std::vector<std::vector<std::int64_t>> sent(at(members), std::vector<std::int64_t>(at(members)));
    for (auto& row : sent) {
      for (std::int64_t& one : row) one = has_splits && !shared_ ? below(3) : 1;
    }
    std::vector<std::int64_t> splits(at(members), drawn.elements / members);
    if (has_splits) {
      ++splits[0];
      --splits[1];
    }
    std::vector<ProgramCall> calls(world);
    std::vector<Numbers> inputs(world);
    each_program([&](int program) {
      ProgramCall call = drawn;
      const int rank = ranks(program).front();
      const std::vector<int>& group = programs.members[at(programs.groups[at(call.group)].on(rank))];
      const auto i = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
      if (call.op == ProgramOp::reduce_scatter && has_splits && !shared_) call.input_splits = splits;
      if (call.op == ProgramOp::all_gather && has_splits && !shared_) {
        call.output_splits = splits;
        call.elements = splits[i];
      }
      if (call.op == ProgramOp::all_to_all) {
        call.elements = 0;
        for (std::size_t j = 0; j < group.size(); ++j) {
          call.input_splits.push_back(sent[i][j]);
          call.output_splits.push_back(sent[j][i]);
          call.elements += sent[i][j];
        }
      }
      if (call.op != ProgramOp::barrier) call.input = draw_content(program, call.elements);
      for (const int one : ranks(program)) {
        calls[at(one)] = call;
        inputs[at(one)] = numbers(one, call.input, call.elements);
      }
    });
    std::vector<Numbers> outputs(world);
    for (int rank = 0; rank < world; ++rank) outputs[at(rank)] = brought(rank, calls, inputs);
    each_program([&](int program) {
      const int rank = ranks(program).front();
      ProgramCall& call = calls[at(rank)];
      // In a program of several ranks the root and the others would have other sources.
      const bool at_root = call.op == ProgramOp::reduce || call.op == ProgramOp::gather;
      if (call.op != ProgramOp::barrier && !(at_root && shared_) && !outputs[at(rank)].empty()) {
        define(program, call, std::ssize(outputs[at(rank)]));
        for (const int one : ranks(program)) memory_[at(one)].push_back(outputs[at(one)]);
      }
      keep(program, call);
    });
  }

  /// What a call brings a rank; nothing where it brings nothing.
  Numbers brought(int rank, const std::vector<ProgramCall>& calls, const std::vector<Numbers>& inputs) const {
    const ProgramCall& call = calls[at(rank)];
    const std::vector<int>& group = programs.members[at(programs.groups[at(call.group)].on(rank))];
    const auto i = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    const bool is_root = static_cast<int>(i) == call.root;
    const Numbers& of_root = inputs[at(group[at(call.root)])];
    const std::size_t part = of_root.size() / group.size();
    Numbers out;
    switch (call.op) {
      case ProgramOp::all_reduce:
        return reduced(call, group, inputs);
      case ProgramOp::reduce:
        return is_root ? reduced(call, group, inputs) : out;
      case ProgramOp::reduce_scatter: {
        const Numbers all = reduced(call, group, inputs);
        std::size_t begin = 0, size = all.size() / group.size();
        for (std::size_t j = 0; j < i; ++j) begin += call.input_splits.empty() ? size : at(call.input_splits[j]);
        if (!call.input_splits.empty()) size = at(call.input_splits[i]);
        return {all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(begin + size)};
      }
      case ProgramOp::gather:
        if (!is_root) return out;
        [[fallthrough]];
      case ProgramOp::all_gather:
        for (const int one : group) out.insert(out.end(), inputs[at(one)].begin(), inputs[at(one)].end());
        return out;
      case ProgramOp::broadcast:
        return of_root;
      case ProgramOp::scatter:
        return {of_root.begin() + static_cast<std::ptrdiff_t>(i * part),
                of_root.begin() + static_cast<std::ptrdiff_t>((i + 1) * part)};
      case ProgramOp::all_to_all:
        for (std::size_t j = 0; j < group.size(); ++j) {
          const ProgramCall& other = calls[at(group[j])];
          std::size_t begin = 0;
          for (std::size_t k = 0; k < i; ++k) begin += at(other.input_splits[k]);
          for (std::int64_t k = 0; k < other.input_splits[i]; ++k) out.push_back(inputs[at(group[j])][begin + at(k)]);
        }
        return out;
      default:
        return out;
    }
  }

  static Numbers reduced(const ProgramCall& call, const std::vector<int>& group, const std::vector<Numbers>& inputs) {
    Numbers sum(inputs[at(group[0])].size(), Rational(0));
    for (const int one : group) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += inputs[at(one)][i];
    }
    for (Rational& one : sum) {
      if (call.reduce == "avg") one = one / Rational(std::ssize(group));
      if (call.reduce == "premul_sum") one = one * call.factor;
    }
    return sum;
  }

  std::mt19937_64 generator_;
  bool shared_;
  std::vector<std::vector<Numbers>> memory_;  // by rank and source
};

/// A program that only calls.
RankProgram calling(const std::vector<ProgramCall>& calls) {
  RankProgram program;
  for (const ProgramCall& call : calls) {
    program.order.push_back(static_cast<int>(program.calls.size()));
    program.calls.push_back(call);
  }
  return program;
}

ProgramCall all_reduce(int group, std::int64_t elements = 4, bool async = false) {
  ProgramCall call;
  call.op = ProgramOp::all_reduce;
  call.group = group;
  call.elements = elements;
  call.reduce = "sum";
  call.async = async;
  call.words = fmt::format("all_reduce in group {}", group);
  return call;
}

ProgramCall pair_call(ProgramOp op, int peer, bool async = false) {
  ProgramCall call;
  call.op = op;
  call.peer.only = peer;
  call.elements = 4;
  call.async = async;
  return call;
}

/// Each of two ranks with a program of its own; two groups of both.
RankPrograms two_ranks(RankProgram first, RankProgram second) {
  RankPrograms programs;
  programs.programs = {std::move(first), std::move(second)};
  programs.program_of = {0, 1};
  programs.members = {{0, 1}, {1, 0}};
  programs.groups = {{0, {}}, {1, {}}};
  return programs;
}

}  // namespace

TEST_CASE("each call that a script can make has a row in its place, and is found by its name") {
  for (const std::string& name : symbolic::program_operation_names()) {
    INFO(name);
    const symbolic::ProgramOperation* row = symbolic::program_operation_named(name);
    REQUIRE(row != nullptr);
    CHECK(&symbolic::program_operation(row->op) == row);
    // Who sends to the members, or gets from them, is told by a root.
    const bool of_a_root = row->sender == symbolic::ProgramOperation::Sender::root ||
                           row->parts == symbolic::ProgramOperation::Parts::of_the_root;
    CHECK((!of_a_root || row->rooted));
  }
  CHECK(symbolic::program_operation_names().size() == static_cast<std::size_t>(symbolic::ProgramOp::barrier) + 1);
  CHECK(symbolic::program_operation_named("all_reduce_twice") == nullptr);
}

TEST_CASE("composed programs hold what a run of all ranks in plain numbers holds") {
  const unsigned count = test::cases(400);
  for (unsigned i = 0; i < count; ++i) {
    const DrawnPrograms drawn(i, i % 3 == 0);
    INFO("case " << i);
    const Meetings meetings = match_calls(drawn.programs);
    REQUIRE(meetings.stuck.empty());
    for (const Meeting& meeting : meetings.all) {
      REQUIRE(meeting.complete());
      CHECK(meeting.wrong.empty());
    }
    ProgramForms forms(drawn.programs, meetings);
    for (int rank = 0; rank < DrawnPrograms::world; ++rank) {
      const Numbers& expected = drawn.results[at(rank)];
      std::int64_t end = 0;
      for (const Stretch& stretch : forms.result(rank, 0)) {
        REQUIRE(stretch.begin == end);
        REQUIRE(stretch.form >= 0);
        end = stretch.end;
        const std::vector<ComposedTerm> terms = forms.terms_of(stretch.form);
        for (std::int64_t element = stretch.begin; element < stretch.end; ++element) {
          Rational sum;
          for (const ComposedTerm& term : terms) {
            CHECK(!term.coefficient.is_zero());
            sum += term.coefficient * drawn.held(term.rank, term.source)[at(element + stretch.shift + term.offset)];
          }
          CHECK(sum == expected[at(element)]);
        }
      }
      CHECK(end == std::ssize(expected));
    }
  }
}

TEST_CASE("ranks that wait for each other in a circle are told, and asynchronous calls do not wait") {
  const RankPrograms crossed =
      two_ranks(calling({all_reduce(0), all_reduce(1)}), calling({all_reduce(1), all_reduce(0)}));
  const Meetings meetings = match_calls(crossed);
  REQUIRE(meetings.stuck.size() == 2);
  CHECK(meetings.stuck[0].rank == 0);
  CHECK(meetings.stuck[0].missing == 1);
  CHECK(meetings.stuck[1].missing == 0);
  CHECK(!meetings.reached(0, 0));
  CHECK(meetings.order.empty());

  const RankPrograms async = two_ranks(calling({all_reduce(0, 4, true), all_reduce(1, 4, true)}),
                                       calling({all_reduce(1, 4, true), all_reduce(0, 4, true)}));
  CHECK(match_calls(async).stuck.empty());
  CHECK(match_calls(async).reached(1, 1));

  const RankPrograms sends = two_ranks(calling({pair_call(ProgramOp::send, 1), pair_call(ProgramOp::recv, 1)}),
                                       calling({pair_call(ProgramOp::send, 0), pair_call(ProgramOp::recv, 0)}));
  CHECK(match_calls(sends).stuck.size() == 2);
}

TEST_CASE("ranks that wait in a circle are found behind others that wait for a rank that has ended") {
  RankPrograms programs;
  programs.program_of = {0, 1, 2, 3};
  programs.members = {{0, 3}, {1, 2}, {2, 1}, {0, 1, 3}};
  programs.groups = {{0, {}}, {1, {}}, {2, {}}, {3, {}}};
  programs.programs = {calling({all_reduce(0)}), calling({all_reduce(1), all_reduce(2)}),
                       calling({all_reduce(2), all_reduce(1)}), calling({})};
  Meetings meetings = match_calls(programs);
  REQUIRE(meetings.stuck.size() == 2);
  CHECK(meetings.stuck[0].rank == 1);
  CHECK(meetings.stuck[0].missing == 2);
  CHECK(meetings.stuck[1].rank == 2);
  CHECK(meetings.stuck[1].missing == 1);
  CHECK(!meetings.stuck[0].ended);
  // Rank 0 waits for rank 3, which has ended, and for rank 1, which waits for rank 0.
  programs.members = {{3, 0, 1}, {1, 0}};
  programs.groups = {{0, {}}, {1, {}}};
  programs.programs = {calling({all_reduce(0)}), calling({all_reduce(1)}), calling({}), calling({})};
  meetings = match_calls(programs);
  REQUIRE(meetings.stuck.size() == 2);
  CHECK(meetings.stuck[0].rank == 0);
  CHECK(meetings.stuck[0].missing == 1);
  CHECK(meetings.stuck[1].missing == 0);
  // Nobody waits in a circle: the first who waits for one that has ended is told.
  programs.programs[1] = calling({});
  meetings = match_calls(programs);
  REQUIRE(meetings.stuck.size() == 1);
  CHECK(meetings.stuck[0].rank == 0);
  CHECK(meetings.stuck[0].missing == 3);
  CHECK(meetings.stuck[0].ended);
}

TEST_CASE("what reads the output of an asynchronous call waits for it") {
  RankProgram reads = calling({all_reduce(0, 4, true)});
  reads.calls[0].output = 0;
  reads.sources = {{0, 4}};
  ProgramCall second = all_reduce(1, 4, true);
  second.input = {{0, 4, {{Rational(1), 0, 0}}, ""}};
  reads.calls.push_back(second);
  reads.order.push_back(1);
  // The other rank waits in the second group before it comes to the first.
  CHECK(match_calls(two_ranks(reads, calling({all_reduce(1), all_reduce(0)}))).stuck.size() == 2);
  CHECK(match_calls(two_ranks(reads, calling({all_reduce(0), all_reduce(1)}))).stuck.empty());
}

TEST_CASE("a rank that never comes is told, and what depends on it is not known") {
  RankProgram reads = calling({all_reduce(0)});
  reads.calls[0].output = 0;
  reads.sources = {{0, 4}};
  reads.results = {{{0, 4, {{Rational(1), 0, 0}}, ""}}};
  reads.order.push_back(~0);
  const RankPrograms programs = two_ranks(reads, calling({}));
  const Meetings meetings = match_calls(programs);
  REQUIRE(meetings.stuck.size() == 1);
  CHECK(meetings.stuck[0].ended);
  ProgramForms forms(programs, meetings);
  const Stretches held = forms.result(0, 0);
  REQUIRE(held.size() == 1);
  REQUIRE(held[0].form < 0);
  CHECK(forms.reason_of(held[0].form) == "the all_reduce in group 0 never ends");
}

TEST_CASE("calls that are no collective say what differs") {
  const auto wrong = [](const ProgramCall& one, const ProgramCall& other) {
    const RankPrograms programs = two_ranks(calling({one}), calling({other}));
    return match_calls(programs).all.at(0).wrong;
  };
  const auto with = [](auto change, ProgramOp op = ProgramOp::all_reduce) {
    ProgramCall call = all_reduce(0);
    call.op = op;
    change(call);
    return call;
  };
  const ProgramCall plain = all_reduce(0);
  CHECK(wrong(plain, plain).empty());
  CHECK(wrong(plain, with([](ProgramCall& call) { call.elements = 8; })) ==
        "ranks 0 and 1 call it with different numbers of elements");
  CHECK(wrong(plain, with([](ProgramCall& call) { call.dtype = "int8"; })) ==
        "ranks 0 and 1 call it with different types");
  CHECK(wrong(plain, with([](ProgramCall& call) { call.reduce = "avg"; })) ==
        "ranks 0 and 1 call it with different reductions");
  CHECK(wrong(plain, with([](ProgramCall& call) { call.factor = Rational(1, 2); })) ==
        "ranks 0 and 1 call it with different reductions");
  CHECK(wrong(plain, with([](ProgramCall& call) { call.op = ProgramOp::reduce_scatter; })) ==
        "ranks 0 and 1 call it with different operations");
  const auto broadcast = [&](int root) {
    return with([root](ProgramCall& call) { call.root = root; }, ProgramOp::broadcast);
  };
  CHECK(wrong(broadcast(0), broadcast(1)) == "ranks 0 and 1 call it with different roots");
  const auto odd = with([](ProgramCall& call) { call.elements = 3; }, ProgramOp::reduce_scatter);
  CHECK(wrong(odd, odd) == "rank 0 puts in 3 elements, which do not fall into 2 parts");
  const auto split = [&](std::vector<std::int64_t> in, std::vector<std::int64_t> out) {
    return with(
        [&](ProgramCall& call) {
          call.input_splits = std::move(in);
          call.output_splits = std::move(out);
        },
        ProgramOp::all_to_all);
  };
  CHECK(wrong(split({1, 3}, {1, 2}), split({2, 2}, {3, 2})).empty());
  CHECK(wrong(split({1, 3}, {1, 2}), split({2, 2}, {2, 2})) == "rank 0 sends 3 elements to rank 1, which takes 2");
  CHECK(wrong(split({4}, {1, 2}), split({2, 2}, {2, 2})) ==
        "rank 0 puts in 4 elements, which do not fall into 2 parts");
  const auto gathered = with([](ProgramCall& call) { call.output_splits = {4, 5}; }, ProgramOp::all_gather);
  CHECK(wrong(gathered, gathered) == "rank 1 puts in 4 elements, and 5 were to be gathered from it");

  RankProgram takes = calling({plain});
  takes.calls[0].output = 0;
  takes.sources = {{0, 5}};
  CHECK(match_calls(two_ranks(takes, calling({plain}))).all.at(0).wrong ==
        "rank 0 takes 5 elements of it, and it brings 4");
}

TEST_CASE("what is unknown stays so through sums, and what was not followed is no zero") {
  RankProgram first = calling({all_reduce(0)});
  first.sources = {{-1, 4}, {0, 4}};
  first.calls[0].output = 1;
  first.calls[0].input = {{0, 1, {{Rational(1), 0, 0}}, ""}, {1, 1, {}, "aten::pow at optim.py:12"}, {3, 1, {}, ""}};
  first.results = {{{0, 4, {{Rational(2), 1, 0}}, ""}}};
  first.order.push_back(~0);
  const RankPrograms programs = two_ranks(first, first);
  const Meetings meetings = match_calls(programs);
  ProgramForms forms(programs, meetings);
  const Stretches held = forms.result(1, 0);
  REQUIRE(held.size() == 4);
  REQUIRE(held[0].form > 0);
  CHECK(forms.terms_of(held[0].form).size() == 2);
  CHECK(forms.terms_of(held[0].form)[1].coefficient == Rational(2));
  REQUIRE(held[1].form < 0);
  CHECK(forms.reason_of(held[1].form) == "aten::pow at optim.py:12");
  REQUIRE(held[2].form < 0);
  CHECK(forms.reason_of(held[2].form) == not_followed);
  CHECK(held[3].form == 0);

  RankPrograms greatest = programs;
  for (RankProgram& program : greatest.programs) program.calls[0].reduce = "max";
  const Meetings of_greatest = match_calls(greatest);
  ProgramForms other(greatest, of_greatest);
  REQUIRE(other.result(0, 0).at(0).form < 0);
  CHECK(other.reason_of(other.result(0, 0)[0].form) == "the all_reduce in group 0 is no sum");
}

TEST_CASE("what is no sum on one rank is none with others, but two such on one rank may be one") {
  RankProgram first = calling({all_reduce(0)});
  first.sources = {{-1, 4}, {0, 4}};
  first.calls[0].output = 1;
  first.calls[0].input = {{0, 2, {}, "never written", NoSum::never}, {2, 2, {{Rational(1), 0, 0}}, ""}};
  first.results = {{{0, 4, {{Rational(1), 1, 0}}, ""}},
                   {{0, 2, {{Rational(1), 1, 0}, {Rational(-1), 1, 2}}, ""}},
                   {{0, 2, {{Rational(1), 1, 0}, {Rational(1), 1, 1}}, ""}}};
  first.order.insert(first.order.end(), {~0, ~1, ~2});
  const auto held = [](const RankPrograms& programs, int result) {
    const Meetings meetings = match_calls(programs);
    ProgramForms forms(programs, meetings);
    const Stretches found = forms.result(0, result);
    return found.at(0).form < 0 ? std::optional(forms.no_sum(found[0].form)) : std::nullopt;
  };
  const RankPrograms both = two_ranks(first, first);
  CHECK(held(both, 0) == NoSum::never);
  CHECK(held(both, 1) == NoSum::never);
  CHECK(held(both, 2) == NoSum::perhaps);
  RankProgram second = first;
  second.calls[0].input[0] = {0, 2, {}, "not known"};
  CHECK(held(two_ranks(first, second), 0) == NoSum::perhaps);
  second.calls[0].input[0].unknown = "";
  CHECK(held(two_ranks(first, second), 0) == NoSum::never);
}

TEST_CASE("a maximum is no sum where ranks see other data, and a sum of maxima neither, but with a minimum it may be") {
  RankProgram program = calling({all_reduce(0), all_reduce(1)});
  program.sources = {{-1, 4}, {0, 4}, {1, 4}};
  for (const int call : {0, 1}) {
    program.calls[at(call)].reduce = "max";
    program.calls[at(call)].output = 1 + call;
    program.calls[at(call)].input = {{0, 4, {{Rational(1), 0, 0}}, ""}};
  }
  const auto results = [&](const Rational& factor) {
    program.results = {{{0, 4, {{Rational(1), 1, 0}}, ""}}, {{0, 4, {{Rational(1), 1, 0}, {factor, 2, 0}}, ""}}};
  };
  results(Rational(1));
  program.order.insert(program.order.end(), {~0, ~1});
  const auto held = [](const RankPrograms& programs, int result) {
    const Meetings meetings = match_calls(programs);
    ProgramForms forms(programs, meetings);
    const Stretches found = forms.result(0, result);
    return found.at(0).form < 0 ? std::optional(forms.no_sum(found[0].form)) : std::nullopt;
  };
  RankPrograms programs = two_ranks(program, program);
  CHECK(held(programs, 0) == NoSum::perhaps);  // nobody knows what data they see
  programs.data_of = {0, 0};
  CHECK(held(programs, 0) == NoSum::perhaps);
  programs.data_of = {0, 1};
  CHECK(held(programs, 0) == NoSum::never);
  CHECK(held(programs, 1) == NoSum::never);
  results(Rational(-1));
  programs = two_ranks(program, program);
  programs.data_of = {0, 1};
  CHECK(held(programs, 1) == NoSum::perhaps);
  for (RankProgram& one : programs.programs) one.calls[1].reduce = "min";
  CHECK(held(programs, 1) == NoSum::never);
  for (RankProgram& one : programs.programs) {
    for (ProgramCall& call : one.calls) call.reduce = "product";
  }
  CHECK(held(programs, 0) == NoSum::perhaps);
  // Of equal ones it is that one.
  RankProgram same = calling({all_reduce(0), all_reduce(1)});
  same.sources = {{-1, 4}, {0, 4}, {1, 4}};
  same.calls[0].output = 1;
  same.calls[0].input = {{0, 4, {{Rational(1), 0, 0}}, ""}};
  same.calls[1].output = 2;
  same.calls[1].reduce = "max";
  same.calls[1].input = {{0, 4, {{Rational(1), 1, 0}}, ""}};
  same.results = {{{0, 4, {{Rational(1), 2, 0}}, ""}}};
  same.order.push_back(~0);
  CHECK(held(two_ranks(same, same), 0) == std::nullopt);
}
