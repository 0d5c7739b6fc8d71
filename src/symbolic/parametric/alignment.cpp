// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "src/base/at.h"
#include "src/expression/digits.h"
#include "src/expression/node.h"
#include "src/symbolic/parametric/cases.h"

namespace lockstep::parametric {

namespace {

using Node = Expression::Node;

/// What is seen of the values of an expression, at every size.
struct SeenValues {
  bool whole = false, positive = false;
};

SeenValues seen_values(const Node& node) {
  using Kind = Node::Kind;
  if (const auto* number = std::get_if<Rational>(&node.value); node.kind == Kind::value && number != nullptr)
    return {number->is_integer(), Rational(0) < *number};
  if (node.kind == Kind::name) return {true, true};  // n, sizes and counts
  if (node.kind != Kind::binary && node.kind != Kind::call) return {};
  SeenValues all{true, true};
  bool any_positive = false;
  for (const auto& child : node.children) {
    const SeenValues one = seen_values(*child);
    all.whole = all.whole && one.whole;
    all.positive = all.positive && one.positive;
    any_positive = any_positive || one.positive;
  }
  const std::string& text = node.text;
  if (text == "+" || text == "*" || text == "min") return all;
  if (text == "max") return {all.whole, any_positive};
  if (text == "-") return {all.whole, false};
  return text == "lcm" && all.whole && all.positive ? all : SeenValues{};
}

/// The largest number that a geometry may have.
constexpr std::int64_t most_of_a_geometry = std::int64_t{1} << 62;

/// What is nowhere smaller than the node, and is no lcm(), of which no range is known: products in their place. The
/// node itself where it is not seen that it grows with them.
expression::NodePointer without_lcm(const expression::NodePointer& node) {
  const bool is_lcm = node->kind == Node::Kind::call && node->text == "lcm";
  const bool grows = is_lcm || node->text == "+" || node->text == "*" || node->text == "max" || node->text == "min";
  const SeenValues seen = seen_values(*node);
  if (!grows || !seen.whole || !seen.positive || node->children.empty()) return node;
  std::vector<expression::NodePointer> children;
  for (const auto& child : node->children) children.push_back(without_lcm(child));
  if (is_lcm) {
    expression::NodePointer product = children.front();
    for (std::size_t i = 1; i < children.size(); ++i) product = expression::binary_node("*", product, children[i]);
    return product;
  }
  const auto same = std::make_shared<Node>(*node);
  expression::set_children(*same, std::move(children));
  return same;
}

}  // namespace

Alignment::Multiple& Alignment::Multiple::operator*=(const Multiple& other) {
  factor *= other.factor;
  for (const auto& [level, power] : other.powers) powers[level] += power;
  return *this;
}

bool Alignment::Multiple::divides(const Multiple& other) const {
  return (other.factor / factor).is_integer() && std::all_of(powers.begin(), powers.end(), [&](const auto& own) {
           const auto there = other.powers.find(own.first);
           return there != other.powers.end() && own.second <= there->second;
         });
}

Alignment::Alignment(const World& world, const Step& step, bool cuts) : world_(world), step_(step.name) {
  if (!cuts || !step.over) return;
  picks_ = step.over->picks;
  for (const Over::Pick& pick : step.over->picks) {
    if (pick.coordinates) {
      n_.factor *= Rational(static_cast<std::int64_t>(pick.coordinates->size()));
    } else {
      n_ *= size_of(pick.axis);
    }
  }
}

void Alignment::multiply_by_level(Multiple& product, int level) const {
  const Level& one = world_.levels()[at(level)];
  if (one.open) {
    ++product.powers[level];
  } else {
    product.factor *= Rational(one.size);
  }
}

Alignment::Multiple Alignment::size_of(Axis axis) const {
  Multiple product;
  for (const int level : world_.levels_of(axis, step_)) multiply_by_level(product, level);
  return product;
}

/// Nothing of what is no size: the number of micro-batches, say.
std::optional<Alignment::Multiple> Alignment::named(const std::string& name) const {
  if (name == "n") return n_;
  if (name == "world") {
    Multiple product;
    for (std::size_t level = 0; level < world_.levels().size(); ++level)
      multiply_by_level(product, static_cast<int>(level));
    return product;
  }
  const std::optional<Axis> axis = axis_named(name);
  if (!axis) return std::nullopt;
  if (is_expert_axis(*axis) && !World::uses_expert_mesh(world_.schedule())) return std::nullopt;
  return size_of(*axis);
}

/// The multiples whose least common one an expression is; nothing where it is something else.
std::optional<std::vector<Alignment::Multiple>> Alignment::multiples_of(const Node& node) const {
  using Kind = Node::Kind;
  if (const auto* number = std::get_if<Rational>(&node.value); node.kind == Kind::value && number != nullptr)
    return number->is_zero() ? std::nullopt : std::optional(std::vector<Multiple>{{*number, {}}});
  if (node.kind == Kind::name) {
    const std::optional<Multiple> one = named(node.text);
    return one ? std::optional(std::vector<Multiple>{*one}) : std::nullopt;
  }
  std::vector<Multiple> all;
  const bool product = node.kind == Kind::binary && node.text == "*";
  if (!product && !(node.kind == Kind::call && node.text == "lcm")) return std::nullopt;
  for (const auto& child : node.children) {
    const auto some = multiples_of(*child);
    if (!some || (product && some->size() != 1)) return std::nullopt;
    if (product && !all.empty()) {
      all.front() *= some->front();
    } else {
      all.insert(all.end(), some->begin(), some->end());
    }
  }
  return all;
}

std::optional<Rational> Alignment::value_of(const Expression& expression) const {
  const std::set<std::string> spoken_of = expression.names();
  const bool of_n_alone =
      std::all_of(spoken_of.begin(), spoken_of.end(), [](const std::string& name) { return name == "n"; });
  if (is_open() || (world_.open().for_every_size && !of_n_alone)) return std::nullopt;
  const std::map<std::string, ExpressionValue, std::less<>> names = {{"n", n_.factor}};
  Environment environment;
  environment.mesh = &world_.schedule().mesh;
  environment.counts = &world_.schedule().batch;
  environment.names = &names;
  return expression.number(environment);
}

bool Alignment::is_multiple_of_n(const Expression& alignment) const {
  if (const auto value = value_of(alignment)) return (*value / n_.factor).is_integer();
  const auto all = multiples_of(alignment.tree());
  return all && std::any_of(all->begin(), all->end(), [&](const Multiple& one) { return n_.divides(one); });
}

bool Alignment::begins_aligned(const Geometry& geometry) const {
  const Expression bucket = geometry.align_bucket ? *geometry.align_bucket : Expression::parse("lcm(n, 128)");
  const auto part_value = value_of(geometry.align_parameter), bucket_value = value_of(bucket);
  if (part_value && bucket_value) return !part_value->is_zero() && (*bucket_value / *part_value).is_integer();
  const auto parts = multiples_of(geometry.align_parameter.tree()), wholes = multiples_of(bucket.tree());
  if (!parts || !wholes) return false;
  return std::all_of(parts->begin(), parts->end(), [&](const Multiple& part) {
    return std::any_of(wholes->begin(), wholes->end(), [&](const Multiple& whole) { return part.divides(whole); });
  });
}

void Alignment::require_whole_and_positive(const Step& step) {
  const auto look_at = [&](const char* key, const Expression& expression) {
    const SeenValues values = seen_values(expression.tree());
    if (values.whole && values.positive) return;
    throw OutOfReach(step.name, fmt::format("whether its \"{}\", \"{}\", is a positive whole number depends on sizes "
                                            "that are open",
                                            key, expression.to_string()));
  };
  if (step.geometry->size) look_at("size", *step.geometry->size);
  look_at("align_parameter", step.geometry->align_parameter);
}

std::optional<SizeRange> Alignment::range_of(const std::string& name) const {
  const std::optional<Multiple> size = named(name);
  if (!size) return std::nullopt;
  Rational low = size->factor, high = size->factor;
  for (const auto& [level, power] : size->powers) {
    const Level& one = world_.levels()[at(level)];
    for (int i = 0; i < power; ++i) {
      low *= Rational(one.least);
      high *= Rational(one.most.value_or(largest_size));
    }
  }
  // However many axes there are, they have no more ranks together.
  return SizeRange{low, std::max(low, std::min(high, Rational(largest_size))), false, false};
}

void Alignment::require_countable(const Step& step) const {
  const Geometry& geometry = *step.geometry;
  Rational elements;  // of all buffers, none of which has more
  const std::vector<Parameter>& parameters = world_.schedule().model.parameters();
  for (const Parameter& parameter : parameters) {
    Rational product(1);
    for (const std::int64_t extent : parameter.shape) product *= Rational(extent);
    elements += product;
  }
  // A buffer by itself ends at its alignment, or at less than twice its elements. Others begin where it ends.
  const Rational most(most_of_a_geometry), count(static_cast<std::int64_t>(parameters.size()));
  const bool alone = geometry.kind == Geometry::Kind::flat || parameters.size() == 1;
  const Rational most_aligned =
      alone && elements + elements <= most ? most : Rational(((most - elements) / (count + count)).floor());
  const auto look_at = [&](const char* key, const Expression& number, const Rational& limit) {
    expression::DigitsOfNodes digits([](const std::string&) { return expression::digits_of_a_size; });
    // Where the number is one and too large, whoever lays the buffers out says so in full.
    if (const auto value = value_of(number); value && *value > most) return;
    const std::int64_t bits = digits(number.tree()).above;
    if (bits < 62 && Rational(std::int64_t{1} << bits) <= limit) return;
    expression::NodePointer n;
    for (const Over::Pick& pick : picks_) {
      const auto own = pick.coordinates
                           ? expression::value_node(Rational(static_cast<std::int64_t>(pick.coordinates->size())))
                           : expression::name_node(std::string(name_of(pick.axis)));
      n = n == nullptr ? own : expression::binary_node("*", n, own);
    }
    const expression::NodePointer whole = without_lcm(number.root());
    const auto range = number_in_ranges(*whole, [&](const std::string& name) { return range_of(name); });
    if (range && range->high && *range->high <= limit) return;
    expression::NodesByName names;
    if (n != nullptr) names.emplace("n", n);
    throw DependsOnSizes(
        step_,
        fmt::format("its \"{}\", \"{}\", may be larger than {}, and a cut has at most 2^62 elements", key,
                    number.to_string(), limit.to_string()),
        DependsOnSizes::Conditions{expression::fold(expression::binary_node(">", whole, expression::value_node(limit)),
                                                    Environment{}, &names)});
  };
  if (geometry.align) look_at("align", *geometry.align, most_aligned);
  if (geometry.size) look_at("size", *geometry.size, most);
  if (geometry.kind == Geometry::Kind::bucket) look_at("align_parameter", geometry.align_parameter, most_aligned);
  if (geometry.align_bucket) look_at("align_bucket", *geometry.align_bucket, most_aligned);
}

}  // namespace lockstep::parametric
