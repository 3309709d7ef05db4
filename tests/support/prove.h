// Long checks: cases whose suite begins with Prove do their work only when SUMPTER_PROVE=1 is in the environment, as
// `make prove` sets it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace sumpter::tests {

inline bool proving() {
  const char* value = std::getenv("SUMPTER_PROVE");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace sumpter::tests

// First line of a long check.
#define SUMPTER_PROVE_ONLY()                              \
  if (!::sumpter::tests::proving()) {                     \
    GTEST_SKIP() << "a long check; `make prove` runs it"; \
  }                                                       \
  static_assert(true, "so that a semicolon may follow")
