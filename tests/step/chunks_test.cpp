#include "step/chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sumpter/error.h"

namespace sumpter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two modules of a weight and a bias each, one of a weight only: 400, 40, 800, 80 and 4000 bytes.
const std::vector<ParameterInfo> kParameters = {
    {"a.weight", 100, 0}, {"a.bias", 10, 0}, {"b.weight", 200, 1}, {"b.bias", 20, 1}, {"c.weight", 1000, 2}};
const std::vector<int> kBackward = {4, 3, 2, 1, 0};

std::vector<std::vector<int>> parameters_by_chunk(const ChunkRule& rule, const std::vector<int>& finished = kBackward) {
  std::vector<std::vector<int>> parameters;
  for (const Chunk& chunk : make_chunks(kParameters, finished, rule)) parameters.push_back(chunk.parameters);
  return parameters;
}

TEST(MakeChunks, OneLayerEach) {
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::layers, 1}),
              ElementsAre(ElementsAre(4), ElementsAre(3, 2), ElementsAre(1, 0)));
}

TEST(MakeChunks, LayersKeepTheRest) {
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::layers, 2}), ElementsAre(ElementsAre(4, 3, 2), ElementsAre(1, 0)));
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::layers, 99}), ElementsAre(ElementsAre(4, 3, 2, 1, 0)));
}

TEST(MakeChunks, ASizeClosesAtTheFirstLayerThatReachesIt) {
  EXPECT_EQ(parameters_by_chunk({ChunkRule::Kind::bytes, 4000}).size(), 2U);  // c alone is 4000
  EXPECT_EQ(parameters_by_chunk({ChunkRule::Kind::bytes, 4001}).size(), 2U);  // c and b, then a
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::bytes, 4001}),
              ElementsAre(ElementsAre(4, 3, 2), ElementsAre(1, 0)));
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::bytes, 4000}),
              ElementsAre(ElementsAre(4), ElementsAre(3, 2, 1, 0)));
  EXPECT_EQ(parameters_by_chunk({ChunkRule::Kind::bytes, 1}).size(), 3U);
  EXPECT_EQ(parameters_by_chunk({ChunkRule::Kind::bytes, 1U << 30}).size(), 1U);
}

TEST(MakeChunks, AllIsOne) {
  const std::vector<Chunk> chunks = make_chunks(kParameters, kBackward, {ChunkRule::Kind::all, 0});
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].bytes, 4U * 1330);
  EXPECT_THAT(chunks[0].layers, ElementsAre(0, 1, 2));
}

TEST(MakeChunks, ALayerIsFinishedWithItsLastParameter) {
  // a.bias comes first of all, a.weight last: the layer a is the last one.
  EXPECT_THAT(parameters_by_chunk({ChunkRule::Kind::layers, 1}, {1, 2, 4, 3, 0}),
              ElementsAre(ElementsAre(4), ElementsAre(2, 3), ElementsAre(1, 0)));
}

TEST(MakeChunks, CountsTheBytesOfTheType) {
  const std::vector<Chunk> chunks =
      make_chunks(kParameters, kBackward, {ChunkRule::Kind::bytes, 8001}, ElementType::f64);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].bytes, 8U * 1220);
  EXPECT_EQ(chunks[1].bytes, 8U * 110);
}

TEST(RequireFit, RefusesMoreLayersThanThereAre) {
  EXPECT_NO_THROW(require_fit(kParameters, {ChunkRule::Kind::layers, 3}));
  EXPECT_THROW(require_fit(kParameters, {ChunkRule::Kind::layers, 4}), RequestError);
  EXPECT_NO_THROW(require_fit(kParameters, {ChunkRule::Kind::bytes, 1U << 30}));
  EXPECT_NO_THROW(require_fit(kParameters, {ChunkRule::Kind::all, 0}));
}

TEST(MakeChunks, RefusesAnOrderThatIsNoPermutation) {
  EXPECT_THROW(make_chunks(kParameters, std::vector<int>{0, 0, 1, 2, 3}, {}), RequestError);
  EXPECT_THROW(make_chunks(kParameters, std::vector<int>{0, 1, 2, 3, 5}, {}), RequestError);
  try {
    make_chunks(kParameters, std::vector<int>{4, 2, 1, 0}, {});
    FAIL() << "a missing parameter was accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.bias"));
  }
}

}  // namespace
}  // namespace sumpter
