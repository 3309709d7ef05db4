// How unrelated processes come to share an arena: rank 0 makes it and hands its descriptor to the others.
#pragma once

#include <memory>

#include "exchange/group.h"
#include "sumpter/exchange.h"

namespace sumpter::exchange {

// Blocks until this process has the arena that rank 0 made with the same options. Throws as Exchange::connect.
std::shared_ptr<GroupState> meet(int rank, const GroupOptions& options, Rendezvous& rendezvous);

}  // namespace sumpter::exchange
