#include "c10d/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"

namespace sumpter {

void StoreRendezvous::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::string StoreRendezvous::get(const std::string& key, std::chrono::milliseconds limit) {
  const auto start = Clock::now();
  try {
    store_->wait({key}, limit);
  } catch (const c10::Error& error) {
    if (Clock::now() - start < limit) throw;
    throw TimeoutError(fmt::format("the store has had no {} within {:.1f} s", key, Seconds(limit).count()), -1);
  }
  const std::vector<std::uint8_t> value = store_->get(key);
  return {value.begin(), value.end()};
}

}  // namespace sumpter
