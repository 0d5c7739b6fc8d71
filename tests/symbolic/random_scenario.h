// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

namespace lockstep::test {

/// Scenarios at random that are valid at every size: coordinates are counted from an end, and extents divide by all
/// sizes to 4. Some steps belong together, so that a part of them is right. The same one for the same seed.
class RandomScenario {
 public:
  explicit RandomScenario(unsigned seed) : random_(seed) {}

  std::string make() {
    if (chance(3)) return sensible();
    experts_ = chance(6);
    const std::string parameters = this->parameters();
    std::string steps = R"({ "name": "each", "op": "each", "steps": [ )" + backward() + " ] }";
    const int style = number(4);
    if (style == 0) add(steps, all_reduce());
    if (style == 1) add(steps, scatter() + (chance(2) ? ", " + gather() : ""));
    for (int i = number(style < 2 ? 2 : 5); i > 0; --i) add(steps, step());
    if (chance(3)) add(steps, norm());
    return scenario(parameters, steps,
                    text({R"("token_mean")", R"("micro_batch_mean")", R"("local_mean")", R"("sum")"}));
  }

 private:
  /// Right before at most one step more.
  std::string sensible() {
    std::string steps = R"({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", )"
                        R"x("by": "1/sum(tokens, dp, cp, micro_batch)" } ] })x";
    over_ = R"(["dp", "cp"])";
    add(steps, named(text({"all_reduce", "reduce_scatter"})) + R"(, "over": )" + over_ + " }");
    if (chance(3)) add(steps, gather());
    if (chance(2)) add(steps, step());
    if (chance(2)) add(steps, R"({ "name": "norm", "op": "norm", "over": ["dp", "cp", "tp", "pp"] })");
    return scenario(R"({ "name": "a", "shape": [48, 12], "stage": 0)" + text({"", R"(, "shard": { "tp": 0 })"}) +
                        R"( }, { "name": "b", "shape": [24], "stage": -1 })",
                    steps, R"("token_mean")");
  }

  std::string scenario(const std::string& parameters, const std::string& steps, const std::string& loss) {
    return R"({ "lockstep": 1, "layout": { "tp": 2, "cp": 2, "dp": 2, "pp": 2)" +
           std::string(experts_ ? R"(, "ep": 2, "etp": 2)" : "") + R"( }, "model": { "parameters": [ )" + parameters +
           R"( ] }, "batch": { "tokens": )" + text({R"("even")", R"("uneven")"}) + R"(, "loss": )" + loss +
           R"( }, "schedule": { "steps": [ )" + steps + " ] } }";
  }

  int number(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  bool chance(int of) { return number(of) == 0; }
  std::string text(const std::vector<std::string>& choices) {
    return choices[static_cast<std::size_t>(number(static_cast<int>(choices.size())))];
  }
  static void add(std::string& steps, const std::string& more) { steps += ", " + more; }
  std::string named(const std::string& op) {
    return R"({ "name": "s)" + std::to_string(count_++) + R"(", "op": ")" + op + "\"";
  }

  std::string parameters() {
    std::string result = R"({ "name": "a", "shape": [48, 12], "stage": 0)" + placement() + " }";
    add(result, R"({ "name": "b", "shape": [24], "stage": )" + text({"0", "-1", R"("all")"}) + placement() + " }");
    if (chance(2))
      add(result, R"({ "name": "c", "shape": [48, 12], "stage": -1, "tied": "t" }, )"
                  R"({ "name": "d", "shape": [48, 12], "stage": 0, "tied": "t" })");
    if (experts_)
      add(result, R"({ "name": "e", "shape": [48, 12], "stage": 0, "shard": { "ep": 0 }, "dispatch": ["ep"] })");
    return result;
  }
  std::string placement() {
    return text({"", "", R"(, "shard": { "tp": 0 })", R"(, "partial": ["tp"])", R"(, "partial": ["cp"])"});
  }

  std::string backward() {
    std::string result = R"({ "name": "backward", "op": "backward")";
    const std::string by = text({"", "1/micro_batches", "1/(micro_batches*dp*cp)", "1/sum(tokens, dp, cp, micro_batch)",
                                 "1/tokens", "1/(micro_batches*sum(tokens, cp))"});
    if (!by.empty()) result += R"(, "by": ")" + by + "\"";
    return result + " }";
  }

  std::string axes() {
    if (experts_ && chance(3)) return text({R"("edp")", R"(["edp", "ep"])", R"("ep")"});
    return text({R"("dp")", R"("dp")", R"(["dp", "cp"])", R"(["cp", "dp"])", R"("cp")", R"("tp")", R"(["dp", "tp"])"});
  }
  std::string params() {
    return text({"", "", "", R"(, "params": ["a"])", R"(, "params": ["!b"])", R"(, "params": ["stage:first"])"});
  }
  std::string when() {
    return text({"", "", "", "", "", R"(, "when": "rank.pp == 0")", R"(, "when": "rank.pp == last")",
                 R"(, "only": { "dp": "first" })", R"(, "when": "dp > 1")", R"(, "when": "rank.tp == 0")"});
  }
  std::string reduce() { return text({"", R"(, "reduce": "avg")"}); }
  std::string geometry() {
    return text({"", R"(, "geometry": { "kind": "flat" })", R"(, "geometry": { "kind": "rows" })",
                 R"(, "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n" })"});
  }

  std::string all_reduce() { return named("all_reduce") + R"(, "over": )" + axes() + reduce() + " }"; }
  std::string scatter() {
    over_ = axes();
    return named("reduce_scatter") + R"(, "over": )" + over_ + reduce() + geometry() + params() + " }";
  }
  std::string gather() { return named("all_gather") + R"(, "over": )" + over_ + " }"; }
  std::string norm() {
    return named("norm") + R"(, "over": )" + text({R"(["dp", "pp"])", R"(["tp", "pp"])", R"("pp")", "[]"}) +
           text({"", R"(, "count": "rank.tp == 0")", R"(, "count": "rank.dp == 0")"}) + " }";
  }

  std::string step() {
    switch (number(13)) {
      case 0:
      case 1:
        return scatter();
      case 2:
        return gather();
      case 3:
        return named("all_reduce") + R"(, "over": { "pp": ["first", "last"] })" + reduce() +
               text({R"(, "params": ["tied:t"])", "", R"(, "params": ["b"])"}) + " }";
      case 4:
        return named("all_reduce") + R"(, "over": )" + axes() + reduce() + R"(, "on": "owned")" + params() + " }";
      case 5:
        return named("broadcast") + R"(, "over": )" + axes() + R"(, "root": 0)" + params() + when() + " }";
      case 6:
        return named("reduce") + R"(, "over": )" + axes() + R"(, "root": 0)" + params() + reduce() + " }";
      case 7:
        return named("own") + R"(, "over": )" + axes() + geometry() + params() + " }";
      case 8:
        return named("leftover") + R"(, "what": "noise")" + text({"", R"(, "per": "rank")"}) + when() + " }";
      case 9:
        return named(text({"copy", "accumulate"})) +
               text({R"(, "from": "grad", "to": "main")", R"(, "from": "main", "to": "grad")"}) + params() + " }";
      case 10:
      case 11:
        return named("scale") + R"(, "by": ")" +
               text({"1/dp", "dp", "1/cp", "2", "1/tp", "3/2", "1/sum(tokens, dp, cp, micro_batch)", "micro_batches",
                     "1/pp", "rank.dp + 1"}) +
               "\"" + params() + when() + text({"", "", R"(, "on": "owned")"}) + " }";
      default:
        return named("all_reduce") + R"(, "over": )" + axes() + reduce() + params() + when() + " }";
    }
  }

  std::mt19937 random_;
  int count_ = 0;
  bool experts_ = false;
  std::string over_ = R"("dp")";
};

}  // namespace lockstep::test
