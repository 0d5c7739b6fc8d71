// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace lockstep::transformer {

/// A coroutine that starts when it is awaited and resumes its caller when it ends. Its result, or what it threw, is
/// that of the await. Owns its frame: a task that is destroyed before its end is abandoned with everything it holds.
template <class Result>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> caller;
  std::exception_ptr failure;

  struct Return {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      const std::coroutine_handle<> caller = self.promise().caller;
      return caller ? caller : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  Return final_suspend() noexcept { return {}; }
  void unhandled_exception() { failure = std::current_exception(); }
};

template <class Result>
struct Promise : PromiseBase {
  std::optional<Result> result;
  void return_value(Result value) { result = std::move(value); }
  Result take() { return std::move(*result); }
};
template <>
struct Promise<void> : PromiseBase {
  void return_void() {}
  void take() {}
};

}  // namespace detail

template <class Result = void>
class [[nodiscard]] Task {
 public:
  struct promise_type : detail::Promise<Result> {
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
  };

  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
    frame_.promise().caller = caller;
    return frame_;
  }
  Result await_resume() {
    if (frame_.promise().failure) std::rethrow_exception(frame_.promise().failure);
    return frame_.promise().take();
  }

  /// For the outermost task, which nobody awaits.
  std::coroutine_handle<> frame() const { return frame_; }
  bool done() const { return frame_.done(); }
  void rethrow() const {
    if (frame_.promise().failure) std::rethrow_exception(frame_.promise().failure);
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

}  // namespace lockstep::transformer
