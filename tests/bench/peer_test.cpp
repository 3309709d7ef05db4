// Peers are shell scripts here.
#include "bench/peer.h"

#include <gmock/gmock.h>

#include "sumpter/error.h"

namespace sumpter::bench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Answers a tenth of a second for each byte and repeat.
constexpr const char* kCalculator =
    R"(sh -c 'echo ready; while read bytes repeats; do echo $((bytes * repeats / 10)).$((bytes * repeats % 10)); done')";

TEST(Peer, DoesARoundAtATime) {
  Peer peer("calculator", kCalculator);
  EXPECT_EQ(peer.round("4", 3), 1.2);
  EXPECT_EQ(peer.job("100")(2), 20);
  EXPECT_EQ(peer.name(), "calculator");
}

TEST(Peer, IsReadFromAnOption) {
  Peer peer(std::string("other=") + kCalculator);
  EXPECT_EQ(peer.name(), "other");
  EXPECT_EQ(peer.round("1", 1), 0.1);
  EXPECT_THROW(Peer("=sh"), RequestError);
  EXPECT_THROW(Peer("name="), RequestError);
  EXPECT_THROW(Peer("name"), RequestError);
}

TEST(Peer, ComplaintsNameItAndShowWhatItSaid) {
  Peer peer("strange", R"(sh -c 'echo ready; read line; echo error no such size')");
  EXPECT_THAT([&] { peer.round("4096", 1); },
              ThrowsMessage<Error>(HasSubstr("peer strange, told '4096 1', answered 'error no such size'")));
  EXPECT_THAT([&] { peer.round("4096", 1); }, ThrowsMessage<Error>(HasSubstr("peer strange")));  // it has ended
}

TEST(Peer, StartsOnlyWhenItIsReady) {
  EXPECT_THAT([] { Peer("early", "echo hello"); }, ThrowsMessage<Error>(HasSubstr("'hello' instead of 'ready'")));
  EXPECT_THAT([] { Peer("nobody", "true"); }, ThrowsMessage<Error>(HasSubstr("peer nobody ended")));
}

TEST(Peer, SilenceEnds) {
  EXPECT_THAT([] { Peer("silent", "cat", std::chrono::seconds{0}); },
              ThrowsMessage<Error>(HasSubstr("peer silent has said nothing")));
}

}  // namespace
}  // namespace sumpter::bench
