// The message of what a piece of code must throw.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace sumpter::tests {

// The what() of the E that `action` throws. Throwing none fails the test.
template <typename E>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace sumpter::tests
