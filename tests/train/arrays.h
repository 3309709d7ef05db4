// Arrays that own their numbers, for tests of what is written and read.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "train/weights.h"

namespace sumpter::tests {

// The what() of the E that `body` throws; "" when it throws none.
template <typename E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

class Arrays {
 public:
  template <typename T>
  Arrays& add(std::string name, ElementType type, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    const std::vector<std::byte>& bytes = storage_.emplace_back(begin, begin + values.size() * sizeof(T));
    views_.push_back({std::move(name), type, std::move(shape), bytes});
    return *this;
  }
  const std::vector<NamedArray>& views() const { return views_; }

 private:
  std::deque<std::vector<std::byte>> storage_;  // never moves what it holds
  std::vector<NamedArray> views_;
};

inline std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

// Names, types, shapes, bytes, and their order.
inline void expect_same(std::span<const NamedArray> found, std::span<const NamedArray> expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_EQ(found[index].name, expected[index].name);
    EXPECT_EQ(found[index].type, expected[index].type) << found[index].name;
    EXPECT_EQ(found[index].shape, expected[index].shape) << found[index].name;
    EXPECT_EQ(copy_of(found[index].bytes), copy_of(expected[index].bytes)) << found[index].name;
  }
}

}  // namespace sumpter::tests
