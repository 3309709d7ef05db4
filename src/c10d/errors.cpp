#include "c10d/errors.h"

#include <fmt/format.h>

#include "sumpter/exchange.h"

namespace sumpter {

c10::DistBackendError backend_error(const std::string& text) { return c10::DistBackendError("sumpter: " + text); }

std::exception_ptr for_torch(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RequestError& request) {
    return std::make_exception_ptr(c10::ValueError(std::string("sumpter: ") + request.what()));
  } catch (const Error& known) {
    return std::make_exception_ptr(backend_error(known.what()));
  } catch (...) {
    return error;
  }
}

}  // namespace sumpter
