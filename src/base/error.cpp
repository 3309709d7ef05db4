#include "base/error.h"

#include <cerrno>
#include <exception>
#include <system_error>

namespace sumpter {

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string errno_text() { return errno_text(errno); }

std::string describe(const std::exception_ptr& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace sumpter
