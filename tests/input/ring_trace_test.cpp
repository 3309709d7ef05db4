// What rings write into a trace, and rings of floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/thread.h"
#include "base/trace.h"
#include "coded_dataset.h"
#include "idx_files.h"
#include "input/ring.h"
#include "sumpter/error.h"

namespace sumpter {
namespace {

using nlohmann::json;

// By row and name: what the spans' arguments are, in order.
std::map<std::string, std::vector<json>> spans_of(const Trace& trace) {
  const TemporaryDirectory directory;
  trace.write(directory.path() / "trace.json");
  std::map<int, std::string> rows;
  std::map<std::string, std::vector<json>> spans;
  const json file = json::parse(read_file(directory.path() / "trace.json"));
  for (const json& event : file.at("traceEvents")) {
    if (event.at("name") == "thread_name") rows[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    spans[rows.at(event.at("tid")) + ": " + event.at("name").get<std::string>()].push_back(event.at("args"));
  }
  return spans;
}

TEST(BatchRingTrace, ShowsEachPartThatALoaderLoadsAndWhoWaits) {
  Gate gate;
  Trace trace;
  const auto set = std::make_shared<CodedDataset>(64, [&](std::size_t index) {
    if (index == 0) gate.pass();
  });
  {
    BatchRing ring(set, {.batch_size = 8, .shuffle = false, .preload = 1, .steps = 3, .trace = &trace});
    gate.await_waiting(1);
    std::jthread replica([&] {
      name_this_thread("replica 0");
      EXPECT_EQ(ring.next(0)->step(), 0U);
    });
    while (ring.counters().asked == 0) std::this_thread::yield();
    // The replica holds the ring's lock from there until it waits.
    EXPECT_EQ(ring.counters().batches, 0U);
    gate.open();
    replica.join();
    while (ring.counters().batches < 3) std::this_thread::yield();
  }
  const auto spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans.at("input 0: load"),
            (std::vector<json>{{{"step", 0}, {"rank", 0}}, {{"step", 1}, {"rank", 0}}, {{"step", 2}, {"rank", 0}}}));
  EXPECT_EQ(spans.at("replica 0: wait for input"), (std::vector<json>{{{"step", 0}}}));
}

TEST(BatchRingTrace, ShowsWhatAReplicaLoadsByItself) {
  Trace trace;
  std::jthread([&] {
    name_this_thread("replica 0");
    BatchRing ring(std::make_shared<CodedDataset>(64),
                   {.batch_size = 8, .preload = 0, .first_step = 5, .steps = 2, .trace = &trace});
    while (ring.next(0)) {
    }
  }).join();
  const auto spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans.at("replica 0: load"), (std::vector<json>{{{"step", 5}, {"rank", 0}}, {{"step", 6}, {"rank", 0}}}));
}

// Element e of item i is i + e / 4.
class Floats : public Dataset {
 public:
  explicit Floats(ElementType type = ElementType::f32) : type_(type) {}
  std::size_t size() const override { return 10; }
  ImageShape shape() const override { return {.channels = 1, .height = 1, .width = 3}; }
  int classes() const override { return 1; }
  ElementType type() const override { return type_; }
  std::int64_t get(const Item& item, std::span<std::uint8_t> image) const override {
    for (std::size_t e = 0; e < 3; ++e) {
      const float value = static_cast<float>(item.index) + static_cast<float>(e) / 4;
      std::memcpy(image.subspan(e * sizeof(value), sizeof(value)).data(), &value, sizeof(value));
    }
    EXPECT_EQ(image.size(), 3 * sizeof(float));
    return 0;
  }

 private:
  const ElementType type_;
};

TEST(BatchRing, CarriesFloats) {
  for (const int preload : {0, 2}) {
    BatchRing ring(std::make_shared<Floats>(),
                   {.replicas = 2, .batch_size = 5, .shuffle = false, .preload = preload, .steps = 2});
    EXPECT_EQ(ring.bytes(), static_cast<std::size_t>(preload + 1) * (64 + 3 * 8 + 64 + 2 * 8));
    for (const std::size_t first : {std::size_t{0}, std::size_t{5}}) {
      const auto a = ring.next(0);
      const auto b = ring.next(1);
      std::vector<float> values(15);
      ASSERT_EQ(a->images().size(), 9 * sizeof(float));
      ASSERT_EQ(b->images().size(), 6 * sizeof(float));
      std::memcpy(values.data(), a->images().data(), a->images().size());
      std::memcpy(values.data() + 9, b->images().data(), b->images().size());
      for (std::size_t i = 0; i < 15; ++i) {
        EXPECT_EQ(values[i], static_cast<float>(first + i / 3) + static_cast<float>(i % 3) / 4);
      }
    }
    EXPECT_EQ(ring.counters().bytes, 10 * (3 * sizeof(float) + sizeof(std::int64_t)));
  }
}

TEST(BatchRing, RefusesElementsThatItDoesNotKnow) {
  try {
    const BatchRing ring(std::make_shared<Floats>(ElementType::f64), {});
    ADD_FAILURE() << "accepted f64";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("f64"));
  }
}

}  // namespace
}  // namespace sumpter
