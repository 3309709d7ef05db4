// The root of every exception that Sumpter throws. A message says what was asked, what was found and what to do;
// docs/errors.md lists, for each kind, what is still usable afterwards.
#pragma once

#include <stdexcept>
#include <string>

namespace sumpter {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The request itself is wrong (an option, a plan, a size): nothing was begun. The command exits with status 2.
class RequestError : public Error {
 public:
  using Error::Error;
};

// A file or a data set is not what it promised to be; the message names the file, and the item where there is one.
class DataError : public Error {
 public:
  using Error::Error;
};

// The operating system refused something that was needed: memory, a descriptor, a socket.
class SystemError : public Error {
 public:
  using Error::Error;
};

}  // namespace sumpter
