// SPDX-License-Identifier: Apache-2.0
#include "src/device/watch.h"

#include <cstdlib>
#include <thread>

#include "src/device/gpu.h"
#include "src/device/gpu_job.h"
#include "tests/catch.h"

using namespace lockstep::device;

namespace {

const std::vector<std::string> names = {"process 0 (GPU 0)", "process 1 (GPU 1)", "process 2 (GPU 5)"};

std::string told(Watch& watch) {
  try {
    watch.look();
    return "";
  } catch (const NetworkFailure& failure) {
    const std::string text = failure.what();
    return text.substr(0, text.find(". The communicators"));
  }
}

}  // namespace

TEST_CASE("nobody is missed while anybody moves") {
  Board board(3);
  Watch watch(board, 0, names, std::chrono::milliseconds(200));
  watch.begin({0, 1}, {0, 1, 2, "step \"a\""});
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    board.write(2, Board::State::works, {0, 1, 1, "step \"b\""});
    CHECK(told(watch).empty());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  CHECK(told(watch) ==
        "process 0 (GPU 0) waits in step \"a\" for process 1 (GPU 1), of which nothing is known here; nobody has moved "
        "for 200 ms");
}

TEST_CASE("who is missed is said with where it is, and who has come is not missed") {
  Board board(3);
  Watch watch(board, 0, names, std::chrono::milliseconds(1));
  const ReplayPlace place{0, 1, 2, "step \"a\""};
  const auto wait = [&] {
    watch.begin({0, 1, 2}, place);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return told(watch);
  };
  board.write(1, Board::State::waits, place);
  board.write(2, Board::State::works, {0, 1, 1, "step \"b\""});
  CHECK(
      wait() ==
      "process 0 (GPU 0) waits in step \"a\" for process 2 (GPU 5), which is in step \"b\"; nobody has moved for 1 ms");
  board.write(2, Board::State::ended, {0, 1, 1, "step \"b\""});
  CHECK(wait() ==
        "process 0 (GPU 0) waits in step \"a\" for process 2 (GPU 5), which has ended; nobody has moved for 1 ms");
  board.write(2, Board::State::waits, place);
  CHECK(wait() ==
        "process 0 (GPU 0) waits in step \"a\", and process 1 (GPU 1) and process 2 (GPU 5) are there too; nobody has "
        "moved for 1 ms");
}

TEST_CASE("the failure that a process met itself is told before those that others heard of") {
  Board board(3);
  CHECK_FALSE(board.failure());
  board.fail(0, Board::Cause::another, "0 heard");
  CHECK(board.failure() == "0 heard");
  CHECK_FALSE(board.failed_by_itself());
  board.fail(2, Board::Cause::own, "2 failed");
  board.fail(1, Board::Cause::own, "1 failed later");
  board.fail(2, Board::Cause::own, "2 failed again");
  CHECK(board.failure() == "2 failed");
  CHECK(board.failed_by_itself());
  Watch watch(board, 1, names, std::chrono::hours(1));
  watch.begin({0, 1}, {});
  CHECK_THROWS_AS(watch.look(), OtherFailure);
}

TEST_CASE("processes that do not see each other have more patience, unless it is said how much") {
  using std::chrono::milliseconds;
  unsetenv("LOCKSTEP_NCCL_TIMEOUT");
  CHECK(nccl_patience() == milliseconds(60'000));
  CHECK(nccl_patience(false) == milliseconds(600'000));
  setenv("LOCKSTEP_NCCL_TIMEOUT", "1.5", 1);
  CHECK(nccl_patience() == milliseconds(1'500));
  CHECK(nccl_patience(false) == milliseconds(1'500));
  unsetenv("LOCKSTEP_NCCL_TIMEOUT");
}

TEST_CASE("a process of a job has the place that it was told, and none where sockets are missing") {
  const auto told_place = [](const GpuJobPlace& place) {
    setenv(gpu_job_variable, place.text().c_str(), 1);
    const std::optional<GpuJobPlace> found = gpu_job_place();
    unsetenv(gpu_job_variable);
    return found ? found->text() : "none";
  };
  CHECK(told_place({0, 3, 5, {7, 8}}) == "0 3 5 7 8");  // the first has a socket to each of the others
  CHECK(told_place({2, 3, 5, {9}}) == "2 3 5 9");
  CHECK(told_place({0, 3, 5, {7}}) == "none");
  CHECK(told_place({1, 3, 5, {7, 8}}) == "none");
  CHECK(told_place({3, 3, 5, {7}}) == "none");
  CHECK(told_place({0, 3, -1, {7, 8}}) == "none");
}
