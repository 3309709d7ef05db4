// torch's Store as the place where the exchange's members find each other.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "sumpter/exchange.h"

namespace sumpter {

class StoreRendezvous : public Rendezvous {
 public:
  explicit StoreRendezvous(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override;
  // Where the store itself cannot be reached (its host has died), the error is the store's.
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace sumpter
