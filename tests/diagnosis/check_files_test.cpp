// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Files that match, that do not, and that are no scenario, in turn; removed at the end.
class Files {
 public:
  explicit Files(int count)
      : folder_(std::filesystem::temp_directory_path() / ("check_files_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < count; ++i) {
      const std::string reduce = i % 3 == 0 ? R"(, "reduce": "avg")" : "";
      names.push_back((folder_ / (std::to_string(i) + ".json")).string());
      std::ofstream(names.back()) << (i % 3 == 2 ? "no JSON"
                                                 : two_ranks(R"({ "name": "s", "op": "all_reduce", "over": "dp")" +
                                                             reduce + " }"));
    }
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::vector<std::string> names;

 private:
  std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("several files are handed over in their order, with what each alone gives") {
  const Files files(40);
  std::vector<CheckResult> results;
  check_files(files.names, {}, [&](const CheckResult& result) { results.push_back(result); });
  REQUIRE(results.size() == files.names.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const CheckResult alone = check_file(files.names[i]);
    CHECK(results[i].file == files.names[i]);
    CHECK(results[i].verdict == alone.verdict);
    CHECK(results[i].errors.size() == alone.errors.size());
    const HostResult *numbers = numbers_of(results[i], "host"), *own = numbers_of(alone, "host");
    CHECK((numbers == nullptr) == (own == nullptr));
    if (own != nullptr) CHECK(numbers->buffers[0].hash == own->buffers[0].hash);
  }
  CHECK(results[0].verdict == Verdict::match);
  CHECK(results[1].verdict == Verdict::mismatch);
  CHECK(results[2].verdict == Verdict::error);
}

TEST_CASE("what the taker of results throws ends the rest") {
  const Files files(40);
  int taken = 0;
  const auto take = [&](const CheckResult&) {
    if (++taken == 3) throw std::runtime_error("enough");
  };
  CHECK_THROWS_AS(check_files(files.names, {}, take), std::runtime_error);
  CHECK(taken == 3);
  check_files({}, {}, take);
  CHECK(taken == 3);
}
