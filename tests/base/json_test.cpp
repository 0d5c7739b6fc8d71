// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json.h"

#include "tests/catch.h"

using lockstep::InternalError;
using lockstep::Json;
using lockstep::Place;
using lockstep::Source;

namespace {

Json example() {
  return Json::object(
      {{"name", {}, Json::string("a")}, {"sizes", {}, Json::array({Json::number("1"), Json::number("0.5")})}});
}

}  // namespace

TEST_CASE("A value knows its kind and content") {
  const Json value = example();
  CHECK(value.is_object());
  CHECK(value.members().size() == 2);
  CHECK(value.find("name")->text() == "a");
  CHECK(value.find("sizes")->items()[1].text() == "0.5");
  CHECK(value.find("none") == nullptr);
  CHECK(Json().is_null());
  CHECK(Json::boolean(true).as_boolean());
}

TEST_CASE("Items, members and find are empty for other kinds") {
  for (const Json& value : {Json(), Json::boolean(false), Json::number("1"), Json::string("x")}) {
    CHECK(value.items().empty());
    CHECK(value.members().empty());
    CHECK(value.find("x") == nullptr);
  }
  CHECK(Json::array().members().empty());
  CHECK(Json::object().items().empty());
}

TEST_CASE("Asking a value for what it is not breaks an invariant") {
  CHECK_THROWS_AS(Json().text(), InternalError);
  CHECK_THROWS_AS(Json::number("1").as_boolean(), InternalError);
  CHECK_THROWS_AS(Json::array().set("x", Json()), InternalError);
  CHECK_THROWS_AS(Json::object().set_items({}), InternalError);
}

TEST_CASE("A copy may be edited and the original does not change") {
  const Json original = example();
  Json copy = original;
  copy.set("name", Json::string("b"));
  copy.set("extra", Json());
  copy.remove("sizes");
  copy.remove("never there");
  CHECK(copy.find("name")->text() == "b");
  CHECK(copy.members().size() == 2);
  CHECK(copy.members()[1].key == "extra");
  CHECK(original.same_as(example()));

  Json items = *original.find("sizes");
  items.set_items({Json::string("x")});
  CHECK(items.items().size() == 1);
  CHECK(original.same_as(example()));
}

TEST_CASE("An object may be set into itself") {
  Json value = example();
  value.set("self", value);
  CHECK(value.find("self")->same_as(example()));
  value.set("name", *value.find("sizes"));
  CHECK(value.find("name")->is_array());
}

TEST_CASE("A member that is set takes the place of its value") {
  const auto source = std::make_shared<const Source>(Source{"x", "\"new\""});
  Json value = example();
  value.set("name", Json::string("new", {source, 0, 5, "/edits/0/name"}));
  CHECK(value.members()[0].key_place.source == source);
  CHECK(value.find("name")->place().pointer.text() == "/edits/0/name");
}

TEST_CASE("A copy may claim another place") {
  const auto source = std::make_shared<const Source>(Source{"x", "12"});
  const Json here = Json::number("1").at({source, 0, 1, "/a"});
  CHECK(here.place().pointer.text() == "/a");
  CHECK(here.text() == "1");
  CHECK(Json().at({source, 0, 1, "/b"}).is_null());
  CHECK(Json().at({source, 0, 1, "/b"}).place().end == 1);
  CHECK(Json().place().source == nullptr);
}

TEST_CASE("Values are described as messages need it") {
  CHECK(Json().describe() == "null");
  CHECK(Json::boolean(true).describe() == "true");
  CHECK(Json::number("3").describe() == "the number 3");
  CHECK(Json::string("dp").describe() == "the string \"dp\"");
  CHECK(Json::array().describe() == "an array");
  CHECK(Json::object().describe() == "an object");
  CHECK(Json::string(std::string(59, 'a') + "\u00fcb").describe() ==
        "the string \"" + std::string(59, 'a') + "\u2026\"");
}

TEST_CASE("Equal content is the same wherever it was written") {
  CHECK(Json::number("0.5").same_as(Json::number("5e-1")));
  CHECK_FALSE(Json::number("0.5").same_as(Json::number("0.50000000000000000001")));
  CHECK_FALSE(Json::number("1").same_as(Json::string("1")));
  CHECK(Json().same_as(Json().at({nullptr, 0, 0, "/x"})));
  CHECK_FALSE(Json::array({Json()}).same_as(Json::array()));
  const Json a = Json::object({{"x", {}, Json::number("1")}, {"y", {}, Json::number("2")}});
  const Json b = Json::object({{"y", {}, Json::number("2")}, {"x", {}, Json::number("1.0")}});
  CHECK(a.same_as(b));
  CHECK_FALSE(a.same_as(Json::object({{"x", {}, Json::number("1")}, {"z", {}, Json::number("2")}})));
}
